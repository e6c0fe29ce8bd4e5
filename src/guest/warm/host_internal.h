/* What the files of a warm host share. */
#pragma once

#include "base/loop.h"
#include "guest/warm/host.h"
#include "guest/warm/origin.h"

enum seat_state {
	SEAT_MAKING,  /* a cell is being made */
	SEAT_ORDERED, /* the interpreter was asked for a tenant */
	SEAT_READY,
	SEAT_TAKEN, /* a tenant of a request */
	SEAT_RESTING, /* the tenant is dead and left nothing; its cell dies when there is time for it */
	SEAT_LEAVING, /* the tenant is dead, its cell is dying */
	SEAT_BROKEN,
	SEAT_ABSENT, /* not needed so far, or any more */
};

struct seat_counts {
	uint64_t oom_kills, pids_refused;
};

/* In memory that is shared with a tenant for commands until its exec, and with its midwife. */
struct lane_page {
	pid_t tenant; /* that was made last; 0: none yet */
	pid_t midwife;
	int exec_errno;
};

struct seat {
	struct warm_host *warm_host;
	int index;
	enum warm_host_kind kind;
	enum seat_state state;
	struct slot slot;
	struct slot_seating seating; /* for commands */
	int joins[CELL_JOINS];
	int events[CELL_FILES - CELL_JOINS]; /* of memory, of pids, peak of memory; -1: none */
	struct seat_counts before;	     /* its tenant was seated */
	bool has_peak;			     /* of its memory alone */
	bool is_over;			     /* all that bore its filter ended */
	bool has_ended;			     /* the tenant: */
	struct tenant_end end;
	struct loop_watch control, report, notify, dns;
	struct loop_watch cell; /* its pidfd; fd -1: there is none */
	int scratch, mounts;
	int stat; /* of the tenant, in /proc; opened while nobody waits */
	pid_t tenant;
	int64_t used_ns;
	uint32_t eid;
	int streams[3]; /* our ends */
	struct cell_report told;
	void (*tell)(void *arg, const struct tenant_end *end); /* NULL: nobody, or told */
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
	struct seat *seats;
	int seat_count;
	struct lane_page *pages; /* one for each seat */
	struct loop_task ready;
	struct loop_timer revive; /* what broke */
	uint64_t revive_ms;
	struct loop_timer shrink;
	struct loop_timer rest;
	int64_t burst_ns; /* when a request came while all cells were ready, last */
	int64_t ready_ns[WARM_HOST_KINDS]; /* when a cell was, last */
	bool is_jammed[WARM_HOST_KINDS];   /* somebody waited for one in vain since */
	unsigned failures;		   /* of tenants, one after the other */
	struct err why;			   /* the last seat that broke, did */
	struct {
		pid_t pid;
		struct loop_watch control;
		enum zygote_stage stage;
		struct seat *asked; /* one order at a time */
		bool is_void;	    /* its cell is gone meanwhile */
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

#define each_seat(s, n)                                                                            \
	struct seat *s = (n)->seats;                                                               \
	s < (n)->seats + (n)->seat_count;                                                          \
	s++

/* ---- warm host.c ---- */
/* Those who wait are told when this round is over. */
void seat_be_ready(struct seat *s);
void seat_be_broken(struct seat *s);
/* The same, and whatever is left of its cell goes. */
void seat_break(struct seat *s, const struct err *e);
/* fd -1: nothing to watch. */
int seat_watch(struct seat *s, struct loop_watch *w, int fd, void (*call)(void *, uint32_t));
/* Closes it, too. */
void seat_unwatch(struct seat *s, struct loop_watch *w);
/* What goes on in the cell comes to notice through the filter's listener. */
int seat_watch_notifys(struct seat *s, int listener);
void warm_host_revive_later(struct warm_host *n);

/* ---- warm_host_end.c ---- */
/* A tenant is ready, and will be alone with what is counted from now on. */
void seat_begin_counts(struct seat *s);
/* The tenant's filter has no user left. */
void seat_hung_up(struct seat *s);
void seat_cell_died(struct seat *s);
/* Cells that wait for a quiet moment to be made anew wait no longer. */
void warm_host_end_rest(struct warm_host *n);
/* Tells its owner, once. */
void seat_tell_end(struct seat *s, bool out_of_memory);

/* ---- warm_host_tenant.c ---- */
void tenant_close_fds(int *fds, int count);
/* The tenant's report can be read. */
void seat_on_report(void *arg, uint32_t events);
/* A tenant for a command has told; listener: of its filter. */
void seat_was_taken(struct seat *s, const struct cell_report *told, int listener);
/* In a tenant for a command, ahead of any request: waits for one. arg is its struct lane_page. */
void tenant_run(void *arg);

/* ---- warm_host_zygote.c ---- */
int zygote_start(struct warm_host *n, struct err *e);
void zygote_lose(struct warm_host *n);
/* Starts another. The old one ends when its socket closes; tenants that wait go, those that run stay. */
void zygote_replace(struct warm_host *n);
/* One order at a time, those that wait longest first as they stand. */
void zygote_order_next(struct warm_host *n);

/* ---- warm_host_look.c ---- */
void look_init(struct warm_host *n);
/* A request of this kind has come: is everything still what it was? */
void look_at_request(struct warm_host *n, enum warm_host_kind kind);
