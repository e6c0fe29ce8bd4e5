/*
 * Shared by the files of the E2B doors. The doors keep little themselves: a sandbox's template, access
 * token and traffic token are its door_data, stored by the manager. Everything else is asked of the
 * manager or of the guest.
 */
#pragma once

#include "base/base.h"
#include "api/e2b/e2b.h"
#include "api/http/http.h"
#include "calls/calls.h"
#include "manager/manager.h"
#include "wire/connect.h"

#define E2B_ENVD_PORT 49983
#define E2B_INTERPRETER_PORT 49999
#define E2B_ENVD_VERSION "0.6.13"
#define E2B_TOKEN 48		 /* an access token with its terminator */
#define E2B_MESSAGE (4u << 20)	 /* largest message of an RPC */
#define E2B_HIDDEN_TAG "cloche:" /* List does not show commands with such a tag */
#define E2B_XATTR "user.e2b."	 /* extended attributes that hold a file's metadata */

/* Kept by the doors: watches of clients that poll, kernels of the code interpreter. */
struct e2b_state {
	struct polled_watch *watchers;
	size_t watcher_count;
	struct kernel_set *kernel_sets;
	struct template_build *builds; /* newest first (builds.c) */
};
struct e2b_state *e2b_state_of(struct api *api);

/* ---- the data of a sandbox (data.c) ---- */
/* Never NULL: a sandbox that another door made gets its tokens now. */
const json_t *e2b_data(struct sandbox *s);
/* One member of the data; "": there is none. */
const char *e2b_data_text(const struct sandbox *s, const char *key);
/* Adds the variables that every command has in its environment. */
void e2b_env(const struct sandbox *s, struct list *ret);
json_t *e2b_data_new(const char *template, bool public_traffic);
/* Has the sandbox tokens of these doors? */
bool e2b_is_open(const struct sandbox *s);
/* The access token; a dummy of the same length if s is NULL or has none. */
const char *e2b_access_token(const struct sandbox *s);
/* Does the request carry the access token of s? Takes the same time if s is NULL. */
bool e2b_holds_access(const struct exchange *x, const struct sandbox *s);
/* In constant time. */
bool e2b_same_secret(const char *a, const char *b);
/* The sandbox of this id, whoever owns it; NULL unless it is running. */
struct sandbox *e2b_running(const struct api *api, const char *id);

/* ---- the control plane ---- */
/* {"code":status,"message":...} */
void e2b_error(struct exchange *x, int status, const struct err *e);
void e2b_fail(struct exchange *x, int status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The Sandbox object of create, connect, resume and fork. */
json_t *e2b_sandbox_json(struct exchange *x, struct sandbox *s);
/* SandboxDetail; ListedSandbox if x is NULL. */
json_t *e2b_listed_json(const struct exchange *x, struct sandbox *s);
/* "running" or "paused"; NULL: neither, so the sandbox is not listed. */
const char *e2b_state(const struct sandbox *s);
/* 204 */
void e2b_empty(struct exchange *x);
/* The same as a json_done. */
void e2b_answer_empty(void *arg, json_t *value, const struct err *e);
json_t *e2b_time(uint64_t unix_ms);
/* Milliseconds since 1970 of an ISO 8601 time in UTC, with or without decimals; false: it is none. */
bool e2b_parse_time(const char *text, uint64_t *ret_ms);
/* An object of the strings in "a=b&c=d", which are escaped twice. */
json_t *e2b_query_metadata(const char *text);

/* Of a route that names a sandbox: e2b_control finds the sandbox, then calls `call`. */
typedef void e2b_control_call(struct exchange *x, struct sandbox *s);
struct e2b_control {
	e2b_control_call *call;
	unsigned timeout_s; /* connect, resume: if the body sets no timeout */
	bool only_paused;   /* connect, resume: refuse a sandbox that runs */
};
void e2b_control(struct exchange *x);

typedef void e2b_route_call(struct exchange *x);
e2b_route_call e2b_create, e2b_list, e2b_metrics_many, e2b_snapshots, e2b_snapshot_delete,
	e2b_alias, e2b_unbuilt, e2b_templates, e2b_template_tags, e2b_template_delete,
	e2b_template_publish, e2b_tags_assign, e2b_tags_remove, e2b_build_request, e2b_build_start,
	e2b_build_status, e2b_build_files, e2b_build_upload, e2b_secrets, e2b_secret_create,
	e2b_secret_update, e2b_secret_get, e2b_secret_delete, e2b_volumes, e2b_volume_create,
	e2b_volume_get, e2b_volume_delete;
e2b_control_call e2b_metrics, e2b_network, e2b_snapshot, e2b_fork;
/* Does it show the host's programs? */
bool e2b_is_builtin(const char *template);
/* Is it an image of the caller's, or one that the operator offers? */
bool e2b_is_image(const struct exchange *x, const char *template);
/* The image that a template's id or name stands for. The caller frees it. */
char *e2b_image_of(struct exchange *x, const char *template);
/* "volumeMounts" of a new sandbox: written to, as E2B has them. */
int e2b_take_mounts(const json_t *body, struct create_options *o, struct err *e);
/* The id of the snapshot that a template's name stands for, among those of the manager; NULL: none. */
const char *e2b_snapshot_id(const json_t *snapshots, const char *template);
/* A member of a body: a number of seconds, dflt if it is absent. -1 with e. */
int e2b_seconds(const json_t *in, const char *key, uint64_t dflt, uint64_t *ret_ms, struct err *e);
/*
 * E2B's network settings (network, and allow_internet_access or NULL) as mode and rules of a specification, whose
 * own are replaced. Errors are those of E2B where it has one.
 */
int e2b_network_spec(const json_t *network, const json_t *internet, struct sandbox_spec *s,
		     struct err *e);
/*
 * The same for a request, whose body may say allow_internet_access: what is not asked for is this door's default, and
 * what is more than the caller may have becomes that. Programs ask for the internet unasked, so that is no error:
 * ret_note says it, or is "".
 */
#define E2B_NOTE 160
int e2b_network_wanted(const struct exchange *x, const json_t *network, struct sandbox_spec *s,
		       char ret_note[E2B_NOTE], struct err *e);

/* ---- the data plane (envd.c) ---- */
/* The sandbox and the port that a request names; false: none. */
bool e2b_target(const struct exchange *x, char id[IPC_ID], unsigned *ret_port);
/* The port alone; 0: not a valid port; -1: the request names none. */
int e2b_port_of(const struct exchange *x);

struct e2b_request;
typedef void e2b_handler(struct e2b_request *q, struct sandbox *s);

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

/* `describe` of a route of the data plane, whose handler is e2b_enter. */
struct e2b_method {
	enum e2b_need need;
	enum e2b_shape shape;
	e2b_handler *call;
	bool is_audited;  /* the manager writes the audit entry when it does what is asked */
	const char *path; /* the member of the message that names a path; NULL: none does */
	/* Of e2b_process_find: called with the command that was found. */
	void (*found)(struct e2b_request *q, struct sandbox *s, const json_t *exec);
};

/* A row of a route table; the rest are members of its e2b_method. */
#define E2B_METHOD(verb, path, flags, body, summary, ...)                                          \
	{                                                                                          \
		verb, path, e2b_enter, 0, body, ROUTE_OPEN | (flags), summary,                     \
			&(const struct e2b_method)                                                 \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}

/* One request to a sandbox; in x->data. */
struct e2b_request {
	struct exchange *x;
	const struct e2b_method *method;
	char id[IPC_ID];
	unsigned port;
	json_t *in;	  /* message of an RPC, or NULL */
	const char *user; /* "user" or "root" */
	char *path;	  /* the path that the method asks for, resolved and clean */
	void *more;	  /* the handler's own: see e2b_keep */
};

/*
 * Finds the sandbox, checks the token, wakes the sandbox, reads the message, calls the method.
 * Answers itself if the method cannot be called: 401 to a request without a token, whatever sandbox it
 * names; 502 if the sandbox is not running or the token is wrong; 403 to a client without the token for
 * the ports, if it holds the access token or the sandbox was made with allowPublicTraffic: false. Errors
 * of an RPC have the shape of the RPC.
 */
void e2b_enter(struct exchange *x);
/* `admit` of the doors of the data plane. */
void e2b_admit(struct exchange *x);
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
/* The same for answers outside of RPCs: the HTTP status of a guest's error. */
void e2b_files_error(struct exchange *x, const struct err *e);
/* Did this fail because the sandbox is gone by now? */
bool e2b_is_cut(struct e2b_request *q, const struct err *e);

/* A string member; NULL if it is absent; sets *bad if it is no string. */
const char *e2b_text(const json_t *in, const char *key, bool *bad);
/*
 * Checks that it is absent, or an object of at most so many strings; -1 with e, which calls it label.
 * env not NULL: they are variables of the environment, and are added to env.
 */
int e2b_strings(json_t *all, const char *label, size_t most, struct list *env, struct err *e);
/* Resolves a path as envd does: ~, relative to the home. -1 with e. The result is the caller's. */
char *e2b_path(const char *path, const char *user, struct err *e);
/* A path of the message, resolved and clean; NULL after an answer. The caller frees it. */
char *e2b_path_of(struct e2b_request *q, const char *key);
/* Base64 without padding of sha256(path:operation:user:token[:expiry]) with "v1_" in front. */
void e2b_sign(const char *path, const char *operation, const char *user, const char *token,
	      const char *expiry, char ret[64]);

/* ---- handlers of the data plane ---- */
e2b_handler e2b_metrics_now, e2b_process_start, e2b_process_list, e2b_process_input,
	e2b_process_stream_input, e2b_process_signal, e2b_fs_stat, e2b_fs_make_dir, e2b_fs_move,
	e2b_fs_list, e2b_fs_remove, e2b_fs_watch, e2b_fs_watcher_create, e2b_fs_watcher_events,
	e2b_fs_watcher_remove, e2b_files_get, e2b_files_post;

/* ---- commands (process.c) ---- */
/*
 * Calls `found` of the method with the command that "process" of the message selects, by pid or by
 * tag; answers if there is none. exec is one of sandbox_execs.
 */
e2b_handler e2b_process_find;
typedef void e2b_process_found(struct e2b_request *q, struct sandbox *s, const json_t *exec);
e2b_process_found e2b_process_attach, e2b_process_feed, e2b_process_close_stdin, e2b_process_kill,
	e2b_process_update;
/* Is this command cloche's own (a kernel), hidden from clients? */
bool e2b_is_hidden(const json_t *exec);
uint32_t e2b_exec_id(const json_t *exec);
/* "pty" of the message: the size of a terminal. -1 with e. */
int e2b_pty_size(const json_t *in, uint32_t *ret_rows, uint32_t *ret_cols, struct err *e);

/* ---- files ---- */
/* An EntryInfo in the making (entry.c). */
struct e2b_entry {
	json_t *info;
	char *path, *target; /* target: of a link, or NULL */
	char kind;
	void (*done)(void *arg, struct e2b_entry *entry);
	void *arg;
};
/* EntryInfo without the fields that need another question to the guest. */
json_t *e2b_entry_info(const struct file_info *f);
struct e2b_entry *e2b_entry_new(const struct file_info *f);
void e2b_entry_free(struct e2b_entry *entry);
/* Asks for a link's target and the metadata, then calls done, perhaps from within. */
void e2b_entry_complete(struct e2b_request *q, struct e2b_entry *entry,
			void (*done)(void *arg, struct e2b_entry *entry), void *arg);
/* For an answer with a file's info: completes it, answers the request with {"entry":...}. */
void e2b_entry_reply(void *q, const struct answer *a, const struct err *e);

/* Checks the signature of a request for /files and finds its sandbox; false: answered. */
bool e2b_files_signed(struct e2b_request *q);
/* Resolves a path for the user that the request names; NULL after an answer. */
char *e2b_files_path(struct e2b_request *q, const char *path);

/* ---- server streams of RPCs (stream.c) ---- */
/*
 * Envelopes going out, one at a time; a keepalive when nothing was sent for a while; a deadline if the
 * client named one; and a cut when the sandbox is paused or gone. First member of its owner's struct.
 */
struct e2b_stream {
	struct e2b_request *q;
	struct buf out;
	const char *keepalive; /* the message, as text */
	uint64_t keepalive_ms;
	struct loop_timer silence, deadline;
	struct waiter *wait;
	bool begun;
	/* The stream ends before its owner said so: client gone, deadline, sandbox gone. */
	void (*stop)(void *owner);
	struct pump pump; /* of the command or the call that feeds the stream */
};

/*
 * Watches the client and the sandbox. deadline_ms 0: none. stop is set by the owner, called at most
 * once, and releases the source of the stream; after it the stream answers by itself.
 */
void e2b_stream_open(struct e2b_stream *t, struct sandbox *s, const char *keepalive,
		     uint64_t deadline_ms);
/* Takes the message over. */
void e2b_stream_send(struct e2b_stream *t, json_t *message);
/* The last envelope; the exchange is over and the stream must not be used any more. */
void e2b_stream_end(struct e2b_stream *t, enum connect_code code, const char *message);
/* The source has failed: sends the error in the last envelope, or cuts if the sandbox is gone. */
void e2b_stream_fail(struct e2b_stream *t, const struct err *e);
/* Frees what the stream holds; for the owner's end. */
void e2b_stream_done(struct e2b_stream *t);
/*
 * What is left of the time in the header Connect-Timeout-Ms, counted from the arrival of the request; 0:
 * no limit; -1 after an answer. A command ends after command_ms and the stream after stream_ms, both a
 * little early, so that the client gets the answer before its own clock says the same.
 */
struct e2b_deadline {
	uint64_t command_ms, stream_ms;
};
int e2b_stream_deadline(struct e2b_request *q, struct e2b_deadline *ret);
