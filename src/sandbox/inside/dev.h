/* /dev inside: null, zero, full, random, urandom, tty, ptmx, pts, shm, fd links. Nothing else. */
#pragma once

#include "sandbox/plan/plan.h"

int dev_build(const struct plan *p, int root_fd, struct err *e);
/* What is left then: a /dev/pts of its own. */
int dev_show_terminals(int root_fd, struct err *e);
