/* Booters: processes that make sandboxes, one at a time each, so that the broker never waits. */
#pragma once

#include "base/loop.h"

#include <sys/types.h>

#define BOOTERS 4

struct daemon;
struct box;

struct booter {
	struct daemon *d;
	pid_t pid; /* 0: not running */
	int sock;
	struct box *busy;
	bool has_worked; /* since it was started */
	struct loop_watch watch;
	struct loop_timer timer; /* patience */
};

void booters_start(struct daemon *d);
void booters_stop(struct daemon *d);
/* Queues it; box_booted is called in the end, never from within. */
void booters_add(struct daemon *d, struct box *b);
/* True if this child was a booter, which is started anew. */
bool booters_reaped(struct daemon *d, pid_t pid);
