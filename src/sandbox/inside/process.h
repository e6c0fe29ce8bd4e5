/*
 * Level process: no namespace at all, for hosts that forbid them. Landlock, seccomp, rlimits, and a
 * init of level process that is the subreaper of all that the command starts (rule 17).
 *
 * The init of level process stays outside of the command's Landlock domain and filter, so that the command can
 * neither signal nor trace it; it ends everything when the command has ended, when the keeper says
 * so (SIGTERM) or is gone.
 */
#pragma once

#include "kern/cgroup.h"
#include "sandbox/inside/inside.h"

void process_main(struct plan *p, struct inside_fds *fds) __attribute__((noreturn));

/* For the keeper, should somebody have killed the init of level process: what it would have ended, as far as that is found. */
void process_end_left(const struct plan *p, const struct cgroup *c);
