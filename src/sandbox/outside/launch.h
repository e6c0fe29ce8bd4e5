/* The outside half of making a sandbox; see netns maker.c. */
#pragma once

#include "sandbox/inside/inside.h"
#include "sandbox/outside/keeper.h"

/* Makes the socket to pid 1, on v2 the cgroup, and pid 1 itself, which begins to build. */
int launch_start(struct keeper *k, struct inside_fds *fds, struct err *e);
/* What pid 1 needs to finish: mounts' owners, cgroup, user and network namespace. */
int launch_send(struct keeper *k, struct err *e);
/* Lets processes go that only hold namespaces open until pid 1 has them. */
void launch_release(struct keeper *k);
