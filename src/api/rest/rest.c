/* The routes of the REST door. */
#include "api/rest/rest.h"

#define BOX "/v1/sandboxes/{id}"
#define EXEC BOX "/execs/{eid}"

#define READ SCOPE_READ
#define RUN SCOPE_RUN
#define FILES SCOPE_FILES
#define ADMIN SCOPE_ADMIN
#define SANDBOX ROUTE_SANDBOX
#define AWAKE ROUTE_AWAKE

/* contract.md's table. */
static const struct route routes[] = {
	{"GET", "/healthz", v1_healthz, 0, BODY_NONE, ROUTE_OPEN, "Is the daemon alive?", NULL},
	{"GET", "/metrics", v1_metrics, READ, BODY_NONE, 0, "Counters for Prometheus", NULL},
	{"GET", "/openapi.json", v1_openapi, 0, BODY_NONE, ROUTE_OPEN, "This description", NULL},

	{"POST", "/v1/run", v1_run, RUN, BODY_JSON_BIG, ROUTE_OWN_BODY,
	 "Runs a command or a snippet in a sandbox of its own and answers with the result",
	 &v1_run_table},
	{"POST", "/v1/run/batch", v1_batch, RUN, BODY_JSON_BIG, ROUTE_OWN_BODY,
	 "Runs many, so many at a time; application/x-ndjson streams results as they end",
	 &v1_batch_table},

	{"POST", "/v1/sandboxes", v1_create, RUN, BODY_JSON, 0, "Makes a sandbox",
	 &v1_create_table},
	{"GET", "/v1/sandboxes", v1_list, READ, BODY_NONE, 0,
	 "Lists them: metadata=K=V (repeatable), state, limit, cursor",
	 "metadata state limit cursor"},
	{"DELETE", "/v1/sandboxes", v1_destroy_all, RUN, BODY_NONE, 0, "Destroys all of one's own",
	 NULL},
	{"GET", "/v1/stats", v1_all_stats, READ, BODY_NONE, 0, "What all of them use", NULL},
	{"GET", BOX, v1_inspect, READ, BODY_NONE, SANDBOX, "Shows a sandbox", NULL},
	{"PATCH", BOX, v1_patch, RUN, BODY_JSON, SANDBOX, "Changes limits, ttl, metadata",
	 &v1_patch_table},
	{"DELETE", BOX, v1_destroy, RUN, BODY_NONE, SANDBOX, "Destroys it", NULL},

	{"POST", BOX "/exec", v1_exec, RUN, BODY_JSON_BIG, AWAKE,
	 "Executes a command: the result, an exec object (background), or text/event-stream",
	 &v1_exec_table},
	{"GET", BOX "/execs", v1_execs, READ, BODY_NONE, AWAKE, "Running and ended commands", NULL},
	{"GET", EXEC, v1_exec_inspect, READ, BODY_NONE, AWAKE, "Shows one", NULL},
	{"DELETE", EXEC, v1_exec_kill, RUN, BODY_NONE, AWAKE, "Kills it and its children", NULL},
	{"GET", EXEC "/stream", v1_exec_stream, READ, BODY_NONE, AWAKE,
	 "Attaches to its output from=SEQ on", "from"},
	{"GET", EXEC "/ws", v1_exec_ws, RUN, BODY_NONE, 0,
	 "Its terminal as a WebSocket, from=SEQ on: binary frames both ways, JSON in text frames",
	 "from"},
	{"POST", EXEC "/stdin", v1_exec_stdin, RUN, BODY_JSON_BIG, AWAKE, "Gives it input",
	 &v1_stdin_table},
	{"POST", EXEC "/close_stdin", v1_exec_close_stdin, RUN, BODY_JSON, AWAKE | ROUTE_OWN_BODY,
	 "Ends its input", &v1_empty_table},
	{"POST", EXEC "/signal", v1_exec_signal, RUN, BODY_JSON, AWAKE, "Sends it a signal",
	 &v1_signal_table},
	{"POST", EXEC "/resize", v1_exec_resize, RUN, BODY_JSON, AWAKE, "Resizes its terminal",
	 &v1_resize_table},

	{"GET", BOX "/files", v1_file_get, FILES, BODY_NONE, AWAKE | ROUTE_PATH,
	 "Reads a file (Range), lists a directory (list=1, depth), or shows an entry (stat=1)",
	 "path list depth stat nofollow"},
	{"PUT", BOX "/files", v1_file_put, FILES, BODY_STREAM, AWAKE | ROUTE_PATH,
	 "Writes a file: whole, or from offset on", "path offset mode parents"},
	{"DELETE", BOX "/files", v1_file_delete, FILES, BODY_NONE, AWAKE | ROUTE_PATH,
	 "Removes it; recursive=1 for a tree", "path recursive"},
	{"POST", BOX "/files/mkdir", v1_file_mkdir, FILES, BODY_JSON, AWAKE, "Makes a directory",
	 &v1_mkdir_table},
	{"POST", BOX "/files/move", v1_file_move, FILES, BODY_JSON, AWAKE, "Moves or renames",
	 &v1_move_table},
	{"POST", BOX "/files/chmod", v1_file_chmod, FILES, BODY_JSON, AWAKE,
	 "Changes mode or owner", &v1_chmod_table},
	{"POST", BOX "/files/search", v1_file_search, FILES, BODY_JSON, AWAKE,
	 "Finds files by name and content", &v1_search_table},
	{"GET", BOX "/files/tar", v1_file_get_tar, FILES, BODY_NONE, AWAKE | ROUTE_PATH,
	 "A tree as a tar", "path"},
	{"PUT", BOX "/files/tar", v1_file_put_tar, FILES, BODY_STREAM, AWAKE | ROUTE_PATH,
	 "Unpacks a tar there", "path strict"},
	{"GET", BOX "/files/watch", v1_file_watch, FILES, BODY_NONE, AWAKE | ROUTE_PATH,
	 "Changes below a path as events; recursive=1", "path recursive"},

	{"POST", BOX "/start", v1_start, RUN, BODY_JSON, SANDBOX, "Starts a stopped one again",
	 &v1_empty_table},
	{"POST", BOX "/stop", v1_stop, RUN, BODY_JSON, SANDBOX,
	 "Ends its processes, keeps its files", &v1_empty_table},
	{"POST", BOX "/restart", v1_restart, RUN, BODY_JSON, SANDBOX, "Stops and starts it",
	 &v1_empty_table},
	{"POST", BOX "/pause", v1_pause, RUN, BODY_JSON, SANDBOX, "Freezes it", &v1_empty_table},
	{"POST", BOX "/resume", v1_resume, RUN, BODY_JSON, SANDBOX, "Thaws it", &v1_empty_table},
	{"POST", BOX "/snapshot", v1_snapshot, RUN, BODY_JSON, SANDBOX, "Keeps its files",
	 &v1_snapshot_table},
	{"POST", BOX "/fork", v1_fork, RUN, BODY_JSON, SANDBOX, "Makes copies of it",
	 &v1_fork_table},
	{"POST", BOX "/timeout", v1_timeout, RUN, BODY_JSON, SANDBOX,
	 "Sets how long it lives from now", &v1_timeout_table},
	{"GET", BOX "/wait", v1_wait, READ, BODY_NONE, SANDBOX,
	 "Answers when it no longer runs, or is in state=, or after timeout= seconds",
	 "state timeout"},
	{"GET", BOX "/stats", v1_stats, READ, BODY_NONE, SANDBOX, "What it uses, with a history",
	 NULL},
	{"GET", BOX "/health", v1_health, READ, BODY_NONE, SANDBOX, "Does it answer?", NULL},
	{"GET", BOX "/logs", v1_logs, READ, BODY_NONE, AWAKE,
	 "The last bytes= of each command's output, or of exec=", "bytes exec"},
	{"GET", "/v1/events", v1_events, READ, BODY_NONE, 0,
	 "What happens, as events; from=SEQ, sandbox=", "from sandbox"},

	{"GET", "/v1/snapshots", v1_snapshots, READ, BODY_NONE, 0, "Lists snapshots", NULL},
	{"DELETE", "/v1/snapshots/{id}", v1_snapshot_delete, RUN, BODY_NONE, 0, "Deletes one",
	 NULL},
	{"GET", "/v1/snapshots/{id}/tar", v1_snapshot_get_tar, FILES, BODY_NONE, 0, "One as a tar",
	 NULL},
	{"PUT", "/v1/snapshots/{name}/tar", v1_snapshot_put_tar, FILES, BODY_STREAM, 0,
	 "A tar becomes a snapshot", NULL},

	{"ANY", BOX "/ports/{port}/*", v1_port, RUN, BODY_STREAM, ROUTE_ANY_METHOD | AWAKE,
	 "Passes the request on to a port inside", NULL},
	{"ANY", BOX "/ports/{port}", v1_port, RUN, BODY_STREAM, ROUTE_ANY_METHOD | AWAKE,
	 "Passes the request on to a port inside", NULL},

	{"GET", "/v1/tokens", v1_tokens, ADMIN, BODY_NONE, 0, "Lists tokens", NULL},
	{"POST", "/v1/tokens", v1_tokens_refused, ADMIN, BODY_JSON, ROUTE_OWN_BODY, "Refused",
	 &v1_empty_table},
	{"DELETE", "/v1/tokens/{id}", v1_tokens_refused, ADMIN, BODY_NONE, ROUTE_OWN_BODY,
	 "Refused", NULL},
	{"GET", "/v1/audit", v1_audit, ADMIN, BODY_NONE, 0,
	 "The last records of the audit log; after=SEQ, limit, target", "after limit target"},
	{"GET", "/v1/policies", v1_policies, READ, BODY_NONE, 0, "Lists policies", NULL},
	{"GET", "/v1/images", v1_images, READ, BODY_NONE, 0, "Lists images", NULL},
	{"GET", "/v1/volumes", v1_volumes, READ, BODY_NONE, 0, "Lists volumes", NULL},
};

const struct door rest_door = {
	.id = DOOR_REST,
	.name = "rest",
	.routes = routes,
	.route_count = ARRAY_LEN(routes),
	.enter = v1_enter,
};
