/* What the files of a warm host share. */
#pragma once

#include "base/loop.h"
#include "guest/warm/host.h"
#include "guest/warm/origin.h"

enum lane_state {
	LANE_MAKING,  /* a warm sandbox is being made */
	LANE_ORDERED, /* the interpreter was asked for a task */
	LANE_READY,
	LANE_TAKEN, /* a task of a request */
	LANE_RESTING, /* the task is dead and left nothing; its warm sandbox dies when there is time for it */
	LANE_LEAVING, /* the task is dead, its warm sandbox is dying */
	LANE_BROKEN,
	LANE_ABSENT, /* not needed so far, or any more */
};

struct lane_counts {
	uint64_t oom_kills, pids_refused;
};

/* In memory that is shared with a task for commands until its exec, and with its spawner. */
struct lane_page {
	pid_t task; /* that was made last; 0: none yet */
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
	struct lane_counts before;	     /* its task was seated */
	bool has_peak;			     /* of its memory alone */
	bool is_over;			     /* all that bore its filter ended */
	bool has_ended;			     /* the task: */
	struct task_end end;
	struct loop_watch control, report, notify, dns;
	struct loop_watch sandbox; /* its pidfd; fd -1: there is none */
	int scratch, mounts;
	int stat; /* of the task, in /proc; opened while nobody waits */
	pid_t task;
	int64_t used_ns;
	uint32_t eid;
	int streams[3]; /* our ends */
	struct warm_report told;
	void (*tell)(void *arg, const struct task_end *end); /* NULL: nobody, or told */
	void *tell_arg;
};

enum zygote_stage {
	ZYGOTE_LOADING,
	ZYGOTE_LISTED, /* it said where its modules came from */
	ZYGOTE_READY,
};

struct warm_host {
	struct guest *guest;
	struct warm_host_options options;
	struct lane *lanes;
	int lane_count;
	struct lane_page *pages; /* one for each lane */
	struct loop_task ready;
	struct loop_timer revive; /* what broke */
	uint64_t revive_ms;
	struct loop_timer shrink;
	struct loop_timer rest;
	int64_t burst_ns; /* when a request came while all warm sandboxes were ready, last */
	int64_t ready_ns[WARM_HOST_KINDS]; /* when a warm sandbox was, last */
	bool is_jammed[WARM_HOST_KINDS];   /* somebody waited for one in vain since */
	unsigned failures;		   /* of tasks, one after the other */
	struct err why;			   /* the last lane that broke, did */
	struct {
		pid_t pid;
		struct loop_watch control;
		enum zygote_stage stage;
		struct lane *asked; /* one order at a time */
		bool is_void;	    /* its warm sandbox is gone meanwhile */
		struct timespec started;
		struct origin origin;
	} zygote;
	struct {
		struct origin root; /* of an image */
		int64_t looked_ns, used_ns;
		struct loop_timer timer;
		bool had_doubts; /* an interpreter was given up for that */
	} look;
	bool is_stale; /* another warm host has to take its place */
};

#define each_lane(s, n)                                                                            \
	struct lane *s = (n)->lanes;                                                               \
	s < (n)->lanes + (n)->lane_count;                                                          \
	s++

/* ---- warm host.c ---- */
/* Those who wait are told when this round is over. */
void lane_set_ready(struct lane *s);
void lane_set_broken(struct lane *s);
/* The same, and whatever is left of its warm sandbox goes. */
void lane_break(struct lane *s, const struct err *e);
/* fd -1: nothing to watch. */
int lane_watch(struct lane *s, struct loop_watch *w, int fd, void (*call)(void *, uint32_t));
/* Closes it, too. */
void lane_unwatch(struct lane *s, struct loop_watch *w);
/* What goes on in the warm sandbox comes to notice through the filter's listener. */
int lane_watch_listener(struct lane *s, int listener);
void warm_host_revive_later(struct warm_host *n);

/* ---- warm_host_end.c ---- */
/* A task is ready, and will be alone with what is counted from now on. */
void lane_begin_counts(struct lane *s);
/* The task's filter has no user left. */
void lane_filter_ended(struct lane *s);
void lane_sandbox_died(struct lane *s);
/* Warm sandboxes that wait for a quiet moment to be made anew wait no longer. */
void warm_host_end_rest(void *host);
/* Tells its owner, once. */
void lane_tell_end(struct lane *s, bool out_of_memory);

/* ---- warm_host_task.c ---- */
/* The task's report can be read. */
void lane_take_report(void *arg, uint32_t events);
/* A task for a command has told; listener: of its filter. */
void lane_take_task(struct lane *s, const struct warm_report *told, int listener);
/* In a task for a command, ahead of any request: waits for one. arg is its struct lane_page. */
void task_run(void *arg);

/* ---- warm_host_zygote.c ---- */
int zygote_start(struct warm_host *n, struct err *e);
void zygote_lose(struct warm_host *n);
/* Starts another. The old one ends when its socket closes; tasks that wait go, those that run stay. */
void zygote_replace(struct warm_host *n);
/* One order at a time, those that wait longest first as they stand. */
void zygote_order_next(struct warm_host *n);

/* ---- warm_host_look.c ---- */
void look_init(struct warm_host *n);
/* A request of this kind has come: is everything still what it was? */
void look_at_request(struct warm_host *n, enum warm_host_kind kind);
