/*
 * A cgroup for one sandbox, on v2, v1 or a hybrid of both.
 *
 *   cgroup_create()   makes it (below our own cgroup on v1; on v2 below the nearest ancestor that
 *                     may hand out controllers) and sets the limits
 *   v2: start the child with CLONE_INTO_CGROUP and c->dirs[0]
 *   v1: give cgroup_join_fds() to the child, which writes "0" into each; a write of a pid by
 *       somebody else, or to cgroup.procs, costs an RCU grace period (6 ms)
 *   cgroup_read_stats(), cgroup_remove()
 *   cgroup_sweep()    removes cgroups that killed keepers left behind
 */
#pragma once

#include "base/base.h"
#include "model/layer.h"
#include "model/spec.h"

enum cgroup_controller {
	CGROUP_MEMORY,
	CGROUP_CPU,
	CGROUP_PIDS,
	CGROUP_CPUACCT, /* from here on only where needed */
	CGROUP_FREEZER,
	CGROUP_BLKIO,
	CGROUP_CONTROLLERS
};

#define CGROUP_NAME 128

/* The place where cgroups are made, opened once by a process that handles many. */
struct cgroup_place {
	int version;
	char table[4096];		 /* /proc/self/cgroup of the process that makes them */
	int parents[CGROUP_CONTROLLERS]; /* v2 uses [0] only; -1 where there is none */
};

struct cgroup {
	int version;	  /* 0: none to be had, 1 or 2 */
	char table[4096]; /* /proc/self/cgroup */
	char name[CGROUP_NAME];
	int parents[CGROUP_CONTROLLERS]; /* v2 uses [0] only; -1 where not used */
	int dirs[CGROUP_CONTROLLERS];
	layer_set layers; /* what is limited by it */
	bool all_foreign; /* no process of ours is in it, as pid 1 of a sandbox would be */
	bool lives_on;	  /* has every controller: it is watched, paused and changed later */
	const struct cgroup_place *place; /* owner of the parents; NULL: this struct */
};

#define CGROUP_NO_FDS                                                                              \
	{                                                                                          \
		[0 ... CGROUP_CONTROLLERS - 1] = -1                                                \
	}
#define CGROUP_NONE                                                                                \
	{                                                                                          \
		.parents = CGROUP_NO_FDS, .dirs = CGROUP_NO_FDS                                    \
	}

struct cgroup_stats {
	uint64_t oom_kills;
	uint64_t pids_refused;
	int64_t pids_peak; /* -1: the kernel does not say */
	uint64_t memory_peak_bytes;
	uint64_t cpu_us; /* v1: only with cpu_time limited */
};

/* Reads where we are ourselves; pid_ns is the inode of our pid namespace. */
void cgroup_init(struct cgroup *c, ino_t pid_ns);
/* By /proc/self/cgroup of the process that makes the cgroups; NULL: this process. */
void cgroup_place_open(struct cgroup_place *p, const char *table);
void cgroup_place_close(struct cgroup_place *p);
/*
 * The same for a sandbox that outlives its request, under a name that no sweep removes. The place must
 * outlive c.
 */
void cgroup_init_at(struct cgroup *c, const struct cgroup_place *p, const char *name);
/*
 * Opens a cgroup that exists, by the table of the process that made it. False if nothing of it is left. A
 * cgroup of which only a part is left can be removed, too.
 */
bool cgroup_open(struct cgroup *c, const char *table, const char *name);
bool cgroup_open_at(struct cgroup *c, const struct cgroup_place *p, const char *name);
/* Closes what is open, and leaves the cgroup as it is. */
void cgroup_close(struct cgroup *c);
/* True if the controllers are on v2: then it must exist before the child is cloned into it. */
bool cgroup_is_unified(const struct cgroup *c);
/* Can this host have v2? Quicker than reading the table. */
bool cgroup_may_be_unified(void);
/* Leaves version 0 if this user can have no cgroup here. */
void cgroup_create(struct cgroup *c, const struct limits *limits);
/* v2: is this process in it? */
bool cgroup_contains(const struct cgroup *c, pid_t pid);
/* v1: opens the files that the child writes "0" into; returns how many, or -1. */
int cgroup_join_fds(const struct cgroup *c, int fds[CGROUP_CONTROLLERS]);
uint64_t cgroup_cpu_us(const struct cgroup *c);
void cgroup_read_stats(const struct cgroup *c, struct cgroup_stats *ret);
/* Opens the counts of out-of-memory kills and refused forks, for a process that may not open them. */
void cgroup_open_events(const struct cgroup *c, int *ret_memory, int *ret_pids);
uint64_t cgroup_count_oom_kills(int memory_events);
uint64_t cgroup_count_pids_refused(int pids_events);
/* Gives the cgroup this share when processors are short; 1024 is what a cgroup has if nobody says anything. */
#define CGROUP_SHARE_USUAL 512 /* of a sandbox */
void cgroup_weigh(const struct cgroup *c, unsigned share);
/* The usual share of a sandbox. */
void cgroup_give_way(const struct cgroup *c);
/* The peak of memory since the last reset; -1: it cannot be reset (v2 before Linux 6.12). */
int cgroup_open_peak(const struct cgroup *c);
int cgroup_reset_peak(int peak);
uint64_t cgroup_read_peak(int peak);
/* Lifts the processor limit, so that processes that are to die are not held up. */
void cgroup_lift_cpu(const struct cgroup *c);
/* Kills every process in it; one by one where the kernel has no call for all (v1). */
void cgroup_kill(const struct cgroup *c);
/* Removes it; everything in it must be dead. */
void cgroup_remove(struct cgroup *c);
/* The same without waiting: false if its tasks are still dying. Closes it only when it is gone. */
bool cgroup_try_remove(struct cgroup *c);
/* The same for a cgroup that is not open. */
bool cgroup_try_remove_at(const struct cgroup_place *p, const char *name);

struct cgroup_usage {
	uint64_t memory_bytes, memory_limit_bytes, pids, io_read_bytes, io_write_bytes;
};

/* What it uses now. */
void cgroup_read_usage(const struct cgroup *c, struct cgroup_usage *ret);
/* Sets new limits while processes run; -1 with errno if one could not be set. */
int cgroup_update(struct cgroup *c, const struct limits *limits);
/* Freezes or thaws every process in it; -1 with errno (ENOENT: there is no freezer). */
int cgroup_freeze(const struct cgroup *c, bool frozen);
/* Freezing takes a moment. */
bool cgroup_is_frozen(const struct cgroup *c);
/*
 * v2: a cgroup with processes in it hands out no controllers. Where no ancestor can do it either (in
 * a container), this process, if it is alone, moves into a leaf of its own.
 */
void cgroup_enter_leaf(const char *leaf);
/* Removes cgroups whose keeper is gone. */
void cgroup_sweep(const struct cgroup *c);
