/* The root that the command sees, built on a tmpfs by real fds; see root.c for the layout. */
#pragma once

#include "sandbox/plan.h"

struct root_fds {
	int scratch; /* out: O_PATH-free dirfd of the tmpfs that holds all writable places */
	int idmap;   /* in: user namespace that maps the workspace's owner, or -1 */
};

/* First half: everything that needs nothing from the keeper. cwd becomes the new root. */
int root_build(struct plan *p, struct root_fds *fds, struct err *e);
/* Second half: workspace, extra mounts, files; then the old root goes away. */
int root_finish(struct plan *p, struct root_fds *fds, struct err *e);
