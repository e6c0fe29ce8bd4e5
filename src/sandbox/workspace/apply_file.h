/*
 * Putting one file, link or directory into the host's workspace: under a temporary name first, then
 * renamed, so that nobody sees half a file and nothing that has the name already is followed.
 */
#pragma once

#include "base/base.h"

struct apply_owner {
	bool set; /* as root: give what is new to uid and gid */
	uid_t uid;
	gid_t gid;
};

/*
 * As root everything is done with the rights of the workspace's owner, so that a name which was
 * swapped meanwhile leads to nothing that the owner could not reach.
 */

/* All return 0, or -1 with errno, and leave nothing behind when they fail. */

/* Copies the regular file behind `from`, with the permission bits and times of st. */
int apply_file(int dir, const char *name, int from, const struct stat *st,
	       const struct apply_owner *owner);
int apply_link(int dir, const char *name, const char *target, const struct apply_owner *owner);
/* A new directory, open for its netns maker only; returns its fd. The caller sets the mode at the end. */
int apply_dir(int dir, const char *name, const struct apply_owner *owner);
/* Removes a name and all below it. */
int apply_nothing(int dir, const char *name, const struct apply_owner *owner);
int apply_mode(int fd, mode_t mode, const struct apply_owner *owner);
