/* Limits that hold for each process (rlimits); the whole sandbox's are the cgroup's. */
#pragma once

#include "sandbox/plan/plan.h"

/* Unless asked for, a little more than the disk: a full disk should say that it is full. */
uint64_t restrict_file_size(const struct limits *l);
int restrict_limits(const struct plan *p, struct err *e);
/* Last, in the command's process: on the way there more may be open, and who watches needs memory, too. */
int restrict_command(const struct plan *p, struct err *e);
