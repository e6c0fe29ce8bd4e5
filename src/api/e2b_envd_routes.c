/* envd's table, and the small requests of it. */
#include "api/e2b.h"

#include "base/auto.h"
#include "base/str.h"

#include <string.h>
#include <time.h>

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

static void on_stats(void *arg, json_t *stats, const struct err *e)
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
	sandbox_stats(s, on_stats, q);
}

/* ---- /envs: what every command gets ---- */

static void envs(struct e2b_request *q, struct sandbox *s)
{
	const json_t *data = sandbox_door_data(s), *own = json_object_get(data, "env");
	json_t *all = json_is_object(own) ? json_deep_copy(own) : json_object();

	json_object_set_new(all, "E2B_SANDBOX", json_string("true"));
	json_object_set_new(all, "E2B_SANDBOX_ID", json_string(sandbox_id(s)));
	json_object_set_new(all, "E2B_TEMPLATE_ID", json_string(e2b_data_text(s, "template")));
	exchange_json(q->x, 200, all);
}

/* ---- /init: an orchestrator's, done at creation here ---- */

static void init(struct e2b_request *q, struct sandbox *s)
{
	(void)s;
	e2b_empty(q->x);
}

/* A row of the table; the message of an RPC comes as bytes. */
#define METHOD(verb, path, flags, body, summary, ...)                                              \
	{                                                                                          \
		verb, path, e2b_enter, 0, body, ROUTE_OPEN | (flags), summary,                     \
			&(const struct e2b_method)                                                 \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}
#define RPC(path, shape, call, summary)                                                            \
	METHOD("POST", path, 0, BODY_BYTES, summary, E2B_ACCESS_TOKEN, shape, call, false)

const struct route e2b_envd_routes[] = {
	{"GET", "/health", health, 0, BODY_NONE, ROUTE_OPEN, "Is it running? (E2B)", NULL},
	METHOD("GET", "/metrics", 0, BODY_NONE, "Metrics (E2B)", E2B_ACCESS_TOKEN, E2B_PLAIN,
	       metrics, false),
	METHOD("GET", "/envs", 0, BODY_NONE, "Environment (E2B)", E2B_ACCESS_TOKEN, E2B_PLAIN, envs,
	       false),
	METHOD("POST", "/init", 0, BODY_BYTES, "Does nothing (E2B)", E2B_ACCESS_TOKEN, E2B_PLAIN,
	       init, false),
	METHOD("GET", "/files", ROUTE_NO_ORIGIN_CHECK, BODY_NONE, "Downloads a file (E2B)",
	       E2B_SIGNATURE, E2B_PLAIN, e2b_files_get, false),
	METHOD("POST", "/files", ROUTE_NO_ORIGIN_CHECK, BODY_STREAM, "Uploads files (E2B)",
	       E2B_SIGNATURE, E2B_PLAIN, e2b_files_post, false),
	METHOD("POST", "/process.Process/Start", 0, BODY_BYTES, "Starts a command (E2B)",
	       E2B_ACCESS_TOKEN, E2B_STREAM, e2b_process_start, true),
	RPC("/process.Process/Connect", E2B_STREAM, e2b_process_connect,
	    "Attaches to a command (E2B)"),
	RPC("/process.Process/List", E2B_UNARY, e2b_process_list, "Lists commands (E2B)"),
	RPC("/process.Process/SendInput", E2B_UNARY, e2b_process_input, "Feeds a command (E2B)"),
	RPC("/process.Process/StreamInput", E2B_ROWS, e2b_process_stream_input,
	    "Feeds a command (E2B)"),
	RPC("/process.Process/CloseStdin", E2B_UNARY, e2b_process_close_stdin,
	    "Ends a command's input (E2B)"),
	RPC("/process.Process/SendSignal", E2B_UNARY, e2b_process_signal,
	    "Signals a command (E2B)"),
	RPC("/process.Process/Update", E2B_UNARY, e2b_process_update, "Resizes a terminal (E2B)"),
	RPC("/filesystem.Filesystem/Stat", E2B_UNARY, e2b_fs_stat, "Looks at a file (E2B)"),
	RPC("/filesystem.Filesystem/MakeDir", E2B_UNARY, e2b_fs_make_dir,
	    "Makes a directory (E2B)"),
	RPC("/filesystem.Filesystem/Move", E2B_UNARY, e2b_fs_move, "Moves a file (E2B)"),
	RPC("/filesystem.Filesystem/ListDir", E2B_UNARY, e2b_fs_list, "Lists a directory (E2B)"),
	RPC("/filesystem.Filesystem/Remove", E2B_UNARY, e2b_fs_remove, "Removes a file (E2B)"),
	RPC("/filesystem.Filesystem/WatchDir", E2B_STREAM, e2b_fs_watch,
	    "Watches a directory (E2B)"),
	RPC("/filesystem.Filesystem/CreateWatcher", E2B_UNARY, e2b_fs_watcher_create,
	    "Watches a directory (E2B)"),
	RPC("/filesystem.Filesystem/GetWatcherEvents", E2B_UNARY, e2b_fs_watcher_events,
	    "What was seen (E2B)"),
	RPC("/filesystem.Filesystem/RemoveWatcher", E2B_UNARY, e2b_fs_watcher_remove,
	    "Ends a watch (E2B)"),
};
const size_t e2b_envd_route_count = ARRAY_LEN(e2b_envd_routes);
