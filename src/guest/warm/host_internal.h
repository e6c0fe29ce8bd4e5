/* What the files of a warm host share. */
#pragma once

#include "base/loop.h"
#include "guest/warm/host.h"
#include "guest/warm/origin.h"

enum lane_state {
	LANE_MAKING,  /* a warm sandbox is being made */
	LANE_ORDERED, /* a task was ordered from the zygote or the spawner */
	LANE_READY,
	LANE_TAKEN, /* its task serves a request */
	LANE_RESTING, /* the task is dead and left nothing; its warm sandbox is killed in a quiet moment */
	LANE_LEAVING, /* the task is dead, its warm sandbox is dying */
	LANE_BROKEN,
	LANE_ABSENT, /* not needed so far, or any more */
};

struct lane_counts {
	uint64_t oom_kills, pids_refused;
};

/* Memory shared with the spawner, and with a task for a command until its exec. */
struct lane_page {
	pid_t task; /* the last one; 0: none yet */
	pid_t spawner;
	int exec_errno;
};

struct lane {
	struct warm_host *host;
	int index;
	enum warm_host_kind kind;
	enum lane_state state;
	struct lane_process process;
	struct spawner_settings spawner; /* for commands */
	int joins[WARM_JOINS];
	int events[WARM_FILES - WARM_JOINS]; /* of memory, of pids, peak of memory; -1: none */
	struct lane_counts before;	     /* when its task became ready */
	bool has_peak;			     /* events[2] counts this task's memory alone */
	bool is_over;			     /* every process under its filter has ended */
	bool has_ended;			     /* the task has, as `end` says */
	bool is_held;			     /* the files of its task are still wanted */
	bool is_due;			     /* held, and its warm sandbox is gone */
	struct loop_timer hold;		     /* while is_due */
	struct task_end end;
	struct loop_watch control, report, notify, dns;
	struct loop_watch sandbox; /* its pidfd; fd -1: there is none */
	int scratch, mounts;
	int stat; /* /proc/PID/stat of the task; opened while no request waits */
	pid_t task;
	int64_t used_ns, ready_ns;
	uint32_t eid;
	int streams[3]; /* our ends */
	struct warm_report told;
	void (*tell)(void *arg, const struct task_end *end); /* NULL: no owner, or told */
	void *tell_arg;
};

enum zygote_stage {
	ZYGOTE_LOADING,
	ZYGOTE_LISTED, /* it has listed the files of its modules */
	ZYGOTE_READY,
};

struct warm_host {
	struct guest *guest;
	struct warm_host_options options;
	struct lane *lanes;
	int lane_count;
	struct lane_page *pages; /* one for each lane */
	struct loop_task ready;
	struct loop_timer revive; /* of broken lanes */
	uint64_t revive_ms;
	struct loop_timer shrink;
	struct loop_timer rest;
	int64_t burst_ns; /* when a request last came while all warm sandboxes were ready */
	int64_t ready_ns[WARM_HOST_KINDS]; /* when a warm sandbox last became ready */
	bool is_jammed[WARM_HOST_KINDS];   /* a request has waited in vain since */
	unsigned failures;		   /* of tasks, in a row */
	unsigned node_failures;		   /* of interpreters that should have waited */
	struct err why;			   /* why the last lane broke */
	struct {
		pid_t pid;
		struct loop_watch control;
		enum zygote_stage stage;
		struct lane *asked; /* one order at a time */
		bool is_void;	    /* its warm sandbox has gone meanwhile */
		struct timespec started;
		struct origin origin;
	} zygote;
	struct {
		struct origin root; /* of an image */
		struct origin node; /* the program of the interpreters that wait */
		int64_t looked_ns, used_ns;
		struct loop_timer timer;
		bool had_doubts; /* a zygote was replaced because its origin was doubtful */
	} look;
	bool is_stale; /* another warm host has to replace this one */
};

#define each_lane(s, n)                                                                            \
	struct lane *s = (n)->lanes;                                                               \
	s < (n)->lanes + (n)->lane_count;                                                          \
	s++

/* So many have died before their order, for example for memory: no more are started. */
#define NODE_FAILURES_MAX 3

/* ---- host.c ---- */
/* Requests that wait are served at the end of this round of the loop. */
void lane_set_ready(struct lane *s);
void lane_set_broken(struct lane *s);
/* The same, and kills what is left of its warm sandbox. */
void lane_break(struct lane *s, const struct err *e);
/* fd -1: nothing to watch. */
int lane_watch(struct lane *s, struct loop_watch *w, int fd, void (*call)(void *, uint32_t));
/* Closes the fd, too. */
void lane_unwatch(struct lane *s, struct loop_watch *w);
/* Answers the notifications of the task's filter. */
int lane_watch_listener(struct lane *s, int listener);
void warm_host_revive_later(struct warm_host *n);
/* A warm sandbox may be made again. lane: a struct lane, so that the function fits a timer. */
void lane_release(void *lane);

/* ---- task_end.c ---- */
/* A task is ready: what the lane's cgroup counts from now on belongs to this task. */
void lane_begin_counts(struct lane *s);
/* The last process under the task's filter has ended. */
void lane_filter_ended(struct lane *s);
void lane_sandbox_died(struct lane *s);
/* Kills the warm sandboxes that wait for a quiet moment, so that new ones are made. */
void warm_host_end_rest(void *host);
/* Tells the owner of the task, once. */
void lane_tell_end(struct lane *s, bool out_of_memory);

/* ---- task.c ---- */
/* The task's report can be read. */
void lane_take_report(void *arg, uint32_t events);
/* A task for a command has reported; listener: of its filter. */
void lane_take_task(struct lane *s, const struct warm_report *told, int listener);
/* In a task for a command: waits for its order and executes it. arg is its struct lane_page. */
void task_run(void *arg);
/* The same in Node.js, which is executed at once and waits for the order itself (guest/js/waiter.js). */
void task_run_node(void *arg);
/* Before any lane is started: looks for node. */
void task_find_node(const struct guest *g);
/* Its path, or NULL. */
const char *task_node(void);

/* ---- zygote.c ---- */
int zygote_start(struct warm_host *n, struct err *e);
void zygote_lose(struct warm_host *n);
/*
 * Starts another zygote. The old one ends when its socket closes. Tasks that wait are killed, those
 * that run stay.
 */
void zygote_replace(struct warm_host *n);
/* Orders a task for the next lane that needs one; one order at a time. */
void zygote_order_next(struct warm_host *n);

/* ---- recheck.c ---- */
void look_init(struct warm_host *n);
/* A request of this kind has come: checks now and then that files have not changed. */
void look_at_request(struct warm_host *n, enum warm_host_kind kind);
