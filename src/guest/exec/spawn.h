/* Makes the process of a command. */
#pragma once

#include "base/base.h"

struct spawn {
	char **argv, **env;
	const char *cwd;
	bool tty, no_stdin, merge;
	uint32_t rows, cols;
	uint64_t open_files_soft; /* 0: as it is */
	uint64_t mark;		  /* see tree.h */
	int prefork;		  /* becomes its fd 3; 0: none */
};

struct spawned {
	pid_t pid;
	int in, out,
		err; /* our ends, not blocking; with a terminal in and out are its master; or -1 */
	int exec_errno; /* it could not be executed; the process ends with status 127 */
};

/*
 * What a process that is there already is told to become, whoever it is: a task of a warm sandbox, a copy of a
 * parked process. A directory, the count of arguments, the arguments, then "K=V" for each variable, each ended by
 * NUL.
 */
void spawn_pack_order(const char *cwd, char *const *argv, char *const *env, struct buf *ret);
/*
 * Pipes, or a terminal's master in theirs[0], for the standard streams of a process: ours do not block. Those
 * that there are not are -1.
 */
int spawn_open_streams(const struct spawn *s, int ours[3], int theirs[3], struct err *e);
void spawn_close(int *fds, int count);
/* Nothing is ignored in us, and so in none that we start; whoever started pid 1 has seen to it. */
void spawn_reset_signals(void);
/* -1: there is no process, e->errnum says why. */
int spawn(const struct spawn *s, struct spawned *ret, struct err *e);
