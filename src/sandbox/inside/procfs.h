/* A /proc of the sandbox's own, without the files that reveal the host. */
#pragma once

#include "base/base.h"

/* An empty file and an empty directory that are mounted over others. They can be shared. */
struct procfs_covers {
	const char *dir; /* an absolute path */
	bool by_fd; /* mount(2) is refused here; where it is allowed it takes one call instead of three */
};

/* Which files of /proc are to be hidden. */
struct procfs_masks {
	enum { PROCFS_NOT_ASKED, PROCFS_UNKNOWN, PROCFS_KNOWN } state;
	unsigned files;	     /* a bit each, of procfs_look */
	bool caller_is_root; /* used if the state is not PROCFS_KNOWN */
};

int procfs_make_covers(int dir, struct err *e);
/*
 * Mounts a /proc at root/proc and hides files there. The working directory is the scratch, which
 * gets a random boot id. Every complete /proc of a host has the same files, so it is enough
 * to look at one.
 */
int procfs_show(int root, const struct procfs_covers *c, const struct procfs_masks *m,
		struct err *e);
/* caller_is_root: an ordinary user inside who is the host's root outside could read more. */
unsigned procfs_look(int proc, bool caller_is_root);
/* Looks at the host's own /proc. False if the files cannot be seen there. */
bool procfs_look_at_host(bool caller_is_root, unsigned *ret);
