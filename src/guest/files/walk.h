/*
 * Trees: every step by directory fd and one name, no link is followed (openat2 is refused inside, so
 * it is openat with O_NOFOLLOW). Done by workers.
 */
#pragma once

#include "base/base.h"
#include "guest/link/server.h"

#define WALK_MAX_DEPTH 256

/* A directory for reading, or -1 with errno. */
int walk_open_dir(int dir, const char *name);
/* Is it in /proc, /sys or the like, which the kernel makes up? */
bool walk_is_virtual(int fd);
/* May this attribute be seen and set? Those of an overlay would change what the overlay shows. */
bool walk_is_allowed_xattr(const char *name);
/* Removes a name and all below; -1 with errno if something had to stay. */
int walk_remove_at(int dir, const char *name);
/* Opens the directory of a path; ret_name is its last part. */
int walk_open_parent(const char *path, const char **ret_name);

enum walk_next { WALK_PAST, WALK_INTO, WALK_STOP };

struct walk_entry {
	int dir;
	const char *name, *path;
	const struct stat *st;
};

struct walk {
	/* For each name; only a directory is gone into. */
	enum walk_next (*visit)(void *arg, const struct walk_entry *n);
	void *arg;
	bool skips_virtual;
};

/*
 * All below dir, sorted, so many levels deep. path is where dir is, without a slash at its end, and
 * has GUEST_MAX_PATH bytes; names for which that is too short are left out. False: it was stopped.
 */
bool walk_below(const struct walk *w, int dir, char *path, unsigned levels);

struct work;
/* In a worker: opens the directory that a request names, or ends with an error. ret: its path without a slash at the end. */
int walk_open_top(struct work *w, const char *what, const char *named, char ret[GUEST_MAX_PATH]);
