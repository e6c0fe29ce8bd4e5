/*
 * Writes one file, link or directory to the host's workspace: under a temporary name first, then
 * renamed, so that no reader sees half a file and an existing link of that name is not followed.
 */
#pragma once

#include "base/base.h"

struct apply_owner {
	bool set; /* as root: new files belong to uid and gid */
	uid_t uid;
	gid_t gid;
};

/*
 * As root all this is done with the rights of the workspace's owner, so that a name that was
 * swapped meanwhile leads to nothing that the owner could not reach.
 */

/* All return 0, or -1 with errno, and leave nothing behind when they fail. */

/* Copies the regular file behind `from`, with the permission bits and times of st. */
int apply_file(int dir, const char *name, int from, const struct stat *st,
	       const struct apply_owner *owner);
int apply_link(int dir, const char *name, const char *target, const struct apply_owner *owner);
/* Makes a directory with mode 0700; returns its fd. The caller sets the mode at the end. */
int apply_dir(int dir, const char *name, const struct apply_owner *owner);
/* Removes a name and all below it. */
int apply_nothing(int dir, const char *name, const struct apply_owner *owner);
int apply_mode(int fd, mode_t mode, const struct apply_owner *owner);
