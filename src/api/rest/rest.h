/*
 * The REST door: one table of routes (v1.c), a file for each group of handlers. route.describe is the
 * struct body_table of the body.
 */
#pragma once

#include "api/http/fields.h"
#include "api/http/http.h"
#include "api/http/sse.h"
#include "manager/manager.h"

extern const struct door rest_door;

struct rest; /* what the door keeps between requests: x->api->door_state[DOOR_REST] */
struct rest *rest_new(struct api *api);
void rest_free(struct rest *r);

/* ---- for the handlers (v1_common.c) ---- */
/* The door's `enter`: checks body and path, finds or wakes the sandbox, then calls the handler. */
void v1_enter(struct exchange *x);
/* Checks the body against the route's table; false: an error was answered. */
bool v1_body(struct exchange *x);
/* The sandbox of the first parameter; NULL: an error was answered. */
struct sandbox *v1_sandbox(struct exchange *x);
/* Finds it, wakes it, then calls with x->sandbox set, which is valid during the call; errors are answered. */
void v1_awake(struct exchange *x, void (*call)(struct exchange *x));
/* A whole number of the query; false: an error was answered. */
bool v1_arg_uint(struct exchange *x, const char *name, uint64_t dflt, uint64_t max, uint64_t *ret);
/* Callbacks whose arg is the exchange. */
void v1_answer_sandbox(void *arg, struct sandbox *s, const struct err *e);
void v1_answer_json(void *arg, json_t *value, const struct err *e);
void v1_answer_result(struct exchange *x, const struct result *r);
void v1_answer_created(void *arg, json_t *value, const struct err *e); /* 201 */
void v1_answer_empty(void *arg, json_t *value, const struct err *e);   /* 204 */

/* ---- handlers and the tables of their bodies ---- */
/* v1_system.c */
void v1_healthz(struct exchange *x);
void v1_metrics(struct exchange *x);
void v1_tokens(struct exchange *x);
void v1_tokens_refused(struct exchange *x);
void v1_policies(struct exchange *x);
void v1_images(struct exchange *x);
void v1_volumes(struct exchange *x);
void v1_audit(struct exchange *x);
/* openapi.c */
void v1_openapi(struct exchange *x);

/* v1_sandboxes.c */
extern const struct body_table v1_create_table, v1_patch_table, v1_timeout_table;
void v1_create(struct exchange *x);
void v1_list(struct exchange *x);
void v1_inspect(struct exchange *x);
void v1_patch(struct exchange *x);
void v1_destroy(struct exchange *x);
void v1_destroy_all(struct exchange *x);
void v1_timeout(struct exchange *x);
/* Fills in what a body says; spec is finished. */
int v1_create_options(const json_t *body, const struct body_table *t, struct create_options *o,
		      struct err *e);

/* v1_state.c */
extern const struct body_table v1_snapshot_table, v1_fork_table, v1_empty_table;
void v1_start(struct exchange *x);
void v1_stop(struct exchange *x);
void v1_restart(struct exchange *x);
void v1_pause(struct exchange *x);
void v1_resume(struct exchange *x);
void v1_wait(struct exchange *x);
void v1_stats(struct exchange *x);
void v1_all_stats(struct exchange *x);
void v1_health(struct exchange *x);
void v1_logs(struct exchange *x);
void v1_events(struct exchange *x);

/* v1_snapshots.c */
void v1_snapshot(struct exchange *x);
void v1_fork(struct exchange *x);
void v1_snapshots(struct exchange *x);
/* By id, or the newest of a name that is one's own; unless there is none and x has its answer. */
void v1_snapshot_find(struct exchange *x, const char *what,
		      void (*found)(struct exchange *x, const char *id));
void v1_snapshot_delete(struct exchange *x);
void v1_snapshot_get_tar(struct exchange *x);
void v1_snapshot_put_tar(struct exchange *x);

/* v1_exec.c */
extern const struct body_table v1_exec_table, v1_stdin_table, v1_signal_table, v1_resize_table;
void v1_exec(struct exchange *x);
void v1_execs(struct exchange *x);
void v1_exec_inspect(struct exchange *x);
void v1_exec_kill(struct exchange *x);
void v1_exec_stream(struct exchange *x);
void v1_exec_stdin(struct exchange *x);
void v1_exec_close_stdin(struct exchange *x);
void v1_exec_signal(struct exchange *x);
void v1_exec_ws(struct exchange *x); /* v1_exec_ws.c */
/* The {eid} of the path; false: an error was answered. */
bool v1_read_eid(struct exchange *x, uint32_t *ret);
/* By name, with or without SIG, or by number. */
int v1_read_signal(const char *name, int *ret, struct err *e);
void v1_exec_resize(struct exchange *x);

/* v1_run.c, v1_batch.c */
extern const struct body_table v1_run_table, v1_batch_table;
void v1_run(struct exchange *x);
void v1_batch(struct exchange *x);

/* v1_files.c, v1_tree.c */
struct file_info;
/* Relative paths are in the workspace, or where a sandbox elsewhere begins. The caller frees it. */
char *v1_file_path(const struct sandbox *s, const char *path);
/* {"path","name","type","mode","size","mtime","uid","gid","owner","group","target"} */
json_t *v1_file_json(const struct file_info *f);
extern const struct body_table v1_mkdir_table, v1_move_table, v1_chmod_table, v1_search_table;
void v1_file_get(struct exchange *x);
void v1_file_put(struct exchange *x);
void v1_file_delete(struct exchange *x);
void v1_file_mkdir(struct exchange *x);
void v1_file_move(struct exchange *x);
void v1_file_chmod(struct exchange *x);
void v1_file_search(struct exchange *x);
void v1_file_list(struct exchange *x);
void v1_file_get_tar(struct exchange *x);
void v1_file_put_tar(struct exchange *x);
void v1_file_watch(struct exchange *x);

/* v1_ports.c */
void v1_port(struct exchange *x);
