/*
 * Watch: memory and processor time summed over the sandbox's processes, from its own /proc, for
 * hosts where an ordinary user gets no cgroup (rule 18). Slower to act than a cgroup, and says so:
 * layers.memory is "watch".
 */
#pragma once

#include "model/spec.h"
#include "sandbox/board.h"

#include <sys/types.h>

#define WATCH_INTERVAL_MS 20

struct watch {
	const struct limits *limits;
	pid_t parent; /* 0: every process of /proc; else this one's descendants */
	bool alone;   /* there is nobody else: no need to look for them */
	int64_t next_ns;
};

/*
 * WATCH_NONE, or which limit is passed; looks at most once per interval. That all the tasks are in
 * use which there may be is noted on the board.
 */
enum watch_verdict watch_check(struct watch *w, struct board *b);
