/*
 * The REST door: one table of routes (rest.c), and a file for each group of handlers. route.describe is
 * the struct body_table of the body.
 */
#pragma once

#include "api/http/fields.h"
#include "api/http/http.h"
#include "calls/calls.h"
#include "manager/manager.h"
#include "model/snippet.h"

extern const struct door rest_door;

struct rest; /* what the door keeps between requests: x->api->door_state[DOOR_REST] */
struct rest *rest_new(struct api *api);
void rest_free(struct rest *r);

/* ---- for the handlers (common.c) ---- */
/* The door's `enter`: checks body and path, finds or wakes the sandbox, then calls the handler. */
void v1_enter(struct exchange *x);
/* Checks the body against the route's table; false: an error was answered. */
bool v1_body(struct exchange *x);
/* The sandbox of the first parameter; NULL: an error was answered. */
struct sandbox *v1_sandbox(struct exchange *x);
/* Finds and wakes it, then calls with x->sandbox set, which is valid during the call; errors are answered. */
void v1_awake(struct exchange *x, void (*call)(struct exchange *x));
/* A whole number of the query; false: an error was answered. */
bool v1_arg_uint(struct exchange *x, const char *name, uint64_t dflt, uint64_t max, uint64_t *ret);
/* An octal mode; text NULL: dflt. */
int v1_read_mode(const char *text, uint32_t dflt, uint32_t max, uint32_t *ret, struct err *e);
/* Callbacks whose arg is the exchange. */
void v1_answer_sandbox(void *arg, struct sandbox *s, const struct err *e);
void v1_answer_json(void *arg, json_t *value, const struct err *e);
/* May take the output out of the record. */
void v1_answer_result(struct exchange *x, struct result *r);
void v1_answer_created(void *arg, json_t *value, const struct err *e); /* 201 */
void v1_answer_empty(void *arg, json_t *value, const struct err *e);   /* 204 */
/* The fields stdin and stdin_base64. Plain text stays in the body; *ret_decoded is for the caller to free. */
int v1_read_input(const json_t *body, struct exec_request *r, char **ret_decoded, struct err *e);

/* ---- handlers, by file ---- */
typedef void rest_handler(struct exchange *x);
rest_handler v1_healthz, v1_readyz, v1_metrics, v1_tokens, v1_tokens_refused, v1_policies,
	v1_audit; /* system.c */
rest_handler v1_images, v1_image_inspect, v1_image_pull, v1_image_tag, v1_image_delete,
	v1_image_prune, v1_image_import, v1_image_export; /* images.c */
rest_handler v1_openapi;				  /* openapi.c */
rest_handler v1_create, v1_list, v1_inspect, v1_patch, v1_destroy, v1_destroy_all, v1_timeout,
	v1_port; /* sandboxes.c */
rest_handler v1_change_state, v1_restart, v1_wait, v1_stats, v1_all_stats, v1_health,
	v1_events;					     /* state.c */
rest_handler v1_network, v1_set_network, v1_answer_question; /* network.c */
rest_handler v1_logs;					     /* logs.c */
rest_handler v1_snapshot, v1_fork, v1_snapshots, v1_snapshot_delete, v1_snapshot_get_tar,
	v1_snapshot_put_tar; /* snapshots.c */
rest_handler v1_secrets, v1_secret_create, v1_secret_put, v1_secret_get,
	v1_secret_delete;						    /* secrets.c */
rest_handler v1_diff;							    /* diff.c */
rest_handler v1_volumes, v1_volume_get, v1_volume_create, v1_volume_delete; /* volumes.c */
rest_handler v1_agents, v1_agent, v1_agent_create, v1_agent_patch, v1_agent_delete,
	v1_trust; /* agents.c */
rest_handler v1_message_send, v1_message_read, v1_message_ack, v1_message_verify,
	v1_agent_keys; /* messages.c */
rest_handler v1_exec;  /* exec.c */
rest_handler v1_execs, v1_exec_inspect, v1_exec_kill, v1_exec_stream, v1_exec_stdin, v1_exec_input,
	v1_exec_signal, v1_exec_resize;			     /* execs.c */
rest_handler v1_exec_ws;				     /* exec_ws.c */
rest_handler v1_agent_types, v1_agent_call;		     /* agent_types.c */
rest_handler v1_agent_runs, v1_agent_run, v1_agent_run_kill; /* agent_runs.c */
rest_handler v1_tool_check, v1_tool_call;		     /* api/mcp/plain.c */
rest_handler v1_run;					     /* run_task.c */
rest_handler v1_batch;					     /* batch.c */
rest_handler v1_file_get, v1_file_put, v1_file_delete, v1_file_mkdir, v1_file_move,
	v1_file_chmod; /* files.c */
rest_handler v1_file_search, v1_file_list, v1_file_get_tar, v1_file_put_tar,
	v1_file_watch; /* tree.c */

/* What operations answer, for v1_openapi (answers.c). Adds operationId and responses. */
void answers_describe(json_t *operation, const char *method, const char *path);
json_t *answers_schemas(void);
json_t *answers_error(void);

/* The fields of their bodies. */
/* Into an initialised spec, of which only the network is used. */
int v1_read_network(const struct sandbox *s, const json_t *body, struct sandbox_spec *ret,
		    struct err *e);
/* The names in "secrets": before the spec is finished (it has a network then), and behind that. */
int v1_imply_network(const json_t *body, struct sandbox_spec *s, struct err *e);
int v1_take_secrets(const json_t *body, struct sandbox_spec *s, struct err *e);
extern const struct body_table v1_agent_run_table;
extern const struct body_table v1_tool_check_table, v1_tool_call_table;
extern const struct body_table v1_network_table, v1_question_table;
extern const struct body_table v1_create_table, v1_patch_table, v1_timeout_table, v1_snapshot_table,
	v1_fork_table, v1_empty_table, v1_exec_table, v1_stdin_table, v1_signal_table,
	v1_resize_table, v1_run_table, v1_batch_table, v1_mkdir_table, v1_move_table,
	v1_chmod_table, v1_search_table, v1_secret_create_table, v1_secret_put_table,
	v1_volume_table, v1_volume_create_table, v1_agent_create_table, v1_agent_patch_table,
	v1_image_pull_table, v1_image_tag_table, v1_message_table, v1_verify_table;

/* ---- agent types (agent_types.c) ---- */
/* Takes what the broker read; types that are not right are left out. */
void agent_types_take(struct api *api, const char *text, size_t len);
/*
 * A body with agent_type and task as one of /v1/run. A type may lower the trust of who runs it. NULL: e names the
 * field.
 */
json_t *agent_run_body(const struct api *api, struct caller *who, const json_t *call,
		       struct err *e);
/* The record as JSON; without what it printed, unless raw. */
json_t *run_record_json(const struct result *r, bool raw);

/* ---- agents that run (agent_runs.c) ---- */
struct agent_runs;
struct agent_run;
struct run;
struct agent_runs *agent_runs_new(void);
void agent_runs_free(struct agent_runs *r);
struct agent_run *agent_run_begin(struct api *api, const struct caller *who, const json_t *call,
				  struct run *run);
/* r NULL: it ended without a record; why says it in a word. a may be NULL. */
void agent_run_end(struct api *api, struct agent_run *a, const struct result *r, const char *why);

/* ---- shared between files ---- */
/* Fills in the options that a body gives; spec is finished. */
int v1_create_options(const json_t *body, const struct body_table *t, struct create_options *o,
		      struct err *e);
/* By id, or the newest snapshot of this name that the caller owns. If there is none, x is answered. */
void v1_snapshot_find(struct exchange *x, const char *what,
		      void (*found)(struct exchange *x, const char *id));
/* The {eid} of the path; false: an error was answered. */
bool v1_read_eid(struct exchange *x, uint32_t *ret);
/* By name, with or without SIG, or by number. */
int v1_read_signal(const char *name, int *ret, struct err *e);
/* Relative paths are in the workspace, or in the start directory of a sandbox elsewhere. The caller frees it. */
char *v1_file_path(const struct sandbox *s, const char *path);
/* {"path","name","type","mode","size","mtime","uid","gid","owner","group","target"} */
json_t *v1_file_json(const struct file_info *f);

/* ---- mail in the name of an agent (messages.c), also for its own door ---- */
void message_send_as(struct exchange *x, const char *name);
void message_read_as(struct exchange *x, const char *name);
void message_ack_as(struct exchange *x, const char *name);

/* ---- output as server-sent events: start, stdout, stderr, exit, error (stream.c) ---- */
/* input: sent to the command, then closed; must live as long as the exchange. NULL: none. */
void stream_start(struct exchange *x, struct sandbox *s, const struct exec_request *r,
		  const char *input, size_t len);
void stream_attach(struct exchange *x, struct sandbox *s, uint32_t eid, uint64_t from);
/* {"status","exit_code","signal",...}: how a command ended. */
json_t *stream_describe_exit(const struct outcome *x);

/* ---- commands and snippets in a sandbox that goes on (command.c), also for MCP ---- */
#define SNIPPET_PATH 64
/*
 * Reads cmd, shell, code, language and encoding of a body. ret_language: of the snippet, whose file and
 * argv are up to the caller; NULL for a command.
 */
int command_read(const json_t *body, struct exec_request *r, const struct language **ret_language,
		 struct err *e);
/* Each snippet gets a file of its own in a new directory. */
void snippet_choose_path(const struct language *l, char ret[SNIPPET_PATH]);
/* Writes the code, a JSON string that lives until done. */
struct call *snippet_put(struct sandbox *s, const char *path, const json_t *code, answer_done done,
			 void *arg);
/* Fills in what runs the file, which lives as long as ret; warm if possible (manager/warm/snippets.h). */
void snippet_request(const struct language *l, const char *path, struct exec_request *ret);

/*
 * ---- one task from its body to its record (run_task.c) ----
 * A transient sandbox is made, files are written into it, the command runs, files are read out, and the
 * sandbox is destroyed before the record is handed on (rule 16).
 *
 *   struct run *r = run_start(api, &caller, body, &done, arg, &e);
 *   ... done(arg, result, NULL)  or  done(arg, NULL, e)      once, never from within
 *   run_cancel(r);                                           instead: the result is no longer wanted
 */
struct run;
/* The record is valid during the callback. */
typedef void (*run_done)(void *arg, struct result *r, const struct err *e);
/* The body is used until the end; NULL and e if it is wrong. */
struct run *run_start(struct api *api, const struct caller *who, json_t *body, run_done done,
		      void *arg, struct err *e);
void run_cancel(struct run *r);
/* Of its command; 0: none. */
uint64_t run_timeout_ms(const struct run *r);
/* Ends it; done is called with an error. */
void run_kill(struct run *r);
/* The last `most` bytes of what it has printed, fit for a terminal. */
void run_output(const struct run *r, size_t most, struct buf *ret);
