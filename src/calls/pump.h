/*
 * The pump moves bytes from a guest's stream to a client at the pace of the slower one, in constant
 * memory. A guest may send until its window is used up, and the window opens again by credit. The
 * pump returns credit for bytes that were passed on while the client's side has room, and keeps the
 * rest as a debt until there is room again.
 *
 *   struct pump p = {0};
 *   exchange_pump(x, &p);                           sets room and to; pump_resume when there is room
 *   call_read(s, path, 0, UINT64_MAX, &(struct receiver){..., .pump = &p});   connects it to a call
 *
 * The other direction needs no state: call_push sends what the guest has room for, and the
 * receiver's `room` callback says when to push again.
 */
#pragma once

#include "base/base.h"

struct pump {
	size_t (*room)(void *to); /* 0: the client's side is full; NULL: never full */
	void *to;
	/* Where the bytes come from: call_credit of a call (set by calls.c), exec_credit of a command. */
	void (*credit)(void *from, size_t len);
	void *from; /* NULL: the stream is over */
	size_t owed;
};

/* len bytes of the stream were passed on to the client. */
void pump_moved(struct pump *p, size_t len);
/* The client's side may have room again. Takes a struct pump, so that it can be used as a callback. */
void pump_resume(void *pump);
