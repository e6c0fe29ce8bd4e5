/*
 * Watch: memory and processor time summed over the sandbox's processes, from its own /proc, for
 * hosts where an ordinary user gets no cgroup (rule 18). Slower to act than a cgroup, and says so:
 * layers.memory is "watch".
 */
#pragma once

#include "model/spec.h"
#include "sandbox/board.h"

#define WATCH_INTERVAL_MS 20

/* WATCH_NONE, or which limit is passed. */
enum watch_verdict watch_check(const struct limits *limits);
