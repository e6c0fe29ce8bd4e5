/* /dev inside: null, zero, full, random, urandom, tty, ptmx, pts, shm, fd links. Nothing else. */
#pragma once

#include "sandbox/plan.h"

int dev_build(const struct plan *p, int root_fd, struct err *e);
