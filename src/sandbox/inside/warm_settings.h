/* What a warm host is booted with, and what init of one finds: plain data. Theory: warm/warm.h. */
#pragma once

#include "base/base.h"
#include "model/layer.h"
#include "model/spec.h"
#include "sandbox/inside/namespaces.h"

#define CELL_JOINS 4 /* cgroup v1: `tasks` files; v2: `cgroup.procs` */
/*
 * Of each lane of a warm host: what it is joined by, then what counts kills for memory and refused forks, and
 * the peak of its memory.
 */
#define CELL_FILES (CELL_JOINS + 3)
/*
 * In a warm host: the root that cells start from, without all that each of them has of its own, and with a
 * whole /proc, since without one no other can be mounted. In a cell: what covers files of its own /proc.
 */
#define CELL_ROOT "/run/.cell"

#define CELL_CODE_PLACE "/var/tmp/.code" /* where /run/code leads */

/* What every cell of a warm host is made with; plain data, sent as it is. */
struct cell_terms {
	struct limits limits;
	layer_set required;	 /* without these nothing runs */
	layer_set cgroup_layers; /* what a lane's cgroup limits */
	int join_count;
	bool caller_is_root; /* see procfs.h */
	bool rootless;
	bool image_is_host;
	struct namespace_ids outside; /* the warm host's own */
	dev_t outside_proc; /* the /proc of CELL_ROOT, which shows the warm host's processes */
};

/* Open files for the cgroup of one lane. */
static inline int cell_file_count(const struct cell_terms *t)
{
	return t->join_count ? t->join_count + CELL_FILES - CELL_JOINS : 0;
}

/* What pid 1 of a warm host finds open besides the GUEST_FD_* of wire/guest.h. */
#define WARM_HOST_FD_TERMS 7 /* struct warm_host_terms, to be read */
#define WARM_HOST_FD_JOINS 8 /* cell_file_count for each lane */
#define WARM_HOST_LANES 16   /* at most */

struct warm_host_terms {
	struct cell_terms cell;
	unsigned lanes[2]; /* that there can be, by kind */
	unsigned first[2]; /* that there are from the beginning; others when requests wait */
};

/*
 * Processes in the cgroup of a lane with a spawner that are not the tenant's: these two and the cell.
 */
#define LANE_OWN_PIDS 3
