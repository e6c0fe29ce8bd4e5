/*
 * A spawner: the process of a lane that makes the tenants of its cells, for commands.
 *
 * Theory of operation
 *
 * It was forked by the lane and is, like it, in the lane's user, uts and cgroup namespaces and in its cgroup,
 * with an empty bounding set: a tenant of hers is born with all that, and enters what is the cell's own. She
 * turns to one cell's pid namespace after the other for her children, which a lane cannot: it could
 * not turn back, and makes new ones. Tenants are her siblings (CLONE_PARENT), so the warm host's pid 1 learns
 * from the kernel how they ended.
 *
 * A tenant shares her memory until its exec (CLONE_VM): nothing has to be copied for it, nor taken apart
 * when it executes what was asked for, which somebody waits for. Nothing of a run's ever runs in that memory.
 * She sleeps meanwhile, in a call that leaves errno alone, until the next cell says that it is ready: the last
 * one is dead by then, and its tenant with it. That memory is never dumpable.
 */
#pragma once

#include "warm/warm.h"

/*
 * In the lane, which was entered. cells: where cells are to tell of themselves from now on, instead of
 * to control.
 */
int spawner_start(const struct cell_terms *t, const struct lane_spawning *s, int control,
		  int *ret_cells, struct err *e);
