/* What a warm host is booted with, and what init of one finds: plain data. Theory: warm/warm.h. */
#pragma once

#include "model/spec.h"
#include "sandbox/inside/status_page.h"

#define WARM_JOINS 4 /* cgroup v1: `tasks` files; v2: `cgroup.procs` */
/*
 * Of each lane of a warm host: what it is joined by, then what counts kills for memory and refused forks, and
 * the peak of its memory.
 */
#define WARM_FILES (WARM_JOINS + 3)
/*
 * In a warm host: the root that warm sandboxes start from, without all that each of them has of its own, and with a
 * whole /proc, since without one no other can be mounted. In a warm sandbox: what covers files of its own /proc.
 */
#define WARM_ROOT "/run/.cell"

#define WARM_CODE_PLACE "/var/tmp/.code" /* where /run/code leads */

/* What every warm sandbox of a warm host is made with; plain data, sent as it is. */
struct warm_settings {
	struct limits limits;
	layer_set required;	 /* without these nothing runs */
	layer_set cgroup_layers; /* what a lane's cgroup limits */
	int join_count;
	bool caller_is_root; /* see procfs.h */
	bool rootless;
	bool image_is_host;
	struct namespace_ids outside; /* the warm host's own */
	dev_t outside_proc; /* the /proc of WARM_ROOT, which shows the warm host's processes */
};

/* Open files for the cgroup of one lane. */
static inline int warm_file_count(const struct warm_settings *t)
{
	return t->join_count ? t->join_count + WARM_FILES - WARM_JOINS : 0;
}

/* What pid 1 of a warm host finds open besides the GUEST_FD_* of wire/guest.h. */
#define WARM_HOST_FD_SETTINGS 7 /* struct warm_host_settings, to be read */
#define WARM_HOST_FD_JOINS 8	/* warm_file_count for each lane */
#define WARM_HOST_LANES 16	/* at most */

struct warm_host_settings {
	struct warm_settings sandbox;
	unsigned lanes[2]; /* that there can be, by kind */
	unsigned first[2]; /* that there are from the beginning; others when requests wait */
};

/*
 * Processes in the cgroup of a lane with a spawner that are not the task's: these two and the warm sandbox.
 */
#define LANE_OWN_PIDS 3
