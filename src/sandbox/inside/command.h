/* The last steps of the command's process: standard streams, proof of the layers, exec. */
#pragma once

#include "sandbox/inside/inside.h"

#include <sched.h>

struct command {
	struct plan *plan;
	const struct inside_fds *fds;
	bool pinned; /* to one processor, until now */
	cpu_set_t cpus;
};

/*
 * Runs in a process that shares memory with its parent until the exec (CLONE_VM | CLONE_VFORK):
 * straight-line system calls only. Never returns; what went wrong is on the status page.
 */
void command_exec(const struct command *c) __attribute__((noreturn));

/* The default for all 64 of them, and none blocked. */
void command_reset_signals(void);
/* The latter only: all that an exec does not do, if nothing is ignored. */
void command_unblock_signals(void);
