/* Starts the process of a command. */
#pragma once

#include "base/base.h"

struct spawn {
	char **argv, **env;
	const char *cwd;
	bool tty, no_stdin, merge;
	uint32_t rows, cols;
	uint64_t open_files_soft; /* 0: leave it */
	uint64_t mark;		  /* see tree.h */
	uint32_t uid;		  /* root inside: becomes this user; 0: stays */
	int prefork;		  /* becomes its fd 3; 0: none */
};

struct spawned {
	pid_t pid;
	int in, out,
		err; /* our ends, not blocking; with a terminal in and out are its master; or -1 */
	int exec_errno; /* not 0: exec failed, and the process ends with status 127 */
};

/*
 * Packs the order for a process that exists already: a task of a warm sandbox, or a copy of a
 * prefork. A directory, the count of arguments, the arguments, then "K=V" for each variable, each
 * ended by NUL.
 */
void spawn_pack_order(const char *cwd, char *const *argv, char *const *env, struct buf *ret);
/*
 * Pipes, or a terminal's master in theirs[0], for the standard streams of a process: ours do not
 * block. Those that there are not are -1.
 */
int spawn_open_streams(const struct spawn *s, int ours[3], int theirs[3], struct err *e);
void spawn_close(int *fds, int count);
/* Resets ignored signals, for us and so for every command. For pid 1 its starter has done that. */
void spawn_reset_signals(void);
/* -1: there is no process; e->errnum says why. */
int spawn(const struct spawn *s, struct spawned *ret, struct err *e);
