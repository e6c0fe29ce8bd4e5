/* The routes of envd, and its small requests: health, metrics, environment. */
#include "api/e2b/e2b.h"

/*
 * ---- /health: is it running? A paused one is not, and is not woken by the question. ----
 * Only who holds its token is told: clients send it with everything.
 */

static void health(struct exchange *x)
{
	char id[IPC_ID] = "";
	unsigned port;
	struct sandbox *s = NULL;
	bool holds;

	if (e2b_target(x, id, &port))
		s = manager_find_any(x->api->manager, id);
	holds = e2b_holds_access(x, s);
	if (s && holds && sandbox_state(s) == STATE_RUNNING)
		e2b_empty(x);
	else
		e2b_not_running(x, id);
}

/* ---- /metrics: as of now ---- */

static double number(const json_t *o, const char *key)
{
	return json_number_value(json_object_get(o, key));
}

static void envd_stats(void *arg, json_t *stats, const struct err *e)
{
	struct e2b_request *q = arg;
	struct sandbox *s = manager_find_any(q->x->api->manager, q->id);
	double total = number(stats, "memory_limit_bytes"), used = number(stats, "memory_bytes");

	if (!stats || !s) {
		if (e && s)
			exchange_error(q->x, e);
		else
			e2b_not_running(q->x, q->id);
		json_decref(stats);
		return;
	}
	exchange_json(q->x, 200,
		      must_alloc(json_pack(
			      "{s:I,s:I,s:f,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "ts",
			      (json_int_t)time(NULL), "cpu_count",
			      (json_int_t)((sandbox_spec(s)->limits.cpus_milli + 999) / 1000),
			      "cpu_used_pct", number(stats, "cpu_percent"), "mem_total",
			      (json_int_t)total, "mem_used", (json_int_t)used, "mem_cache",
			      (json_int_t)0, "mem_total_mib", (json_int_t)(total / 1048576),
			      "mem_used_mib", (json_int_t)(used / 1048576), "disk_used",
			      (json_int_t)number(stats, "disk_bytes"), "disk_total",
			      (json_int_t)sandbox_spec(s)->limits.disk_bytes)));
	json_decref(stats);
}

static void metrics(struct e2b_request *q, struct sandbox *s)
{
	sandbox_stats(s, envd_stats, q);
}

/* ---- /envs: what every command gets ---- */

static void envs(struct e2b_request *q, struct sandbox *s)
{
	const json_t *own = json_object_get(sandbox_door_data(s), "env");
	json_t *all = json_is_object(own) ? json_deep_copy(own) : json_object();

	json_object_update_new(all, json_pack("{s:s,s:s,s:s}", "E2B_SANDBOX", "true",
					      "E2B_SANDBOX_ID", sandbox_id(s), "E2B_TEMPLATE_ID",
					      e2b_data_text(s, "template")));
	exchange_json(q->x, 200, all);
}

/* ---- /init: an orchestrator's, done at creation here ---- */

static void init(struct e2b_request *q, struct sandbox *s)
{
	e2b_empty(q->x);
}

/* Rows of the table; the message of an RPC comes as bytes. */
#define METHOD(verb, path, flags, body, summary, ...)                                              \
	{                                                                                          \
		verb, path, e2b_enter, 0, body, ROUTE_OPEN | (flags), summary,                     \
			&(const struct e2b_method)                                                 \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}
#define PLAIN(verb, path, body, summary, handler)                                                  \
	METHOD(verb, path, 0, body, summary, .need = E2B_ACCESS_TOKEN, .call = handler)
#define FILES(verb, body, summary, handler)                                                        \
	METHOD(verb, "/files", ROUTE_NO_ORIGIN_CHECK, body, summary, .need = E2B_SIGNATURE,        \
	       .call = handler)
#define RPC(path, ...) METHOD("POST", path, 0, BODY_BYTES, __VA_ARGS__, .need = E2B_ACCESS_TOKEN)
#define PROCESS(name, ...) RPC("/process.Process/" name, __VA_ARGS__)
#define FILESYSTEM(name, summary, handler)                                                         \
	RPC("/filesystem.Filesystem/" name, summary, .shape = E2B_UNARY, .call = handler)

const struct route e2b_envd_routes[] = {
	{"GET", "/health", health, 0, BODY_NONE, ROUTE_OPEN, "Is it running? (E2B)", NULL},
	PLAIN("GET", "/metrics", BODY_NONE, "Metrics (E2B)", metrics),
	PLAIN("GET", "/envs", BODY_NONE, "Environment (E2B)", envs),
	PLAIN("POST", "/init", BODY_BYTES, "Does nothing (E2B)", init),
	FILES("GET", BODY_NONE, "Downloads a file (E2B)", e2b_files_get),
	FILES("POST", BODY_STREAM, "Uploads files (E2B)", e2b_files_post),
	PROCESS("Start", "Starts a command (E2B)", .shape = E2B_STREAM, .call = e2b_process_start,
		.is_audited = true),
	PROCESS("Connect", "Attaches to a command (E2B)", .shape = E2B_STREAM,
		.call = e2b_process_find, .found = e2b_process_attach),
	PROCESS("List", "Lists commands (E2B)", .shape = E2B_UNARY, .call = e2b_process_list),
	PROCESS("SendInput", "Feeds a command (E2B)", .shape = E2B_UNARY, .call = e2b_process_input,
		.found = e2b_process_feed),
	PROCESS("StreamInput", "Feeds a command (E2B)", .shape = E2B_ROWS,
		.call = e2b_process_stream_input, .found = e2b_process_feed),
	PROCESS("CloseStdin", "Ends a command's input (E2B)", .shape = E2B_UNARY,
		.call = e2b_process_find, .found = e2b_process_close_stdin),
	PROCESS("SendSignal", "Signals a command (E2B)", .shape = E2B_UNARY,
		.call = e2b_process_signal, .found = e2b_process_kill),
	PROCESS("Update", "Resizes a terminal (E2B)", .shape = E2B_UNARY, .call = e2b_process_find,
		.found = e2b_process_update),
	FILESYSTEM("Stat", "Looks at a file (E2B)", e2b_fs_stat),
	FILESYSTEM("MakeDir", "Makes a directory (E2B)", e2b_fs_make_dir),
	FILESYSTEM("Move", "Moves a file (E2B)", e2b_fs_move),
	FILESYSTEM("ListDir", "Lists a directory (E2B)", e2b_fs_list),
	FILESYSTEM("Remove", "Removes a file (E2B)", e2b_fs_remove),
	RPC("/filesystem.Filesystem/WatchDir", "Watches a directory (E2B)", .shape = E2B_STREAM,
	    .call = e2b_fs_watch),
	FILESYSTEM("CreateWatcher", "Watches a directory (E2B)", e2b_fs_watcher_create),
	FILESYSTEM("GetWatcherEvents", "What was seen (E2B)", e2b_fs_watcher_events),
	FILESYSTEM("RemoveWatcher", "Ends a watch (E2B)", e2b_fs_watcher_remove),
};
const size_t e2b_envd_route_count = ARRAY_LEN(e2b_envd_routes);
