/*
 * Starts the launcher and reads its output. This code runs inside a foreign process with its own
 * threads and signal handlers, so it changes no signal, no environment and no fd that is not its
 * own.
 */
#pragma once

#include "base/base.h"

/* Owned bytes, always followed by a NUL. */
struct bytes {
	char *data;
	size_t len, room;
};

struct launch {
	char *const *argv; /* argv[0] is replaced by the launcher's path */
	int in;		   /* its stdin */
	int extra;	   /* becomes its fd LAUNCHER_EXTRA_FD; -1: none */
	int cancel;	   /* readable: end the run */
};

enum { LAUNCHER_EXTRA_FD = 3 };

enum launch_end { LAUNCH_ENDED, LAUNCH_CANCELLED, LAUNCH_TOO_MUCH, LAUNCH_FAILED };

/* Finds the launcher: $CLOCHE, beside the library, in PATH. 0, or -1; ret has room for PATH_MAX. */
int launcher_find(char *ret);
/*
 * Runs the launcher to its end. out and err get its output, err at most the first part.
 * LAUNCH_FAILED comes with errno. The caller frees both in any case.
 */
enum launch_end launcher_run(const char *path, const struct launch *l, struct bytes *out,
			     struct bytes *err);

/*
 * An fd from which these bytes can be read: a file, or on request a pipe (1 MB at most). -1 with
 * errno.
 */
int launcher_input(const void *data, size_t len, bool as_pipe);
