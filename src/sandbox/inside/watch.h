/*
 * Watch: memory and processor time summed over the sandbox's processes, from its own /proc, for
 * hosts where an ordinary user gets no cgroup (rule 18). Slower to act than a cgroup, and says so:
 * layers.memory is "watch".
 */
#pragma once

#include "model/spec.h"
#include "sandbox/inside/status_page.h"

#define WATCH_INTERVAL_MS 20
#define WATCH_SEEN 512

struct watch {
	const struct limits *limits;
	pid_t parent; /* 0: every process of /proc; else this one's descendants */
	bool alone;   /* there is no other process: no need to look for one */
	int interval_ms;
	int64_t next_ns;
	/*
	 * A process that ignores SIGCHLD does not wait for its children, and the kernel adds their
	 * time to no sum. So the time that each process used since the last look is added up as
	 * well.
	 */
	uint64_t seen_ns;
	uint32_t look;
	size_t seen_count;
	struct watch_seen {
		pid_t pid;
		uint32_t look; /* the last look that found it */
		uint64_t cpu_ns;
	} seen[WATCH_SEEN];
};

/* Writes little of it: most commands end before the first look. */
void watch_init(struct watch *w, const struct limits *limits, pid_t parent);

/*
 * WATCH_NONE, or which limit is passed. Looks at most once per interval_ms. Notes on the status
 * page if as many tasks run as the limit allows.
 */
enum watch_verdict watch_check(struct watch *w, struct status_page *b);
