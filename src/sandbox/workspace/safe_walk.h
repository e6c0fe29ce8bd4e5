/*
 * Walking a directory tree that someone hostile has filled, or may be changing.
 *
 * Everything goes by directory fd and one name at a time, through openat2 with BENEATH, NO_SYMLINKS
 * and NO_XDEV: no link is followed, no mount is entered, no `..` leads out. Opens do not block
 * (a FIFO), and what was opened is judged by its fd, never by its name.
 *
 * Overlay conventions of an upper layer (redirect_dir and metacopy off): a whiteout says "deleted",
 * an opaque directory says "nothing shows through from below".
 */
#pragma once

#include "base/base.h"

enum {
	SAFE_WALK_MAX_DEPTH = 128, /* directories inside one another; each costs two fds */
	SAFE_WALK_MAX_PATH = 4096,
};

/* The position of a walk: "a/b/c", relative to its root. */
struct safe_walk_path {
	char text[SAFE_WALK_MAX_PATH];
	size_t len;
};

/* Adds a name; false if that would be too long. */
bool safe_walk_push(struct safe_walk_path *p, const char *name, size_t *ret_mark);
/* Goes back to where push was called. */
void safe_walk_pop(struct safe_walk_path *p, size_t mark);

/* These return an fd, or -1 with errno; EXDEV: a mount, ELOOP: a link, EINVAL: another kind. */
int safe_walk_open_dir(int dir, const char *name);
/* For reading; a regular file or nothing. */
int safe_walk_open_file(int dir, const char *name, struct stat *ret_st);
/* A new file for writing, mode 0600. */
int safe_walk_create_file(int dir, const char *name);

/* Stats a name without following a link; false if it does not exist. */
bool safe_walk_stat(int dir, const char *name, struct stat *ret);
/* Is the name in this sorted list? */
bool safe_walk_has_name(const struct list *names, const char *name);

bool safe_walk_is_whiteout(const struct stat *st);
bool safe_walk_is_opaque(int dir);

/* Removes a name and all below it; -1 with errno if something could not be removed. */
int safe_walk_remove(int dir, const char *name);
