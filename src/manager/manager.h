/*
 * The manager knows which sandboxes exist, their owners, states and expiry times. It runs in the
 * front. It asks the broker (wire/ipc.h) for privileged work, talks to the guests (link.h), keeps state
 * in SQLite (store/) and answers the doors (api/). A function that takes time reports through a
 * callback, which is never called before the function has returned.
 */
#pragma once

#include "base/base.h"
#include "auth/auth.h"
#include "base/loop.h"
#include "manager/link.h"
#include "model/result.h"
#include "model/spec.h"
#include "wire/ipc.h"

#include <jansson.h>

struct manager;
struct sandbox;

enum sandbox_state {
	STATE_CREATING,
	STATE_CREATED,
	STATE_STARTING,
	STATE_RUNNING,
	STATE_PAUSED,
	STATE_STOPPED,
	STATE_UNREACHABLE, /* it runs, but its guest does not answer; its TTL or its owner decides */
	STATE_FAILED,
	STATE_DESTROYED,
	STATE_COUNT,
};

struct create_options {
	struct sandbox_spec spec; /* finished; limits, root, image, require ...; taken over */
	char name[IPC_NAME];
	char door[8];	       /* "rest" "e2b" "mcp" */
	json_t *metadata;      /* object of strings, or NULL; taken over */
	struct list env;       /* K=V for every command; taken over */
	struct list services;  /* lines for a shell that run all the time; taken over */
	char services_user[8]; /* whose they are; "": the sandbox's own */
	struct list publish;   /* [ADDRESS:]PORT:PORT (net/publish.h); taken over */
	struct list
		placeholders; /* NAME=TEXT, of spec.secrets, which has names only; the manager's own */
	json_t *door_data;    /* private data of its door: stored, never shown; taken over */
	uint64_t ttl_ms, idle_ms; /* 0: never ends by age, by idleness */
	bool pause_on_timeout, auto_resume;
	bool pause_when_idle; /* idleness only; its age still ends it, paused or not */
	bool transient;	      /* of one /v1/run: not stored, not listed, ends with the daemon */
	uint8_t warm_host[WARM_KINDS]; /* not 0: a warm host with so many lanes (warm/warm.h) */
	bool wants_vm; /* its trust level would rather have a virtual machine (auth/trust.h) */
	char agent[IPC_NAME];	/* the registered agent that runs in it, or "" */
	char agent_uid[IPC_ID]; /* which registration of that name it is */
	char snapshot[IPC_ID];
	char image_id[IPC_IMAGE_ID]; /* of spec.image, once it is resolved (manager_choose_image) */
	bool keeps_user;	     /* the image's USER does not count */
	bool knows_origin; /* the manager's own: whether the snapshot brings an image is known */
	struct ipc_volume volumes[IPC_VOLUMES];
	uint32_t volume_count;
};

void create_options_init(struct create_options *o, const struct manager *m);
/* The same for a caller: the defaults are lowered to the ceilings of the caller. */
void create_options_for(struct create_options *o, const struct manager *m,
			const struct caller *who);
/* Checks the times that a client asked for. Under a ceiling, 0 (never) is too much. */
int manager_times_check(const struct manager *m, const uint64_t *ttl_ms, const uint64_t *idle_ms,
			struct err *e);
void create_options_done(struct create_options *o);

/* s NULL: it failed, e says why. */
typedef void (*sandbox_done)(void *arg, struct sandbox *s, const struct err *e);
/* value is the callback's to free. */
typedef void (*json_done)(void *arg, json_t *value, const struct err *e);

/* ---- what exists ---- */
void manager_create(struct manager *m, const struct caller *who, struct create_options *o,
		    sandbox_done done, void *arg);
/* NULL and ERR_NOT_FOUND both for an unknown id and for a sandbox of another token (rule 28). */
struct sandbox *manager_find(struct manager *m, const struct caller *who, const char *id,
			     struct err *e);
/* {"sandboxes":[...],"cursor":...}: filtered by state name and metadata "k=v" list, oldest first. */
json_t *manager_list(struct manager *m, const struct caller *who, const char *state,
		     const struct list *metadata, size_t limit, const char *cursor, struct err *e);
json_t *sandbox_describe(const struct sandbox *s);
/* RFC 3339; 0: null. */
json_t *time_json(uint64_t ms);

const char *sandbox_id(const struct sandbox *s);
enum sandbox_state sandbox_state(const struct sandbox *s);
const struct sandbox_spec *sandbox_spec(const struct sandbox *s);
const json_t *sandbox_metadata(const struct sandbox *s);
const char *state_name(enum sandbox_state s);
/* NULL if there is none. Setting takes the data over and stores it. */
const json_t *sandbox_door_data(const struct sandbox *s);
/* Takes data. -1: it could not be stored, and the old data stays. */
int sandbox_set_door_data(struct sandbox *s, json_t *data, struct err *e);
const char *sandbox_door(const struct sandbox *s);
/* Its name for people, and in an isolated segment; stored with the next change of the sandbox. Cut to IPC_NAME. */
void sandbox_set_name(struct sandbox *s, const char *name);
/* The agent that runs in it, or "". */
const char *sandbox_agent(const struct sandbox *s);
const char *sandbox_agent_uid(const struct sandbox *s);
/* The id of its token; "": the operator. */
const char *sandbox_owner(const struct sandbox *s);
/* Created by the same token; the right to see all sandboxes does not count. */
bool sandbox_is_owned_by(const struct sandbox *s, const struct caller *who);
uint64_t sandbox_started_ms(const struct sandbox *s); /* unix */
uint64_t sandbox_expires_ms(const struct sandbox *s); /* unix; 0: never */

/* For doors with keys of their own (access tokens, signed addresses): any owner. NULL: unknown. */
struct sandbox *manager_find_any(struct manager *m, const char *id);
/* The request showed a key of the door: it counts as one of the owner's. The address stays. */
void sandbox_act_as_owner(const struct sandbox *s, struct caller *who);
/* Calls for each sandbox of this caller (NULL: of all), oldest first, until the callback returns false. */
void manager_each(struct manager *m, const struct caller *who,
		  bool (*call)(void *arg, struct sandbox *s), void *arg);

/* ---- states ---- */
/* who: the caller of this request, for the audit and the ceilings; copied. NULL: the daemon itself. */
void sandbox_destroy(struct sandbox *s, const struct caller *who, sandbox_done done,
		     void *arg); /* idempotent */
void sandbox_pause(struct sandbox *s, const struct caller *who, sandbox_done done, void *arg);
void sandbox_resume(struct sandbox *s, const struct caller *who, sandbox_done done, void *arg);
void sandbox_stop(struct sandbox *s, const struct caller *who, sandbox_done done,
		  void *arg); /* processes end, files are kept (a snapshot of its own) */
void sandbox_start(struct sandbox *s, const struct caller *who, sandbox_done done,
		   void *arg); /* again, from those files */
/* Ends the sandbox as if one of its timers had. */
void sandbox_expire(struct sandbox *s, const char *why);
/* Calls done once the sandbox runs and has a link. A paused one is resumed if auto_resume is set, else
 * ERR_CONFLICT. Marks the sandbox as used. */
void sandbox_wake(struct sandbox *s, const struct caller *who, sandbox_done done, void *arg);
void manager_destroy_all(struct manager *m, const struct caller *who,
			 void (*done)(void *arg, size_t count), void *arg);
/* limits within the caller's ceiling; ttl from now; metadata is replaced as a whole. */
struct sandbox_change {
	bool has_limits, has_ttl, has_idle, has_metadata;
	struct limits limits;
	uint64_t ttl_ms, idle_ms;
	json_t *metadata; /* borrowed */
};
void sandbox_change(struct sandbox *s, const struct caller *who, const struct sandbox_change *c,
		    sandbox_done done, void *arg);
/* Replaces its network by that of the spec, whose members are taken. */
void sandbox_set_network(struct sandbox *s, const struct caller *who, struct sandbox_spec *spec,
			 sandbox_done done, void *arg);
/* The most that a sandbox of this caller may have, as enum net. */
int network_most(const struct manager *m, const struct caller *who);
/* As enum net: what it has, after all ceilings. */
int sandbox_network_mode(const struct sandbox *s);
const char *net_mode_name(int mode);
/* Mode, rules, counters and the last attempts. */
json_t *sandbox_describe_network(const struct sandbox *s);
/* Calls for each attempt from now on. */
struct net_follower;
struct net_follower *sandbox_follow_network(struct sandbox *s,
					    void (*call)(void *arg, const json_t *attempt),
					    void *arg);
void sandbox_unfollow_network(struct net_follower *f);
/*
 * Answers a question of network mode `ask`, by its number; for this one time. -1: it is not open, and done is not
 * called.
 */
int sandbox_answer_question(struct sandbox *s, uint64_t number, bool allow, json_done done,
			    void *arg, struct err *e);
/* call is called for each state that the sandbox enters, until it is destroyed or unwaited. */
struct waiter;
struct waiter *sandbox_wait(struct sandbox *s, void (*call)(void *arg, struct sandbox *s),
			    void *arg);
void sandbox_unwait(struct waiter *w);

/* ---- published ports ---- */
const struct list *sandbox_publish(const struct sandbox *s);
/* A listening socket of the host for one of them, which is the callback's; or e. */
typedef void (*publish_done)(void *arg, struct sandbox *s, int fd, const struct err *e);
/* -1: the text is wrong, and done is not called. */
int sandbox_publish_port(struct sandbox *s, const char *text, publish_done done, void *arg,
			 struct err *e);

/* ---- snapshots ---- */
void sandbox_snapshot(struct sandbox *s, const struct caller *who, const char *name, json_done done,
		      void *arg);
/* Its files as they are now, for the manager's caller only: value is a snapshot that nobody sees. */
void sandbox_snapshot_aside(struct sandbox *s, const struct caller *who, json_done done, void *arg);
/* As sandbox_describe_network, once everything up to now is known. */
void sandbox_network(struct sandbox *s, json_done done, void *arg);
void sandbox_fork(struct sandbox *s, const struct caller *who, size_t count, json_done done,
		  void *arg); /* {"sandboxes":[...]} */
void manager_snapshots(struct manager *m, const struct caller *who, json_done done, void *arg);
/* Only the caller's own, even for a caller that sees all: other owners may use the same names. */
void manager_own_snapshots(struct manager *m, const struct caller *who, json_done done, void *arg);
void manager_snapshot_delete(struct manager *m, const struct caller *who, const char *id,
			     json_done done, void *arg);
/* The fd is the callback's. */
typedef void (*fd_done)(void *arg, int fd, const struct ipc_snapshot *info, const struct err *e);
void manager_snapshot_read(struct manager *m, const struct caller *who, const char *id,
			   fd_done done, void *arg);
void manager_snapshot_write(struct manager *m, const struct caller *who, const char *name,
			    fd_done done, void *arg);
/* Drops a snapshot that manager_snapshot_write has begun, or sandbox_snapshot_aside made. */
void manager_snapshot_abandon(struct manager *m, const struct ipc_snapshot *info);
void manager_snapshot_keep(struct manager *m, const struct caller *who,
			   const struct ipc_snapshot *info, json_done done, void *arg);

/* ---- secrets.c: stored secrets; the caller's own ---- */
struct secret_put {
	struct secret_rule
		rule; /* hosts, header and prefix may be empty: those of before, or the usual */
	const char *value; /* NULL: that of before */
	size_t value_len;
	const char *metadata; /* JSON, or NULL */
	bool is_new;	      /* refused if there is one of this name */
};
void manager_secret_put(struct manager *m, const struct caller *who, const struct secret_put *put,
			json_done done, void *arg);
/* By name or id. */
void manager_secret_delete(struct manager *m, const struct caller *who, const char *name,
			   json_done done, void *arg);
/* name NULL: {"secrets":[...]}, with those that the operator's settings let this caller use. */
void manager_secrets(struct manager *m, const struct caller *who, const char *name, json_done done,
		     void *arg);

/* ---- volumes.c: the operator's, and the caller's own ---- */
struct volume_wish {
	const char *name, *from; /* from: begin as a copy of this one; or NULL */
	uint64_t bytes;
};
void manager_volume_make(struct manager *m, const struct caller *who, const struct volume_wish *w,
			 json_done done, void *arg);
/* what: a name or an id. Refused while a sandbox has it. */
void manager_volume_delete(struct manager *m, const struct caller *who, const char *what,
			   json_done done, void *arg);
/* what NULL: {"volumes":[...]}. */
void manager_volumes(struct manager *m, const struct caller *who, const char *what, json_done done,
		     void *arg);

/* ---- images.c: of the daemon's store, and the operator's; names are the caller's own ---- */
struct image_record;
/* Resolves spec.image, once: what it means later does not matter. Sets the user that the image wants. */
int manager_choose_image(struct manager *m, const struct caller *who, struct create_options *o,
			 struct err *e);
bool manager_has_image(const struct manager *m, const struct caller *who, const char *what);
/* NULL: it has none, or there is no such image. */
const struct image_record *manager_record_of(const struct manager *m, const struct caller *who,
					     const char *what);
/* NULL: it is not of the store. Valid until the store changes. */
const struct image_record *manager_image_record(const struct manager *m, const char *id);
json_t *manager_images(const struct manager *m, const struct caller *who);
/* NULL: e says why. */
json_t *manager_image(const struct manager *m, const struct caller *who, const char *what,
		      struct err *e);

/* Work on the store. on_end is the last callback; then what was made can be used. */
struct image_wish {
	enum ipc_image_job job;
	const char *name, *to;	  /* as ipc_image has them; or NULL */
	const struct buf *recipe; /* of BUILD (image/build/recipe.h) */
};
struct image_said;
struct image_work_ops {
	/* The fd, or -1, is the callback's. It may stop the work. */
	void (*on_said)(void *arg, const struct image_said *said, int fd);
	void (*on_end)(void *arg, const struct err *e);
};
struct image_work;
struct image_work *manager_image_work(struct manager *m, const struct caller *who,
				      const struct image_wish *wish,
				      const struct image_work_ops *ops, void *arg);
/* No more callbacks; what is not finished is given up. Before on_end only; accepts NULL. */
void image_work_stop(struct image_work *w);

/* ---- watching ---- */
void sandbox_stats(struct sandbox *s, json_done done, void *arg); /* with "history" */
void manager_stats(struct manager *m, const struct caller *who, json_done done, void *arg);
void sandbox_health(struct sandbox *s, json_done done, void *arg);
struct subscription;
/* Names the count that the numbers of events belong to; another one: they began anew. */
const char *manager_epoch(const struct manager *m);
/* Events of this caller's sandboxes: {"seq","epoch","time","type","sandbox",...}. */
struct subscription *manager_subscribe(struct manager *m, const struct caller *who,
				       uint64_t from_seq,
				       void (*call)(void *arg, const json_t *event), void *arg);
void manager_unsubscribe(struct subscription *s);

/* ---- commands (exec.c) ---- */
struct exec; /* one attachment to a command */

enum warm_kind { WARM_NOT, WARM_COMMAND, WARM_PYTHON, WARM_NODE }; /* 1 + enum guest_run */

#define EXEC_MAX_ARGS 16384 /* of argv and of env, each */
struct exec_request {
	struct list argv;  /* or: */
	const char *shell; /* one line for a shell */
	struct list env;
	const char *cwd, *user, *tag, *session; /* NULL: default */
	uint64_t timeout_ms;			/* 0: none */
	bool tty, background, keep, no_stdin, login;
	bool preforks;	  /* the command makes copies of itself (guest/exec/prefork.c) */
	uint32_t prefork; /* not 0: run in a copy of this prefork; EAGAIN: no copy can be made */
	bool snippet; /* argv: python3, a file, arguments; may run in a copy of an interpreter */
	const char *
		file; /* the file of the snippet, in a directory of its own; removed some time after the end */
	enum warm_kind warm; /* run in a warm host */
	const char *code;    /* as G_RUN has it; Python: argv[0] is the script's path */
	size_t code_len;
	bool hold; /* warm, exec_capture only: its files can be read until capture_drop */
	uint32_t rows, cols;
	/* exec_capture only: */
	uint64_t output_bytes; /* kept of each stream; 0: as the sandbox's limits say */
	const char *input;     /* copied; NULL or empty: no standard input */
	size_t input_len;
	json_t *input_text; /* not NULL: input is this string's, and is not copied */
	bool base64;	    /* the record has output as base64 */
	const char *note;   /* for the record, or NULL */
};

/* All but on_error may be NULL; without on_output the output is dropped. */
struct exec_ops {
	void (*on_start)(void *arg, uint32_t eid, uint32_t pid);
	/* kind 1 stdout (or the terminal), 2 stderr. Call exec_credit when consumed. */
	void (*on_output)(void *arg, int kind, uint64_t seq, const char *bytes, size_t len);
	void (*on_exit)(void *arg, const struct outcome *x); /* the last callback */
	void (*on_error)(void *arg, const struct err *e);    /* the last callback */
	void (*on_room)(void *arg);			     /* exec_push has room again */
};

/* The longest timeout of a command for this caller, by the operator's and its own ceiling; 0: no bound. */
uint64_t exec_timeout_most(const struct manager *m, const struct caller *who);
struct exec *exec_start(struct sandbox *s, const struct caller *who, const struct exec_request *r,
			const struct exec_ops *ops, void *arg);
struct exec *exec_attach(struct sandbox *s, uint32_t eid, uint64_t from_seq,
			 const struct exec_ops *ops, void *arg);
/* Sends as much input as there is room for; returns the number of bytes sent. on_room: send more. */
size_t exec_push(struct exec *x, const void *bytes, size_t len);
/* Input that is sent as the guest takes it, then closed. Call exec_feed in on_start and on_room. */
struct exec_source {
	const char *bytes;
	size_t len;
	bool open;
};
void exec_feed(struct exec *x, struct exec_source *in);
/* The end of the command is for others: the guest keeps what it knows of it. */
void exec_leave_unread(struct exec *x);
/* exec: a struct exec, so that the function fits struct pump. */
void exec_credit(void *exec, size_t len);
/* Its end is not acknowledged: the guest keeps the command and its output after it. */
void exec_retain(struct exec *x);
/* From on_start on: why the command could not be executed, or 0. */
int exec_errno(const struct exec *x);
/* No more callbacks. A command that was started without keep is killed. */
void exec_detach(struct exec *x);
/* By id, without an attachment. */
void sandbox_signal(struct sandbox *s, uint32_t eid, int sig, bool tree, json_done done, void *arg);
void sandbox_resize(struct sandbox *s, uint32_t eid, uint32_t rows, uint32_t cols, json_done done,
		    void *arg);
/* bytes: not copied; must live until done. */
void sandbox_input(struct sandbox *s, uint32_t eid, const void *bytes, size_t len, bool close,
		   json_done done, void *arg);
/* Adds the members that say how a command ended; NULL: it is still running. */
void outcome_describe(json_t *object, const struct outcome *o);
void sandbox_execs(struct sandbox *s, json_done done, void *arg); /* array of exec objects */

/*
 * Runs a command to its end and captures its output. From done on the run belongs to the caller, which
 * prints or changes capture_result() and then calls capture_drop(). NULL: e says why there is no run. A
 * warm refusal (warm_is_refusal) is an error, too.
 */
struct capture_run;
typedef void (*capture_done)(void *arg, struct capture_run *c, const struct err *e);
struct capture_run *exec_capture(struct sandbox *s, const struct caller *who,
				 const struct exec_request *r, capture_done done, void *arg);
struct result *capture_result(struct capture_run *c);
/* The sandbox that the command is in and, if that is a warm host, its number there (else 0). */
struct sandbox *capture_place(const struct capture_run *c, uint32_t *ret_inside);
/* What it has printed so far, stdout before stderr; before done only. */
void capture_peek(const struct capture_run *c,
		  void (*add)(void *arg, const char *bytes, size_t len), void *arg);
/* At any time: the client went away, or the record is no longer needed. Accepts NULL. */
void capture_drop(struct capture_run *c);

/* ---- warm sandboxes (warm/hosts.c) ---- */
/*
 * The warm host of this caller for this image and these limits, in which commands with `warm` set can
 * run at once. NULL: there is none yet, and *ret_why says why in a few words (NULL: warm runs are
 * turned off); the host is being made if it may be.
 */
struct sandbox *manager_warm_host(struct manager *m, const struct caller *who,
				  const struct create_options *o, const char **ret_why);
/* The warm host refused a run (warm_is_refusal). */
void manager_warm_host_refused(struct manager *m, const struct caller *who,
			       const struct create_options *o, const struct err *e);
/* Can a warm host (with any image and limits) serve this request, and may this caller have it? */
bool manager_warm_host_suits(struct manager *m, const struct caller *who,
			     const struct create_options *o);
/* An error that means: nothing has run, run the command cold. */
bool warm_is_refusal(const struct err *e);

/*
 * ---- raw guest calls (wire/guest.h), for calls/. Wake the sandbox first. Never NULL: a sandbox that is
 * not running is an error in the callback ----
 */
struct call *sandbox_call(struct sandbox *s, uint8_t type, const void *payload, size_t len,
			  const struct call_ops *ops, void *arg);
/* Keeps the memory of a sandbox beyond its end; each hold needs one release. */
struct sandbox *sandbox_hold(struct sandbox *s);
void sandbox_release(struct sandbox *s);

/* ---- counters for /metrics ---- */
#define MANAGER_BUCKETS 12
extern const double manager_bucket_ms[MANAGER_BUCKETS]; /* upper bounds; the last is +Inf, as 0 */

struct manager_histogram {
	uint64_t buckets[MANAGER_BUCKETS]; /* not cumulative */
	uint64_t count;
	double sum_ms;
};

struct manager_metrics {
	uint64_t by_state[STATE_COUNT];	   /* now; without the pool */
	uint64_t pooled, runs, warm_hosts; /* now */
	uint64_t created, destroyed, failed, boots, boot_retries, boot_failures;
	uint64_t pool_hits, pool_misses;
	uint64_t execs, execs_failed, links_lost, audit_refusals;
	uint64_t denials[4]; /* syscall, connect, resolve, limit */
	uint64_t net_tx_bytes, net_rx_bytes, net_connections, net_denied;
	uint64_t alerts; /* tenants whose denials were too many in a minute */
	struct manager_histogram create_ms, exec_ms;
};
const struct manager_metrics *manager_metrics(const struct manager *m);

/* ---- for the front ---- */
struct audit;
struct broker;
struct config;
struct store;

/* All of them outlive the manager. */
struct manager_parts {
	struct loop *loop;
	struct broker *broker;
	struct audit *audit; /* NULL: nothing is audited (tests) */
	struct store *store; /* NULL: nothing is kept (tests) */
	const struct config *config;
	void (*log)(const char *text); /* messages for the operator; may be NULL */
	void (*on_ready)(void *arg);   /* called once all sandboxes are known; may be NULL */
	void *arg;
};
struct manager *manager_new(const struct manager_parts *parts);
/* Links are closed; sandboxes keep running. */
void manager_free(struct manager *m);
void manager_set_config(struct manager *m, const struct config *config);
/* The operator, and tokens with the scope admin. */
bool caller_sees_all(const struct caller *who);
/* What tenants share; made and freed with the manager. */
struct shares *manager_shares(struct manager *m);
/* IPC_ADOPTED, IPC_FOREIGN, IPC_READY and IPC_DIED; takes the fd over. */
void manager_news(struct manager *m, const struct ipc *news, int fd);
/* After this nothing new is made; what exists goes on. */
void manager_drain(struct manager *m);
/* Closes all links, so that nothing which still happens here reaches a sandbox: commands go on without us (rule 22). */
void manager_let_go(struct manager *m);
