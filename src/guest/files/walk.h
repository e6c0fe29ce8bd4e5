/*
 * Trees, walked by workers: every step is a directory fd and one name, and no link is followed. The
 * filter refuses openat2 inside, so this is openat with O_NOFOLLOW; the code outside that may use
 * openat2 has its own walk (sandbox/workspace/safe_walk.h).
 */
#pragma once

#include "base/base.h"
#include "guest/link/server.h"

#define WALK_MAX_DEPTH 256

/* A directory for reading, or -1 with errno. */
int walk_open_dir(int dir, const char *name);
/* Is it on /proc, /sys or another file system that the kernel generates? */
bool walk_is_virtual(int fd);
/* Removes a name and all below; -1 with errno if something could not be removed. */
int walk_remove_at(int dir, const char *name);
/* Opens the directory of a path; ret_name is the last part of the path. */
int walk_open_parent(const char *path, const char **ret_name);

enum walk_next { WALK_PAST, WALK_INTO, WALK_STOP };

struct walk_entry {
	int dir;
	const char *name, *path;
	const struct stat *st;
};

struct walk {
	/* Called for each name; WALK_INTO descends if the name is a directory. */
	enum walk_next (*visit)(void *arg, const struct walk_entry *n);
	void *arg;
	bool skips_virtual;
};

/*
 * Visits all below dir, sorted, so many levels deep. path is the path of dir without a slash at its
 * end, in a buffer of GUEST_MAX_PATH bytes; names that do not fit are left out. False: a visit
 * stopped it.
 */
bool walk_below(const struct walk *w, int dir, char *path, unsigned levels);

struct work;
/*
 * In a worker: opens the directory that a request names, or ends with an error. ret: its path
 * without a slash at the end.
 */
int walk_open_top(struct work *w, const char *what, const char *named, char ret[GUEST_MAX_PATH]);
