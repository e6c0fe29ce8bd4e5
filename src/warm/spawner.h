/*
 * A spawner: the process of a lane that makes the tasks of its warm sandboxes, for commands.
 *
 * Theory of operation
 *
 * It was forked by the lane and is, like it, in the lane's user, uts and cgroup namespaces and in its cgroup,
 * with an empty bounding set: a task of hers is born with all that, and enters what is the warm sandbox's own. She
 * turns to one warm sandbox's pid namespace after the other for her children, which a lane cannot: it could
 * not turn back, and makes new ones. Tasks are her siblings (CLONE_PARENT), so the warm host's pid 1 learns
 * from the kernel how they ended.
 *
 * A task shares her memory until its exec (CLONE_VM): nothing has to be copied for it, nor taken apart
 * when it executes what was asked for, which somebody waits for. Nothing of a run's ever runs in that memory.
 * She sleeps meanwhile, in a call that leaves errno alone, until the next warm sandbox says that it is ready: the last
 * one is dead by then, and its task with it. That memory is never dumpable.
 */
#pragma once

#include "warm/warm.h"

/*
 * In the lane, which was entered. warm sandboxes: where warm sandboxes are to tell of themselves from now on, instead of
 * to control.
 */
int spawner_start(const struct warm_settings *t, const struct lane_spawning *s, int control,
		  int *ret_sandboxes, struct err *e);
