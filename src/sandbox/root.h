/* The root that the command sees, built on a tmpfs by real fds; see root.c for the layout. */
#pragma once

#include "sandbox/plan.h"

/* First half: the image, /dev, /proc. ret_scratch is the tmpfs that holds all writable places. */
int root_build(struct plan *p, int *ret_scratch, struct err *e);
/* Second half: workspace, extra mounts, files; then the old root goes away. */
int root_finish(struct plan *p, int scratch, struct err *e);
