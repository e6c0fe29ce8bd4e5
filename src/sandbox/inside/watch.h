/*
 * Watch: memory and processor time summed over the sandbox's processes, from its own /proc, for
 * hosts where an ordinary user gets no cgroup (rule 18). Slower to act than a cgroup, and says so:
 * layers.memory is "watch".
 */
#pragma once

#include "base/base.h"
#include "model/spec.h"
#include "sandbox/inside/status_page.h"

#define WATCH_INTERVAL_MS 20
#define WATCH_SEEN 512

struct watch {
	const struct limits *limits;
	pid_t parent; /* 0: every process of /proc; else this one's descendants */
	bool alone;   /* there is nobody else: no need to look for them */
	int interval_ms;
	int64_t next_ns;
	/*
	 * Who ignores SIGCHLD need not wait for its children, and no sum of the kernel's has what they
	 * used. So what each process used since the last look is added up as well.
	 */
	uint64_t seen_ns;
	uint32_t look;
	size_t seen_count;
	struct watch_seen {
		pid_t pid;
		uint32_t look; /* the last one that found it */
		uint64_t cpu_ns;
	} seen[WATCH_SEEN];
};

/* Touches little of it: most commands are gone before the first look. */
void watch_init(struct watch *w, const struct limits *limits, pid_t parent);

/*
 * WATCH_NONE, or which limit is passed; looks at most once per interval, which is what to wait
 * for the next. That all the tasks are in use which there may be is noted on the status page.
 */
enum watch_verdict watch_check(struct watch *w, struct status_page *b);
