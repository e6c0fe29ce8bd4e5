/*
 * Memory where no cgroup limits it (rule 18): what all processes use is summed up while there are
 * any; when it is too much, the largest is killed, as the kernel would do.
 */
#pragma once

#include "guest/link/server.h"

void oom_watch(struct guest *g);
void oom_stop(struct guest *g);
