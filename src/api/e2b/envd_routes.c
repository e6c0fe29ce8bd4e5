/* The routes of envd, and its small requests: health, metrics, environment. */
#include "api/e2b/e2b_internal.h"

/*
 * ---- /health: is the sandbox running? A paused one is not, and is not woken by the question. ----
 * Only clients that hold its access token are told; they send it with every request.
 */

static void reply_health(struct exchange *x)
{
	char id[IPC_ID] = "";
	unsigned port;
	struct sandbox *s = e2b_target(x, id, &port) ? e2b_running(x->api, id) : NULL;

	if (e2b_holds_access(x, s))
		e2b_empty(x);
	else
		e2b_not_running(x, id);
}

/* ---- /envs: the environment of every command ---- */

static void reply_envs(struct e2b_request *q, struct sandbox *s)
{
	const json_t *own = json_object_get(sandbox_door_data(s), "env");
	json_t *all = json_is_object(own) ? json_deep_copy(own) : json_object();

	json_object_update_new(all, json_pack("{s:s,s:s,s:s}", "E2B_SANDBOX", "true",
					      "E2B_SANDBOX_ID", sandbox_id(s), "E2B_TEMPLATE_ID",
					      e2b_data_text(s, "template")));
	exchange_json(q->x, 200, all);
}

/* ---- /init: E2B's orchestrator calls it; here it is done at creation ---- */

static void reply_init(struct e2b_request *q, struct sandbox *s)
{
	e2b_empty(q->x);
}

/* ---- the table ---- */

/* Rows of it; the message of an RPC comes as bytes. */
#define PLAIN(verb, path, body, summary, handler)                                                  \
	E2B_METHOD(verb, path, 0, body, summary, .need = E2B_ACCESS_TOKEN, .call = handler)
#define FILES(verb, body, summary, handler)                                                        \
	E2B_METHOD(verb, "/files", ROUTE_NO_ORIGIN_CHECK, body, summary, .need = E2B_SIGNATURE,    \
		   .call = handler)
#define RPC(path, ...)                                                                             \
	E2B_METHOD("POST", path, 0, BODY_BYTES, __VA_ARGS__, .need = E2B_ACCESS_TOKEN)
#define PROCESS(name, ...) RPC("/process.Process/" name, __VA_ARGS__)
#define FILESYSTEM(name, summary, handler, ...)                                                    \
	RPC("/filesystem.Filesystem/" name, summary, .shape = E2B_UNARY, .call = handler,          \
	    __VA_ARGS__)

static const struct route routes[] = {
	{"GET", "/health", reply_health, 0, BODY_NONE, ROUTE_OPEN, "Is it running? (E2B)", NULL},
	PLAIN("GET", "/metrics", BODY_NONE, "Metrics (E2B)", e2b_metrics_now),
	PLAIN("GET", "/envs", BODY_NONE, "Environment (E2B)", reply_envs),
	PLAIN("POST", "/init", BODY_BYTES, "Does nothing (E2B)", reply_init),
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
	FILESYSTEM("Stat", "Looks at a file (E2B)", e2b_fs_stat, .path = "path"),
	FILESYSTEM("MakeDir", "Makes a directory (E2B)", e2b_fs_make_dir, .path = "path"),
	FILESYSTEM("Move", "Moves a file (E2B)", e2b_fs_move, .path = "source"),
	FILESYSTEM("ListDir", "Lists a directory (E2B)", e2b_fs_list, .path = "path"),
	FILESYSTEM("Remove", "Removes a file (E2B)", e2b_fs_remove, .path = "path"),
	RPC("/filesystem.Filesystem/WatchDir", "Watches a directory (E2B)", .shape = E2B_STREAM,
	    .call = e2b_fs_watch, .path = "path"),
	FILESYSTEM("CreateWatcher", "Watches a directory (E2B)", e2b_fs_watcher_create,
		   .path = "path"),
	FILESYSTEM("GetWatcherEvents", "What was seen (E2B)", e2b_fs_watcher_events, .path = NULL),
	FILESYSTEM("RemoveWatcher", "Ends a watch (E2B)", e2b_fs_watcher_remove, .path = NULL),
};

/* Signed addresses name no sandbox: the signature tells which one is meant. */
static bool claims_envd(const struct exchange *x)
{
	int port = e2b_port_of(x);

	return port == E2B_ENVD_PORT || (port < 0 && str_equal(x->path, "/files"));
}

/* Errors that the server finds before it calls a handler of envd. */
static void envd_error(struct exchange *x, int status, const struct err *e)
{
	static const struct {
		int status;
		enum connect_code code;
	} rows[] = {
		{400, CONNECT_INVALID_ARGUMENT},   {401, CONNECT_UNAUTHENTICATED},
		{403, CONNECT_PERMISSION_DENIED},  {404, CONNECT_UNIMPLEMENTED},
		{405, CONNECT_UNIMPLEMENTED},	   {413, CONNECT_RESOURCE_EXHAUSTED},
		{429, CONNECT_RESOURCE_EXHAUSTED}, {501, CONNECT_UNIMPLEMENTED},
		{503, CONNECT_UNAVAILABLE},
	};
	enum connect_code code = CONNECT_INTERNAL;

	if (!str_starts(x->path, "/process.") && !str_starts(x->path, "/filesystem.")) {
		e2b_error(x, status, e);
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (rows[i].status == status)
			code = rows[i].code;
	exchange_json(x, status, connect_error(code, e->msg));
}

const struct door e2b_envd_door = {
	DOOR_E2B, "e2b", routes, ARRAY_LEN(routes), claims_envd, envd_error, NULL, e2b_admit, NULL,
};
