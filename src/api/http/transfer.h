/*
 * Moves bytes between a client and a guest's stream in constant memory, at the pace of the slower side.
 *
 *   struct transfer *t = transfer_down(x, &ops);
 *   t->call = call_read(s, path, 0, UINT64_MAX, &t->receiver);
 *
 * The transfer answers the exchange, drops the call if the client goes away, and is freed with the
 * exchange.
 */
#pragma once

#include "api/http/http.h"
#include "calls/calls.h"

#define TRANSFER_UNKNOWN (-1)  /* the answer is as long as the stream */
#define TRANSFER_ANSWERED (-2) /* begin has answered otherwise */

struct transfer_ops {
	/*
	 * Down: the guest has begun; begin the answer by exchange_stream. Returns how many bytes the
	 * answer has: of a file that has grown no more are sent, and one that has shrunk is cut off.
	 */
	int64_t (*begin)(struct exchange *x, const struct file_info *info);
	/* Down: the stream has ended; write the end of the answer. NULL: nothing. */
	void (*end)(struct exchange *x, const struct answer *a);
	/* Up: the guest has received everything; answer. */
	void (*done)(struct exchange *x, uint64_t count);
	/* Nothing was answered yet: answer with an error. NULL: exchange_error. */
	void (*error)(struct exchange *x, const struct err *e);
};

struct transfer {
	struct exchange *x;
	struct call *call; /* set by the caller */
	struct receiver receiver;
	const struct transfer_ops *ops;
	struct pump pump;
	bool begun;
	int64_t left; /* bytes that the answer still wants, or TRANSFER_UNKNOWN */
};

/* From the guest: call_read, call_pack, or items, if the caller sets the receiver's callback for them. */
struct transfer *transfer_down(struct exchange *x, const struct transfer_ops *ops);
/* To the guest: call_write, call_unpack; the route's body is BODY_STREAM. */
struct transfer *transfer_up(struct exchange *x, const struct transfer_ops *ops);
