/*
 * pid 1 of the sandbox: reaps, passes signals of the keeper on, answers the filter's notifications
 * and every name look-up, and watches memory where no cgroup does. It has no privilege, lives under
 * the same filter as the command, and cannot be traced (rule 15).
 */
#pragma once

#include "sandbox/inside/inside.h"

/* Serves until the command has ended, then returns; the caller exits and everything dies. */
void init_serve(struct plan *p, const struct inside_fds *fds, pid_t command, int listener,
		int signals);
