/*
 * A server stream of an RPC: envelopes going out, one at a time, a keepalive when it is silent, a
 * deadline if the client named one, and a cut when the sandbox is paused or gone.
 */
#pragma once

#include "api/e2b/e2b.h"
#include "calls/pump.h"

struct e2b_stream {
	struct e2b_request *q;
	struct buf out;
	const char *keepalive; /* the message, as text */
	uint64_t keepalive_ms;
	struct loop_timer silence, deadline;
	struct waiter *wait;
	bool begun;
	/* The stream is over before its owner said so: client gone, deadline, sandbox gone. */
	void (*stop)(void *arg);
	struct pump pump; /* for what feeds it */
	void *arg;
};

/*
 * Starts to watch. deadline_ms 0: none. stop is called at most once, to let go of what feeds the
 * stream; after it the stream answers by itself.
 */
void e2b_stream_open(struct e2b_stream *t, struct sandbox *s, const char *keepalive,
		     uint64_t deadline_ms);
/* Takes the message over. */
void e2b_stream_send(struct e2b_stream *t, json_t *message);
/* The last envelope; the exchange is over and the stream must not be used any more. */
void e2b_stream_end(struct e2b_stream *t, enum connect_code code, const char *message);
/* What feeds it has failed: told in the last envelope, or, if the sandbox is gone, by a cut. */
void e2b_stream_fail(struct e2b_stream *t, const struct err *e);
/* Frees what it holds; for the owner's end. */
void e2b_stream_done(struct e2b_stream *t);
/* The headers of the request: Connect-Timeout-Ms; -1 after an answer. */
int e2b_stream_deadline(struct e2b_request *q, uint64_t *ret_ms);
