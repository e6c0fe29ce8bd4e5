/*
 * The E2B-compatible door: what its files share. Four tables on one port, told apart as the
 * service's own proxy does it: requests that name a sandbox and a port (by the headers E2b-Sandbox-Id
 * and E2b-Sandbox-Port, or by a host <port>-<id>.<domain>) are for envd (49983), for the code
 * interpreter (49999) or for a port inside; all others are for the control plane.
 *
 * The door keeps little: what a sandbox must remember for it (template, access token, traffic token)
 * is its door_data, kept by the manager. Everything else is asked of the manager or of the guest.
 */
#pragma once

#include "base/base.h"
#include "api/http/http.h"
#include "manager/manager.h"
#include "wire/connect.h"

#define E2B_ENVD_PORT 49983
#define E2B_INTERPRETER_PORT 49999
#define E2B_ENVD_VERSION "0.6.13"
#define E2B_TOKEN 48		 /* an access token with its end */
#define E2B_MESSAGE (4u << 20)	 /* largest message of an RPC */
#define E2B_HIDDEN_TAG "cloche:" /* commands that List does not show */

struct server;

/* Adds all route tables of the door; called by api_start. */
void e2b_add_doors(struct server *s);

extern const struct route e2b_control_routes[], e2b_envd_routes[], e2b_interpreter_routes[],
	e2b_port_routes[];
extern const size_t e2b_control_route_count, e2b_envd_route_count, e2b_interpreter_route_count,
	e2b_port_route_count;

/* The state of the door: watches of clients that poll, kernels of the code interpreter. */
struct e2b_state {
	struct polled_watch *watchers;
	size_t watcher_count;
	struct kernel_set *kernel_sets;
};
struct e2b_state *e2b_state_of(struct api *api);

/* ---- what a sandbox remembers (e2b_data.c) ---- */
/* Never NULL; a sandbox of another door gets tokens now. */
const json_t *e2b_data(struct sandbox *s);
/* "" if it has none. */
const char *e2b_data_text(const struct sandbox *s, const char *key);
/* What every command finds in its environment. */
void e2b_env(const struct sandbox *s, struct list *ret);
json_t *e2b_data_new(const char *template, bool public_traffic);
/* Has the sandbox tokens of this door? */
bool e2b_is_open(const struct sandbox *s);
/* The access token; a dummy of the same length if s is NULL or has none. */
const char *e2b_access_token(const struct sandbox *s);
/* Does the request carry the access token of s? Takes the same time if s is NULL. */
bool e2b_holds_access(const struct exchange *x, const struct sandbox *s);
/* In constant time. */
bool e2b_same_secret(const char *a, const char *b);

/* ---- the control plane ---- */
/* {"code":status,"message":...} */
void e2b_error(struct exchange *x, int status, const struct err *e);
void e2b_fail(struct exchange *x, int status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The Sandbox object of create, connect, resume and fork. */
json_t *e2b_sandbox_json(struct exchange *x, struct sandbox *s);
/* SandboxDetail; without x ListedSandbox. */
json_t *e2b_listed_json(const struct exchange *x, struct sandbox *s);
/* "running" or "paused"; NULL: neither, so the sandbox is not listed. */
const char *e2b_state(const struct sandbox *s);
/* 204 */
void e2b_empty(struct exchange *x);
json_t *e2b_time(uint64_t unix_ms);
/* Percent-decoding in place. */
void e2b_unescape(char *s);

/* The handler of routes that name a sandbox: finds it, then calls what the route describes. */
struct e2b_control {
	void (*call)(struct exchange *x, struct sandbox *s);
};
void e2b_control(struct exchange *x);

/* Handlers that other files hold. */
void e2b_create(struct exchange *x);
void e2b_list(struct exchange *x);
void e2b_metrics(struct exchange *x, struct sandbox *s);
void e2b_metrics_many(struct exchange *x);
void e2b_network(struct exchange *x, struct sandbox *s);
void e2b_snapshot(struct exchange *x, struct sandbox *s);
void e2b_snapshots(struct exchange *x);
void e2b_snapshot_delete(struct exchange *x);
void e2b_fork(struct exchange *x, struct sandbox *s);
void e2b_alias(struct exchange *x);
void e2b_unbuilt(struct exchange *x);
/* The id of the snapshot that a template's name stands for, among those of the manager; NULL: none. */
const char *e2b_snapshot_id(const json_t *snapshots, const char *template);
/* "timeout" or so of a body: a number of seconds, dflt if it is not there. -1 with e. */
int e2b_seconds(const json_t *in, const char *key, uint64_t dflt, uint64_t *ret_ms, struct err *e);
/* Refuses network settings that are not supported; -1 with e. */
int e2b_network_check(const json_t *network, const json_t *internet, struct err *e);

/* ---- the data plane (e2b_envd.c) ---- */
/* The sandbox and the port that a request names; false: none. */
bool e2b_target(const struct exchange *x, char id[IPC_ID], unsigned *ret_port);

struct e2b_request;
typedef void (*e2b_handler)(struct e2b_request *q, struct sandbox *s);

enum e2b_need { E2B_OPEN, E2B_ACCESS_TOKEN, E2B_TRAFFIC_TOKEN, E2B_SIGNATURE };

/* How a request is read before its handler is called. */
enum e2b_shape {
	E2B_PLAIN,  /* not at all */
	E2B_UNARY,  /* one JSON message each way */
	E2B_STREAM, /* one message in, envelopes out */
	E2B_ROWS,   /* envelopes in, which the handler reads itself */
	E2B_KERNEL, /* plain, once the kernels of the sandbox are known */
	E2B_SHAPE_COUNT,
};

/* What a route of the data plane describes; its handler is e2b_enter. */
struct e2b_method {
	enum e2b_need need;
	enum e2b_shape shape;
	e2b_handler call;
	bool is_audited; /* by the manager, as soon as it does what is asked */
	/* Of e2b_process_find: called with the command that was found. */
	void (*found)(struct e2b_request *q, struct sandbox *s, const json_t *exec);
};

/* One request to a sandbox; in x->data. */
struct e2b_request {
	struct exchange *x;
	const struct e2b_method *method;
	char id[IPC_ID];
	unsigned port;
	json_t *in;	  /* message of an RPC, or NULL */
	const char *user; /* "user" or "root" */
	void *more;	  /* the handler's own: see e2b_keep */
};

/*
 * Finds the sandbox, checks the token, wakes the sandbox, reads the message, calls the method.
 * Whatever is in the way is answered: 401 without a token, whatever is named; 502 without a running
 * sandbox, and without the right token; 403 to a client that holds the access token of the sandbox but
 * not the one for its ports. Errors of an RPC have the shape of the RPC.
 */
void e2b_enter(struct exchange *x);
struct e2b_request *e2b_request_of(struct exchange *x);
/* Memory of the handler's own, zeroed, in q->more; freed with the request, after done(more). */
void *e2b_keep(struct e2b_request *q, size_t size, void (*done)(void *more));
/* The user that Basic authorisation names: -1 with e for unknown ones. */
int e2b_user(const struct exchange *x, const char *name, const char **ret_user, struct err *e);

/* The sandbox if it is still running; NULL after a 502. */
struct sandbox *e2b_still(struct e2b_request *q);
void e2b_not_running(struct exchange *x, const char *id);

/* Answers of an RPC, by its shape. */
void e2b_rpc_ok(struct e2b_request *q, json_t *message);
void e2b_rpc_fail(struct e2b_request *q, enum connect_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void e2b_rpc_error(struct e2b_request *q, const struct err *e);
enum connect_code e2b_code_of(const struct err *e);
/* Did this fail because the sandbox is gone by now? */
bool e2b_is_cut(struct e2b_request *q, const struct err *e);

/* A string member; NULL if it is absent; sets *bad if it is no string. */
const char *e2b_text(const json_t *in, const char *key, bool *bad);
/* Is it absent, or an object of at most so many strings? -1 with e, which calls it label. */
int e2b_check_strings(json_t *all, const char *label, size_t most, struct err *e);
/* The same for variables of the environment, which are added to env. */
int e2b_add_env(json_t *all, const char *label, size_t most, struct list *env, struct err *e);
/* Resolves a path as envd does: ~, relative to the home. -1 with e. The result is the caller's. */
char *e2b_path(const char *path, const char *user, struct err *e);
const char *e2b_home(const char *user);
/* Base64 without padding of sha256(path:operation:user:token[:expiry]) with "v1_" in front. */
void e2b_sign(const char *path, const char *operation, const char *user, const char *token,
	      const char *expiry, char ret[64]);

/* ---- handlers of the data plane ---- */
void e2b_process_start(struct e2b_request *q, struct sandbox *s);
void e2b_process_list(struct e2b_request *q, struct sandbox *s);
void e2b_process_input(struct e2b_request *q, struct sandbox *s);
void e2b_process_stream_input(struct e2b_request *q, struct sandbox *s);
void e2b_process_signal(struct e2b_request *q, struct sandbox *s);
void e2b_fs_stat(struct e2b_request *q, struct sandbox *s);
void e2b_fs_make_dir(struct e2b_request *q, struct sandbox *s);
void e2b_fs_move(struct e2b_request *q, struct sandbox *s);
void e2b_fs_list(struct e2b_request *q, struct sandbox *s);
void e2b_fs_remove(struct e2b_request *q, struct sandbox *s);
void e2b_fs_watch(struct e2b_request *q, struct sandbox *s);
void e2b_fs_watcher_create(struct e2b_request *q, struct sandbox *s);
void e2b_fs_watcher_events(struct e2b_request *q, struct sandbox *s);
void e2b_fs_watcher_remove(struct e2b_request *q, struct sandbox *s);
void e2b_files_get(struct e2b_request *q, struct sandbox *s);
void e2b_files_post(struct e2b_request *q, struct sandbox *s);

/*
 * Calls `found` of the method with the command that "process" of the message selects, by pid or by
 * tag; answers if there is none. exec is one of sandbox_execs.
 */
void e2b_process_find(struct e2b_request *q, struct sandbox *s);
void e2b_process_attach(struct e2b_request *q, struct sandbox *s, const json_t *exec);
void e2b_process_feed(struct e2b_request *q, struct sandbox *s, const json_t *exec);
void e2b_process_close_stdin(struct e2b_request *q, struct sandbox *s, const json_t *exec);
void e2b_process_kill(struct e2b_request *q, struct sandbox *s, const json_t *exec);
void e2b_process_update(struct e2b_request *q, struct sandbox *s, const json_t *exec);
/* Is this command cloche's own (a kernel), hidden from clients? */
bool e2b_is_hidden(const json_t *exec);
/* "pty" of the message: the size of a terminal. -1 with e. */
int e2b_pty_size(const json_t *in, uint32_t *ret_rows, uint32_t *ret_cols, struct err *e);
/* Checks the signature of a request for /files, which may also tell the sandbox; false: answered. */
bool e2b_files_signed(struct e2b_request *q);
