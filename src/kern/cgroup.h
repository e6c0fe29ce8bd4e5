/*
 * A cgroup for one sandbox, on v2, v1 or a hybrid of both.
 *
 *   cgroup_create()   makes it (below our own cgroup on v1; on v2 below the nearest ancestor that
 *                     may hand out controllers) and sets the limits
 *   v2: start the child with CLONE_INTO_CGROUP and c->dirs[0]
 *   v1: give cgroup_join_fds() to the child, which writes "0" into each; a write of a pid by
 *       somebody else, or to cgroup.procs, costs an RCU grace period (6 ms)
 *   cgroup_read_stats(), cgroup_remove()
 *   cgroup_sweep()    removes what killed keepers left behind
 */
#pragma once

#include "base/err.h"
#include "model/layer.h"
#include "model/spec.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum cgroup_controller {
	CGROUP_MEMORY,
	CGROUP_CPU,
	CGROUP_PIDS,
	CGROUP_CPUACCT,
	CGROUP_CONTROLLERS
};

struct cgroup {
	int version;	  /* 0: none to be had, 1 or 2 */
	char table[4096]; /* /proc/self/cgroup */
	char name[64];
	int parents[CGROUP_CONTROLLERS]; /* v2 uses [0] only; -1 where not used */
	int dirs[CGROUP_CONTROLLERS];
	layer_set layers; /* what is limited by it */
};

struct cgroup_stats {
	uint64_t oom_kills;
	uint64_t pids_refused;
	int64_t pids_peak; /* -1: the kernel does not say */
	uint64_t memory_peak_bytes;
	uint64_t cpu_us; /* v1: only with cpu_time limited */
};

/* Reads where we are ourselves; pid_ns is the inode of our pid namespace. */
void cgroup_init(struct cgroup *c, ino_t pid_ns);
/* True if the controllers are on v2: then it must exist before the child is cloned into it. */
bool cgroup_is_unified(const struct cgroup *c);
/* Leaves version 0 if this user can have no cgroup here. */
void cgroup_create(struct cgroup *c, const struct limits *limits);
/* v2: is this process in it? */
bool cgroup_contains(const struct cgroup *c, pid_t pid);
/* v1: opens the files that the child writes "0" into; returns how many, or -1. */
int cgroup_join_fds(const struct cgroup *c, int fds[CGROUP_CONTROLLERS]);
uint64_t cgroup_cpu_us(const struct cgroup *c);
void cgroup_read_stats(const struct cgroup *c, struct cgroup_stats *ret);
/* Takes the processor limit away, so that what is to die is not held up. */
void cgroup_lift_cpu(const struct cgroup *c);
/* Kills what is in it, one by one where the kernel cannot do it at once (v1). */
void cgroup_kill(const struct cgroup *c);
/* Removes it; everything in it must be dead. */
void cgroup_remove(struct cgroup *c);
/* Removes cgroups whose keeper is gone. */
void cgroup_sweep(const struct cgroup *c);
