/*
 * Declarations that the files of the manager share.
 *
 * Theory of operation. Every change of a sandbox is a job. At most one job of a sandbox is current;
 * the others wait in a queue, which only a destroy may jump. A job is audited, then begun. It
 * continues in callbacks of the broker and the guest and ends in its own callback, which always comes
 * from the loop. When a callback finds that its job is no longer current (the sandbox is being
 * destroyed), it ends the job and does nothing else. Two tables in state.c say which job may begin in
 * which state, and which party may move a sandbox from one state to another.
 *
 * Memory: jobs, commands and open broker requests hold the sandbox. A sandbox is freed once it is out
 * of the manager's tables and has no holds left.
 */
#pragma once

#include "base/base.h"
#include "audit/audit.h"
#include "auth/buckets.h"
#include "auth/shares.h"

#include "image/listing.h"
#include "image/make/job.h"
#include "manager/broker.h"
#include "manager/manager.h"
#include "model/variables.h"
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
	JOB_NETWORK,
	JOB_CONNECT, /* a new link in place of a lost one */
	JOB_DESTROY,
	JOB_COUNT,
};

/* What a change of a sandbox may change. */
struct settings {
	struct limits limits;
	uint64_t ttl_ms, idle_ms, expires_ms;
	json_t *metadata; /* held */
};

/* Of the secrets that a sandbox is to use. */
struct job_secrets {
	struct list placeholders; /* NAME=TEXT */
	struct list allow;	  /* rules for their hosts */
};

/* The party that moves a sandbox from one state to another. */
enum mover { BY_CLIENT = 1, BY_TIMER = 2, BY_GUEST = 4, BY_BROKER = 8, BY_START = 16 };

struct job {
	enum job_kind kind;
	enum mover by;
	struct caller who; /* BY_CLIENT, unless is_own: the daemon itself */
	bool is_own;
	struct sandbox *s; /* held */
	sandbox_done done; /* or: */
	json_done done_json;
	void *arg;
	json_t *value; /* for done_json */
	struct err err;
	bool begun, waits;
	bool ends; /* JOB_PAUSE: if the pause fails, the sandbox is destroyed */
	unsigned tries, connects, open;
	int64_t begun_ns;
	struct ipc_snapshot snapshot;
	struct sandbox_change change;
	struct sandbox_spec
		network; /* JOB_NETWORK: what concerns the network; the old one afterwards */
	struct job_secrets secrets; /* as looked up; the old ones afterwards */
	struct settings old; /* JOB_CHANGE, JOB_RESUME, JOB_START: what counts if the job fails */
	/* The callback for the answer that the job waits for; the answer is set during the callback: */
	void (*step)(struct job *j, const struct err *e);
	const struct ipc *reply;
	int fd;
	struct loop_timer timer;
	void (*again)(struct job *j); /* called by the timer */
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
	struct create_options o;
	enum sandbox_state state;
	enum sandbox_state end_state; /* the state after a destroy */
	char reason[256];	      /* why it failed or ended, or "" */
	struct ipc_booted booted;
	struct link *link;
	unsigned holds, active; /* active: open calls and running commands */
	unsigned idle_execs;	/* running commands that do not count as use (prefork.h) */
	bool known;		/* in the manager's tables */
	bool pooled, counted, booting;
	bool refused; /* the request cannot be met: the sandbox is neither listed nor stored */
	unsigned pool_round;
	uint64_t created_ms, started_ms, expires_ms; /* unix */
	int64_t used_ns, asked_ns;
	unsigned usage_asked; /* questions after its usage that are open */
	double setup_ms;
	uint64_t memory, disk;		  /* of its limits: as counted (admission.c) */
	uint64_t oom_kills, pids_refused; /* as last read */
	char kept[IPC_ID];		  /* STATE_STOPPED: the snapshot of its files */
	struct job *current, *queue, **queue_end;
	struct loop_task next_task;
	struct loop_timer ttl, idle, acking, reach; /* reach: STATE_UNREACHABLE, the next try */
	unsigned reach_tries;
	uint32_t acks[16], ack_count;
	struct waiter *waiters;
	struct history *history;
	struct snippets *snippets;	 /* snippets.c, or NULL */
	struct sandbox_net *net;	 /* network.c, or NULL */
	struct net_questions *questions; /* questions.c, or NULL */
	struct list secret_allow;	 /* rules for the hosts of its secrets */
	json_t *layers;
	struct sandbox *next, **back; /* all, oldest first */
	struct sandbox *next_same;    /* in its bucket */
	struct sandbox *next_ended;   /* among those that ended */
	int64_t ended_ns;
};

#define SANDBOX_BUCKETS 8192
#define POOL_KINDS 2 /* [0] read-only root, [1] overlay */

struct pool {
	struct sandbox **ready;
	size_t room; /* of ready */
	uint32_t count, wanted, booting;
};

struct manager {
	struct manager_parts p;
	bool ready, draining;
	bool was_told;	     /* of all sandboxes that the broker has */
	unsigned recovering; /* open questions about rows; with 0 the manager is ready */
	struct sandbox *table[SANDBOX_BUCKETS];
	struct sandbox *first, **last;
	struct sandbox *ended, **ended_end;
	struct {
		struct boot_queue
			*queues; /* of the tokens that wait, in the order of their turns */
		unsigned waiting, booting; /* booting: with the broker */
		struct loop_timer pause;
	} admission;
	uint32_t ended_count;
	struct pool pools[POOL_KINDS];
	unsigned pool_round;	       /* members of earlier rounds are destroyed */
	struct host_entry *warm_hosts; /* hosts.c */
	uint64_t pool_wait_ms;
	uint64_t last_created_ms;
	struct image_listing images;
	struct ipc_signer signer; /* its exchange key, or why nothing can be stored */
	struct loop_timer pool_timer, sample_timer, ended_timer;
	char epoch[IPC_ID]; /* of the numbers of events, which begin anew with each front */
	struct sandbox_event *events[4096];
	uint64_t next_seq;
	struct subscription *subscriptions;
	json_t *layers; /* the last one made; shared by sandboxes with the same layers */
	struct manager_metrics metrics;
	struct shares *shares;	/* what tenants share */
	struct buckets *alerts; /* denials by tenant */
};

/* ---- warm/hosts.c ---- */
/* A warm host: a sandbox that no client asked for, in which warm sandboxes run. */
bool options_are_warm_host(const struct create_options *o);
/* Only image, root and limits may differ from a sandbox that is made in advance. */
bool options_are_plain(const struct create_options *o);
/* The layers of a warm run: its own, and those that are reused from earlier runs. */
void warm_layers(const struct sandbox *s, layer_set proven, int landlock_abi, struct result *r);
/* The number of warm runs of this token; each counts as a sandbox of the token. */
uint32_t warm_running(struct manager *m, const char *token);
/* The settings changed: all warm hosts are retired, since images and preloaded modules may differ. */
void warm_change(struct manager *m);
/* Frees the records of warm hosts; the hosts themselves live on. */
void warm_stop(struct manager *m);

/* ---- manager.c ---- */
void histogram_add(struct manager_histogram *h, double ms);
struct sandbox *sandbox_new(struct manager *m, const char *id);
void sandbox_add(struct sandbox *s);	/* adds it to the tables as the newest */
void sandbox_remove(struct sandbox *s); /* removes it from the tables */
struct sandbox *manager_lookup(struct manager *m, const char *id);
void manager_log(struct manager *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void id_make(char ret[IPC_ID]);
/* Calls done from the loop, with an error or (e NULL) without. */
void answer_later(struct manager *m, sandbox_done done, void *arg, const struct err *e);
void answer_json_later(struct manager *m, json_done done, void *arg, const struct err *e);

/* ---- record.c: as JSON ---- */
/* null as well if it is empty, or a stranger's and no UTF-8. */
json_t *text_or_null(const char *text);
/*
 * Writes the row of the sandbox, with this state. A change is saved before it takes effect: if that fails, the
 * caller gets the error and nothing has changed (rule 32). Transient and pooled sandboxes are not stored.
 */
int sandbox_save_as(struct sandbox *s, enum sandbox_state state, struct err *e);
/* The same with the state that it has. */
int sandbox_save(struct sandbox *s, struct err *e);
/* A change that was saved did not take effect; the row becomes as before. A failure is only logged. */
void sandbox_save_back(struct sandbox *s);
/* Removes the row, before the sandbox itself is removed. */
int sandbox_forget(struct sandbox *s, struct err *e);
/* Fills a new sandbox from its row; -1: the row is malformed. */
int sandbox_load(struct sandbox *s, const struct store_row *row, struct err *e);
/* The same from the broker's copy of the row; the owner is set already. */
int sandbox_load_text(struct sandbox *s, const char *text, struct err *e);
/* Gives the broker a copy of the row. */
void row_hand_over(struct sandbox *s);
void layers_fill(const struct sandbox *s, struct result *r);
/* The options of a fork: those of its origin, without the name and the door data. */
void create_options_inherit(struct create_options *o, const struct sandbox *from);

/* ---- state.c ---- */
/* STATE_COUNT: no state has this name. */
enum sandbox_state state_find(const char *name);
/* False: this party may not move the sandbox from its state to that one. */
bool sandbox_move(struct sandbox *s, enum sandbox_state to, enum mover by);
struct create_done {
	sandbox_done call;
	void *arg;
};
/* manager_create by who, for another owner. */
void manager_create_for(struct manager *m, const struct caller *owner, const struct caller *who,
			struct create_options *o, struct create_done done);
struct job *job_new(struct sandbox *s, enum job_kind kind, enum mover by);
/* For this caller; NULL: for the daemon itself. */
struct job *job_new_for(struct sandbox *s, enum job_kind kind, const struct caller *who);
void job_submit(struct job *j);
void sandbox_run_queue(void *sandbox);
bool job_is_current(const struct job *j);
/* Ends a job; e NULL: it succeeded. The next job of the queue begins. */
void job_end(struct job *j, const struct err *e);
void job_submit_new(struct sandbox *s, enum job_kind kind, const struct caller *who,
		    sandbox_done done, void *arg);
/*
 * Asks the broker, or configures the guest, and continues with the step. The step is called only while
 * the job is current; otherwise the job ends. The broker's fd is closed unless the step takes it.
 */
typedef void (*job_step)(struct job *j, const struct err *e);
void job_ask(struct job *j, const struct ipc *m, job_step step);
void job_ask_with(struct job *j, const struct ipc *m, int fd, job_step step);
/* Asks with a message of this type and the sandbox's id. */
void job_ask_for(struct job *j, uint32_t type, job_step step);
void job_configure(struct job *j, uint64_t ttl_ms, job_step step);
/* Calls again after a while if the job is still current; else the job ends. */
void job_retry(struct job *j, uint64_t after_ms, void (*again)(struct job *j));
void audit_decision(struct sandbox *s, const struct caller *who, const char *what, const char *why,
		    void (*done)(void *arg, const struct err *e), void *arg);

/* Writes an audit entry (what, target, why) for this caller; NULL: for the daemon itself. */
void audit_caller(struct manager *m, const struct caller *who, const struct audit_entry *given,
		  void (*done)(void *arg, const struct err *e), void *arg);
/* Counts a request that is refused because the audit entry could not be written; sets the error. */
void audit_refused(struct manager *m, const struct err *why, struct err *ret);

/* ---- images.c ---- */
/* IPC_IMAGES */
void images_news(struct manager *m, int fd);
/* What does not hold of the image's USER; NULL: nothing. */
const char *images_note(const struct sandbox *s);
/*
 * Files of a snapshot belong to its image: false if that is known. Else asks, and the options are taken over and
 * come back through manager_create_for.
 */
bool images_ask_origin(struct manager *m, const struct caller *owner, const struct caller *who,
		       struct create_options *o, struct create_done done);

/* ---- secrets.c ---- */
void secrets_news(struct manager *m, const struct ipc_signer *news);

/* ---- secret_use.c ---- */
/* Fills in j->secrets. The names stay where they are until the step. */
void secrets_look_up(struct job *j, const struct list *names, job_step step);
/* j->secrets become those of the sandbox, whose own are there afterwards. */
void secrets_swap(struct job *j);
/* Has the broker give them to egress; the network follows. */
void secrets_give(struct job *j, job_step step);
/* The same after a change that failed; nobody waits. */
void secrets_give_back(struct job *j);
void job_secrets_done(struct job_secrets *s);
/* The names among them: all but headers. */
json_t *secrets_names(const struct list *texts);

/* ---- destroy.c ---- */
void destroy_begin(struct job *j);
void sandbox_end(struct sandbox *s, enum sandbox_state state, enum mover by, const char *reason);
/* A boot was answered: a destroy that waited for the answer continues. */
void destroy_go_on(struct sandbox *s);

/* ---- admission.c ---- */
void admission_start(struct manager *m);
void admission_change(struct manager *m); /* of the configuration */
void admission_stop(struct manager *m);
/* May this caller have one more sandbox with these limits? */
int quota_check(struct manager *m, const struct caller *who, const struct limits *l, struct err *e);
/* May the limits of the sandbox become these? */
int quota_check_change(struct sandbox *s, const struct caller *who, const struct limits *l,
		       struct err *e);
void quota_add(struct sandbox *s);
void quota_recount(struct sandbox *s); /* its limits have changed */
void quota_remove(struct sandbox *s);
/* Is there a place in the queue for a boot of this caller? */
int admission_check(struct manager *m, const struct caller *who, struct err *e);
/* Calls boot_now when it is the owner's turn. */
void admission_add(struct job *j);
/* The broker has answered a boot. */
void admission_booted(struct manager *m);
/* The host was too busy for the boot: it waits again. False: it failed for another reason, or for too long. */
bool admission_again(struct job *j, const struct err *e);

/* ---- create.c ---- */
/* Asks the broker for a boot. */
void boot_now(struct job *j);
void create_begin(struct job *j);
void start_begin(struct job *j);
/* A sandbox could not be created or started. */
void boot_failed(struct job *j, const struct err *e);
void connect_begin(struct job *j);
void sandbox_open_link(struct sandbox *s, int fd, uint64_t generation);
void sandbox_close_link(struct sandbox *s);
/* Sends G_CONFIGURE with the current settings; ops as in link.h. */
void sandbox_configure(struct sandbox *s, uint64_t ttl_ms, const struct call_ops *ops, void *arg);
/* May this caller create such a sandbox now? */
int create_check(struct manager *m, const struct caller *who, const struct create_options *o,
		 struct err *e);
int limits_check(struct manager *m, const struct caller *who, const struct limits *l,
		 struct err *e);
void fill_boot(const struct sandbox *s, struct ipc_boot *b);

/* ---- network.c ---- */
/* May this caller have a sandbox with this network? */
int network_check(struct manager *m, const struct caller *who, const struct sandbox_spec *spec,
		  struct err *e);
/* Has the broker enforce the rules of its spec; on success the step finds the answer in j->reply. */
void network_bring(struct job *j, job_step step);
/* segment.c: the group and the name in it. */
void segment_fill(const struct sandbox *s, struct ipc_network *ret);
void network_is(struct sandbox *s, int mode, int how);
/* "none" "tproxy" "ports" "lost" */
const char *network_how(const struct sandbox *s);
void network_begin(struct job *j);
void network_news(struct manager *m, const struct ipc *news);
/* Calls back when all attempts and counters up to now are known, or after a second. */
void network_sync(struct sandbox *s, void (*done)(void *arg), void *arg);
/* What it has sent and received. */
void network_usage(const struct sandbox *s, struct ipc_stats *st);
/* What is known of a sandbox's network when a command begins. */
struct network_mark {
	uint64_t seq, tx_bytes, rx_bytes;
};
void network_mark(const struct sandbox *s, struct network_mark *ret);
/* What happened since then becomes part of the record. */
void network_since(struct sandbox *s, const struct network_mark *mark, struct result *r);
/* The guest saw a connection that egress will tell of: not its denial. True: leave it out; else d is made exact. */
bool network_corrects(const struct sandbox *s, struct denial *d);
void network_free(struct sandbox *s);

/* ---- questions.c ---- */
void question_add(struct sandbox *s, const struct egress_record *r);
/* Those that are open. */
json_t *questions_json(const struct sandbox *s);
void questions_free(struct sandbox *s);

/* ---- ceilings.c ---- */
/* Goes through the rows of spec_fields that are limits: the first for NULL, NULL after the last. */
const struct field *limit_field(const struct field *after);
uint64_t limit_value(const struct limits *l, const struct field *f);

/* ---- pool.c ---- */
struct sandbox *pool_take(struct manager *m, const struct create_options *o);
void pool_refill(struct manager *m);
/* A member was taken: refills at once if the pool is low, else when the daemon is idle. */
void pool_taken(struct manager *m);
/* The configuration changed. */
void pool_change(struct manager *m, const struct config *old);
/* A name may lead to another image now. */
void pool_images_changed(struct manager *m);
void pool_start(struct manager *m);
void pool_stop(struct manager *m);
void pool_adopt(struct manager *m, const struct ipc_booted *b, int fd);
void pool_lost(struct sandbox *s); /* a member died */

/* ---- timers.c ---- */
void timers_init(struct sandbox *s);
void timers_stop(struct sandbox *s);
void sandbox_set_ttl(struct sandbox *s, uint64_t ttl_ms);
/* Sets the timer for the time that is left by the wall clock. */
void sandbox_follow_expiry(struct sandbox *s);
uint64_t sandbox_ttl_left_ms(const struct sandbox *s); /* for the guest; 0: none */
/* Does the TTL stop while the sandbox is paused? */
bool sandbox_pause_stops_clock(const struct sandbox *s);
void sandbox_used(struct sandbox *s);
/* Its guest is tried again later, less and less often. */
void sandbox_reach_later(struct sandbox *s);
void sandbox_active(struct sandbox *s, int by);
void ended_add(struct sandbox *s);
void ended_start(struct manager *m);
/* Acknowledges the end of a command; the message is sent along with the next command. */
void ack(struct sandbox *s, uint32_t eid);
void acks_send(void *sandbox);

/* ---- events.c ---- */
void event_add(struct sandbox *s, const char *type, json_t *more);
void event_add_any(struct sandbox *s, const char *type, json_t *more); /* also of runs */
void events_free(struct manager *m);

/* ---- stats.c ---- */
void stats_start(struct manager *m);
/* Reads the answer to G_STATS; returns how many commands run. */
uint32_t usage_read(struct unpack *u, struct ipc_stats *ret);

/* ---- snapshots.c ---- */
void snapshot_begin(struct job *j);
void stop_begin(struct job *j);
/* Unpacks a snapshot (NULL: what its own disk waits with) into the booted sandbox, then calls then; on failure the job ends. */
void restore(struct job *j, const char *snapshot, void (*then)(struct job *j));
void snapshot_drop(struct manager *m, const char *id, const char *owner);
/* Removes what a killed daemon left; brings back sandboxes that are stopped and have no row. */
void snapshots_sweep(struct manager *m);

/* ---- recover.c ---- */
void recover_load(struct manager *m);
/* A stopped sandbox without a row has this snapshot of its files. */
void recover_stopped(struct manager *m, const struct ipc_snapshot *kept);
/* The database is new or rows of it cannot be read: the broker may know of sandboxes that have no row. */
bool rows_are_lost(const struct manager *m);
/* One question fewer is open. */
void recover_step(struct manager *m);

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
	layer_set proven; /* warm: proven by the process of this command */
	int landlock_abi;
	int cannot;	/* why the command could not be executed, or 0 */
	bool detached;	/* the owner has left; freed by the callback that is still due */
	bool answering; /* a callback of the audit or of the broker is due */
	bool exited, background, unacked;
	bool is_idle, is_snippet;
	uint64_t timeout_ms;
	int64_t begun_ns;
	struct outcome exit;
	struct buf request;
	struct buf cold; /* of a snippet: the request for a new process, if no copy can be made */
	char *file;	 /* of a snippet, or NULL */
	struct exec_source source; /* input that the command is fed with from its start on */
	struct loop_timer overdue;
};
/* Reads guest_exit (wire/guest.h) of a command in s; u->bad: it was cut short. */
void exit_read(struct unpack *u, const struct sandbox *s, struct outcome *ret);
/* The command does not keep its sandbox from being idle. */
void exec_leave_idle(struct exec *x);

/* ---- denials.c ---- */
/* Counts denials that egress has told of. */
void denials_told(struct sandbox *s, bool is_lookup, uint64_t count);
/* Reads the answer to G_DENIALS into r->denials. */
void denials_read(struct unpack *u, struct sandbox *s, struct result *r);
/* Adds those limits that were reached, in words. */
void denials_add_limits(struct result *r);
