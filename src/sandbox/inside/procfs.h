/* A /proc of the sandbox's own, without what tells about the host. */
#pragma once

#include "base/base.h"

/* What hides files: empty, so it can be shared. */
struct procfs_covers {
	const char *dir; /* an absolute path */
	bool by_fd; /* mount(2) is refused here; otherwise it takes one call instead of three */
};

/* Which files of /proc are to be hidden. */
struct procfs_masks {
	enum { PROCFS_NOT_ASKED, PROCFS_UNKNOWN, PROCFS_KNOWN } state;
	unsigned files;	     /* a bit each, of procfs_look */
	bool caller_is_root; /* where they are not known */
};

int procfs_make_covers(int dir, struct err *e);
/*
 * Mounts it at root/proc and hides files there. The working directory is the scratch, for the boot id
 * that id makes. Every whole /proc of a host has the same files, so one look at any of them is enough.
 */
int procfs_show(int root, const char *id, const struct procfs_covers *c,
		const struct procfs_masks *m, struct err *e);
/* caller_is_root: an ordinary user inside who is the host's root outside could read more. */
unsigned procfs_look(int proc, bool caller_is_root);
/* Looks at the host's own. False if that cannot tell. */
bool procfs_look_at_host(bool caller_is_root, unsigned *ret);
