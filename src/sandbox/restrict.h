/* Limits that hold for each process (rlimits); the whole sandbox's are the cgroup's. */
#pragma once

#include "sandbox/plan.h"

int restrict_limits(const struct plan *p, struct err *e);
