/*
 * The daemon's end of a guest link (wire/guest.h): frames in and out of one byte stream, streams
 * told apart, windows kept. It trusts nothing: what breaks the protocol breaks the link, and every
 * call on it ends with an error. Memory per link is bounded: what may be unsent is bounded by the
 * windows, what is received is handed on at once.
 *
 *   struct call *c = link_call(link, G_READ, payload, len, &ops, arg);
 *   ... ops->on_frame(arg, G_OK | G_DATA | ..., payload, len)     consume, then call_credit()
 *   ... ops->on_end(arg, NULL | err)                              exactly once; c is gone after it
 */
#pragma once

#include "base/base.h"
#include "base/loop.h"

struct link;
struct call;

struct call_ops {
	/*
	 * G_OK (always first), then what the request says; G_END only if it has a payload. The
	 * payload is valid only during the call.
	 */
	void (*on_frame)(void *arg, uint8_t type, const void *payload, size_t len);
	/* The stream is over: by G_END, by the last answer (e NULL), or by an error of guest or link. */
	void (*on_end)(void *arg, const struct err *e);
	/* There is room in the window again; may be NULL. */
	void (*on_room)(void *arg);
	/* The call is gone, after on_end or by call_drop: for memory of arg's; may be NULL. */
	void (*on_free)(void *arg);
};

/*
 * Takes the fd. on_lost is called once when the link breaks, after all calls were ended; the owner
 * still closes the link. A guest that does not greet within 5 s, or does not answer a ping for 30 s,
 * has broken it.
 */
struct link *link_open(struct loop *l, int fd, uint64_t generation,
		       void (*on_lost)(void *arg, const struct err *e), void *arg);
/* Ends all calls with an error (without on_lost). */
void link_close(struct link *k);
/* The guest is frozen and cannot answer: no life signs are asked for. NULL: nothing. */
void link_suspend(struct link *k, bool suspended);

/* How many streams are open. */
unsigned link_open_calls(const struct link *k);

/* Sends a request; callbacks come later, never from within. NULL payload for none. Large G_EXEC
 * requests are split into G_MORE frames here. */
struct call *link_call(struct link *k, uint8_t type, const void *payload, size_t len,
		       const struct call_ops *ops, void *arg);
/* A call that ends with this error, by a callback from the loop: for a sandbox that has no link. */
struct call *call_refused(struct loop *l, const struct err *e, const struct call_ops *ops,
			  void *arg);
/* How much G_DATA may be sent now. */
size_t call_room(const struct call *c);
/* G_DATA within call_room; false: it was not sent. */
bool call_send(struct call *c, const void *bytes, size_t len);
/* As much of it as there is room for; returns how many bytes were sent. on_room tells of more room. */
size_t call_push(struct call *c, const void *bytes, size_t len);
/* G_CLOSE. */
void call_close(struct call *c);
/* The receiver consumed so many payload bytes of counted frames. */
void call_credit(struct call *c, size_t len);
/* No longer interested: G_END is sent, no callback but on_free comes any more, c is gone. NULL: nothing. */
void call_drop(struct call *c);
