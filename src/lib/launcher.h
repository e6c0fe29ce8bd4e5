/*
 * Starting the launcher and reading what it prints. Runs inside somebody else's process, with
 * threads and handlers of their own: nothing here changes signals, the environment or any fd that
 * is not ours.
 */
#pragma once

#include "base/base.h"

/* Bytes, owned; always one more is allocated, and NUL. */
struct bytes {
	char *data;
	size_t len, room;
};

struct launch {
	char *const *argv; /* argv[0] is replaced by the launcher's path */
	int in;		   /* its stdin */
	int extra;	   /* becomes its fd LAUNCHER_EXTRA_FD; -1: none */
	int cancel;	   /* readable: end it */
};

enum { LAUNCHER_EXTRA_FD = 3 };

enum launch_end { LAUNCH_ENDED, LAUNCH_CANCELLED, LAUNCH_TOO_MUCH, LAUNCH_FAILED };

/* Finds it: $CLOCHE, with the library, in PATH. 0, or -1; ret has room for PATH_MAX. */
int launcher_find(char *ret);
/*
 * Runs it to its end. out and err get what it printed, err at most its first part; LAUNCH_FAILED
 * comes with errno. The caller frees both in any case.
 */
enum launch_end launcher_run(const char *path, const struct launch *l, struct bytes *out,
			     struct bytes *err);

/* An fd that reads these bytes, as a file or, on request, as a pipe (1 MB at most); -1 with errno.
 */
int launcher_input(const void *data, size_t len, bool as_pipe);
