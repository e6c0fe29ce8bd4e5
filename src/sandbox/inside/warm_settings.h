/* What a warm host is booted with, and what its init finds: plain data. Theory: warm/warm.h. */
#pragma once

#include "model/spec.h"
#include "sandbox/inside/status_page.h"

#define WARM_JOINS 4 /* cgroup v1: `tasks` files; v2: `cgroup.procs` */
/*
 * Files of each lane of a warm host: those to join it by, then the counters of memory kills and of
 * refused forks, and the peak of memory.
 */
#define WARM_FILES (WARM_JOINS + 3)
/*
 * In a warm host: the root that warm sandboxes start from, without the mounts that each has of its
 * own, and with a complete /proc, since without one no other can be mounted. In a warm sandbox: the
 * covers for files of its own /proc.
 */
#define WARM_ROOT "/run/.cell"

#define WARM_CODE_PLACE "/var/tmp/.code" /* target of the link /run/code */

/* Settings of every warm sandbox of a warm host; plain data, sent as it is. */
struct warm_settings {
	struct limits limits;
	layer_set required;	 /* without these nothing runs */
	layer_set cgroup_layers; /* what a lane's cgroup limits */
	int join_count;
	bool caller_is_root; /* see procfs.h */
	bool rootless;
	bool image_is_host;
	struct namespace_ids outside; /* the warm host's own */
	dev_t outside_proc; /* the /proc in WARM_ROOT, which shows the warm host's processes */
};

/* Open files for the cgroup of one lane. */
static inline int warm_file_count(const struct warm_settings *t)
{
	return t->join_count ? t->join_count + WARM_FILES - WARM_JOINS : 0;
}

/* Open fds of a warm host's pid 1, besides the GUEST_FD_* of wire/guest.h. */
/* struct warm_host_settings, to be read; of another guest: struct seccomp_own, with --own-seccomp */
#define WARM_HOST_FD_SETTINGS 7
#define WARM_HOST_FD_JOINS 8 /* warm_file_count for each lane */
#define WARM_HOST_LANES 20   /* at most */

struct warm_host_settings {
	struct warm_settings sandbox;
	unsigned lanes[WARM_KINDS]; /* at most, by kind */
	unsigned first[WARM_KINDS]; /* made at the start; others when requests wait */
	bool has_own_seccomp;	    /* a struct seccomp_own follows */
};

/*
 * Processes of ours in the cgroup of a lane with a spawner: the lane, the spawner and pid 1 of the
 * warm sandbox.
 */
#define LANE_OWN_PIDS 3
#define WARM_FORKED_KIND 1 /* Python: its lanes have no spawner */
