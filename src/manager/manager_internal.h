/*
 * What the files of the manager share.
 *
 * Theory of operation. Everything that changes a sandbox is a job: at most one at a time is current,
 * others wait in line, and only destroy steps in front. A job is audited, then begun, goes through
 * callbacks of broker and guest, and ends in its own callback, which always comes from the loop. A
 * callback of a job that is no longer current (its sandbox is being destroyed) ends that job and
 * does nothing else. Which job may begin in which state, and who may move a sandbox from which state
 * to which, is said in two tables (state.c).
 *
 * Memory: jobs, commands and open broker requests hold the sandbox; it is freed when it is out of
 * the manager's tables and nobody holds it.
 */
#pragma once

#include "base/base.h"
#include "audit/audit.h"

#include "manager/broker.h"
#include "base/budget.h"
#include "manager/manager.h"
#include "policy/config.h"
#include "provider/can.h"
#include "store/store.h"
#include "wire/pack.h"

enum job_kind {
	JOB_CREATE,
	JOB_WAKE,
	JOB_PAUSE,
	JOB_RESUME,
	JOB_STOP,
	JOB_START,
	JOB_SNAPSHOT,
	JOB_CHANGE,
	JOB_CONNECT, /* a new link in place of a lost one */
	JOB_DESTROY,
	JOB_COUNT,
};

/* Who moves a sandbox from state to state. */
enum mover { BY_CLIENT = 1, BY_TIMER = 2, BY_GUEST = 4, BY_BROKER = 8, BY_START = 16 };

struct job {
	enum job_kind kind;
	enum mover by;
	struct sandbox *s; /* held */
	sandbox_done done; /* or: */
	json_done done_json;
	void *arg;
	json_t *value; /* for done_json */
	struct err err;
	bool begun, waits;
	bool ends; /* JOB_PAUSE: if that fails, the sandbox is destroyed */
	unsigned tries, connects, open;
	int64_t begun_ns;
	struct ipc_snapshot snapshot;
	struct sandbox_change change;
	/* What is called with the answer that it waits for, and that answer, while it is: */
	void (*step)(struct job *j, const struct err *e);
	const struct ipc *reply;
	int fd;
	struct loop_timer timer;
	void (*again)(struct job *j); /* what the timer calls */
	struct loop_task task;
	struct job *next;
};

struct waiter {
	struct sandbox *s;
	void (*call)(void *arg, struct sandbox *s);
	void *arg;
	unsigned round;
	struct waiter *next, **back;
};

struct history; /* stats.c */

struct sandbox {
	struct manager *m;
	char id[IPC_ID];
	struct caller owner;
	struct caller actor; /* who asked last: for the audit */
	struct create_options o;
	enum sandbox_state state;
	enum sandbox_state end_state; /* what a destroy ends in */
	char reason[256];	      /* why it failed or ended, or "" */
	struct ipc_booted booted;
	struct link *link;
	unsigned holds, active; /* active: calls and commands that are going on */
	unsigned parked;	/* commands that go on, and count for nothing (prefork.h) */
	bool known;		/* in the manager's tables */
	bool pooled, counted, booting;
	bool refused; /* what was asked for cannot be had: it is not to be seen, nor remembered */
	unsigned pool_round;
	uint64_t created_ms, started_ms, expires_ms; /* unix */
	int64_t used_ns, asked_ns;
	double setup_ms;
	uint64_t oom_kills, pids_refused; /* as last seen */
	char kept[IPC_ID];		  /* STATE_STOPPED: the snapshot of its files */
	struct job *current, *queue, **queue_end;
	struct loop_task next_task;
	struct loop_timer ttl, idle, acking;
	uint32_t acks[16], ack_count;
	struct waiter *waiters;
	struct history *history;
	struct snippets *snippets; /* snippets.c, or NULL */
	json_t *layers;
	struct sandbox *next, **back; /* all, oldest first */
	struct sandbox *next_same;    /* in its bucket */
	struct sandbox *next_ended;   /* among those that ended */
	int64_t ended_ns;
};

struct token_quota {
	char token[IPC_ID];
	uint32_t count;
	struct token_quota *next;
};

#define SANDBOX_BUCKETS 1024
#define POOL_KINDS 2 /* by enum root_mode */

struct pool {
	struct sandbox *ready[64];
	uint32_t count, wanted, booting;
};

struct manager {
	struct manager_parts p;
	bool ready, draining;
	struct sandbox *table[SANDBOX_BUCKETS];
	struct sandbox *first, **last;
	struct sandbox *ended, **ended_end;
	struct token_quota *quotas;
	uint32_t alive, boots_waiting, ended_count;
	struct pool pools[POOL_KINDS];
	unsigned pool_round;	       /* members of earlier ones are of no use */
	struct host_entry *warm_hosts; /* hosts.c */
	uint64_t pool_wait_ms;
	uint64_t last_created_ms;
	struct loop_timer pool_timer, sample_timer, ended_timer;
	struct sandbox_event *events[4096];
	uint64_t next_seq;
	struct subscription *subscriptions;
	json_t *layers; /* as last made; shared */
	struct manager_metrics metrics;
	struct budget output; /* all that is kept of the output of commands, and waits to be read */
};

/* ---- warm.c ---- */
/* Not a sandbox that somebody asked for, but one whose warm sandboxes are. */
bool options_are_warm_host(const struct create_options *o);
/* Nothing but image, root and limits may differ from a sandbox that is made in advance. */
bool options_are_plain(const struct create_options *o);
/* The layers of a warm run: its own, and what it shares with those before it. */
void warm_layers(const struct sandbox *s, layer_set proven, int landlock_abi, struct result *r);
/* How many runs of this token are in warm sandboxes: they count as its sandboxes. */
uint32_t warm_running(struct manager *m, const char *token);
/* Other settings: what warm hosts are made of, and what they load, may be another thing now. */
void warm_change(struct manager *m);
/* Frees what is known of warm hosts; they themselves live on. */
void warm_stop(struct manager *m);

/* ---- manager.c ---- */
void histogram_add(struct manager_histogram *h, double ms);
struct sandbox *sandbox_new(struct manager *m, const char *id);
void sandbox_add(struct sandbox *s);	/* to the tables, as the newest */
void sandbox_remove(struct sandbox *s); /* from them */
struct sandbox *manager_lookup(struct manager *m, const char *id);
void manager_log(struct manager *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void id_make(char ret[IPC_ID]);
bool caller_sees_all(const struct caller *who);
/* Is there a place for one more? */
int quota_check(struct manager *m, const struct caller *who, struct err *e);
void quota_add(struct sandbox *s);
void quota_remove(struct sandbox *s);
/* A later call of done with an error; for requests that are refused at once. */
void answer_later(struct manager *m, sandbox_done done, void *arg, const struct err *e);
void answer_json_later(struct manager *m, json_done done, void *arg, const struct err *e);

/* ---- record.c: as JSON ---- */
json_t *time_json(uint64_t ms);
/* To the store; failures are logged, transient ones are not stored. */
int sandbox_save(struct sandbox *s, struct err *e);
void sandbox_save_or_log(struct sandbox *s);
void sandbox_forget(struct sandbox *s);
/* Fills a new sandbox from its row; -1 if it makes no sense. */
int sandbox_load(struct sandbox *s, const struct store_row *row, struct err *e);
void layers_fill(const struct sandbox *s, struct result *r);
/* What a fork has of its origin: everything but its name and what its door remembers. */
void create_options_inherit(struct create_options *o, const struct sandbox *from);

/* ---- state.c ---- */
/* STATE_COUNT: no state has this name. */
enum sandbox_state state_find(const char *name);
/* False: this mover may not move it there from where it is. */
bool sandbox_move(struct sandbox *s, enum sandbox_state to, enum mover by);
struct job *job_new(struct sandbox *s, enum job_kind kind, enum mover by);
void job_submit(struct job *j);
void sandbox_run_queue(void *sandbox);
bool job_is_current(const struct job *j);
/* Ends a job; e NULL: it was done. What waits behind it goes on. */
void job_end(struct job *j, const struct err *e);
void sandbox_end(struct sandbox *s, enum sandbox_state state, enum mover by, const char *reason);
/* A boot was answered: a destroy that waited for it goes on. */
void destroy_go_on(struct sandbox *s);
/*
 * Asks the broker, or tells the guest what holds now, and goes on with the step: called while the job is
 * still current; one that is not any more ends by itself. The broker's fd is closed unless it is taken.
 */
typedef void (*job_step)(struct job *j, const struct err *e);
/* Asks with a message of this type and the sandbox's id. */
void job_ask_for(struct job *j, uint32_t type, job_step step);
void job_configure(struct job *j, uint64_t ttl_ms, job_step step);
/* Calls again after a while if the job is still current; else the job ends. */
void job_retry(struct job *j, uint64_t after_ms, void (*again)(struct job *j));
void audit_decision(struct sandbox *s, const char *what, const char *why,
		    void (*done)(void *arg, const struct err *e), void *arg);

/* Writes an entry (what, target, why) in the name of who; NULL: of the daemon itself. */
void audit_caller(struct manager *m, const struct caller *who, const struct audit_entry *given,
		  void (*done)(void *arg, const struct err *e), void *arg);
/* Counts work that is refused since its decision could not be written, and says so. */
void audit_refused(struct manager *m, const struct err *why, struct err *ret);

/* ---- create.c ---- */
void create_begin(struct job *j);
void start_begin(struct job *j);
/* A new sandbox could not be brought up. */
void boot_failed(struct job *j, const struct err *e);
void connect_begin(struct job *j);
void sandbox_open_link(struct sandbox *s, int fd, uint64_t generation);
void sandbox_close_link(struct sandbox *s);
/* G_CONFIGURE with what holds now; on_end as of link.h. */
void sandbox_configure(struct sandbox *s, uint64_t ttl_ms, const struct call_ops *ops, void *arg);
/* May this caller have such a sandbox, now? */
int create_check(struct manager *m, const struct caller *who, const struct create_options *o,
		 struct err *e);
int limits_check(struct manager *m, const struct caller *who, const struct limits *l,
		 struct err *e);
void fill_boot(const struct sandbox *s, struct ipc_boot *b);

/* ---- ceilings.c ---- */
/* Goes through the rows of spec_fields that are limits: the first for NULL, NULL after the last. */
const struct field *limit_field(const struct field *after);
uint64_t limit_value(const struct limits *l, const struct field *f);

/* ---- pool.c ---- */
struct sandbox *pool_take(struct manager *m, const struct create_options *o);
void pool_refill(struct manager *m);
/* After a member was taken: now, or when there is time for it. */
void pool_taken(struct manager *m);
/* The configuration is another now. */
void pool_change(struct manager *m, const struct config *old);
void pool_start(struct manager *m);
void pool_adopt(struct manager *m, const struct ipc_booted *b, int fd);
void pool_lost(struct sandbox *s); /* a member died */

/* ---- timers.c ---- */
void timers_init(struct sandbox *s);
void timers_stop(struct sandbox *s);
void sandbox_set_ttl(struct sandbox *s, uint64_t ttl_ms);
uint64_t sandbox_ttl_left_ms(const struct sandbox *s); /* for the guest; 0: none */
/* While it is paused its time does not run. */
bool sandbox_pause_stops_clock(const struct sandbox *s);
void sandbox_used(struct sandbox *s);
void sandbox_active(struct sandbox *s, int by);
void ended_add(struct sandbox *s);
void ended_start(struct manager *m);
/* The end of a command was taken note of; the guest is told when something else is. */
void ack(struct sandbox *s, uint32_t eid);
void acks_send(void *sandbox);

/* ---- events.c ---- */
void event_add(struct sandbox *s, const char *type, json_t *more);
void events_free(struct manager *m);

/* ---- stats.c ---- */
void stats_start(struct manager *m);
/* Reads the answer to G_STATS; returns how many commands run. */
uint32_t usage_read(struct unpack *u, struct ipc_stats *ret);

/* ---- snapshots.c ---- */
void snapshot_begin(struct job *j);
void stop_begin(struct job *j);
/* Brings a snapshot's files into the booted sandbox, then calls then, or ends the job. */
void restore(struct job *j, const char *snapshot, void (*then)(struct job *j));
void snapshot_drop(struct manager *m, const char *id, const char *owner);
void snapshots_sweep(struct manager *m);

/* ---- recover.c ---- */
void recover_load(struct manager *m);

/* ---- execs.c ---- */
/* A call to the guest. A sandbox that is not running, or has lost its link, is an error in on_end. */
struct call *guest_call(struct sandbox *s, uint8_t type, const void *payload, size_t len,
			const struct call_ops *ops, void *arg);
/*
 * One question, one answer. answer is called once, later: u holds the payload of G_OK, and is empty if e
 * says why there is none. The sandbox is held until then. Takes the bytes of b.
 */
typedef void (*guest_answer)(void *arg, struct sandbox *s, struct unpack *u, const struct err *e);
void guest_ask(struct sandbox *s, uint8_t type, struct buf *b, guest_answer answer, void *arg);

/* ---- exec.c ---- */
struct exec {
	struct sandbox *s; /* held */
	struct call *call;
	const struct exec_ops *ops;
	void *arg;
	uint32_t eid;
	uint8_t type;
	bool warm;
	layer_set proven; /* warm: by this very command's process */
	int landlock_abi;
	bool detached;	/* nobody listens; freed by the callback that is still due */
	bool answering; /* a callback is due: audit or stats */
	bool exited, background, unacked;
	bool is_idle, is_snippet;
	uint64_t timeout_ms;
	int64_t begun_ns;
	struct outcome exit;
	struct buf request;
	struct buf cold;	   /* of a snippet: the request for a process instead of a copy */
	char *file;		   /* of a snippet, or NULL */
	struct exec_source source; /* input that the command is fed with from its start on */
	struct loop_timer overdue;
};
/* guest_exit of wire/guest.h, of a command in s; u->bad says whether it was whole. */
void exit_read(struct unpack *u, const struct sandbox *s, struct outcome *ret);
/* The command does not keep its sandbox from being idle. */
void exec_leave_idle(struct exec *x);

/* ---- denials.c ---- */
/* Reads the answer to G_DENIALS into r->denials. */
void denials_read(struct unpack *u, struct sandbox *s, struct result *r);
/* Adds those limits that were reached, in words. */
void denials_add_limits(struct result *r);
