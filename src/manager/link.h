/*
 * The daemon's end of a guest link (wire/guest.h): splits one byte stream into frames, frames into
 * calls, and keeps the windows. The guest is not trusted: a violation of the protocol breaks the link,
 * and every call on it ends with an error. Memory per link is bounded: unsent bytes by the windows;
 * received bytes are passed on at once.
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
	/* The call is over: after G_END or the last answer (e NULL), or by an error of guest or link. */
	void (*on_end)(void *arg, const struct err *e);
	/* There is room in the window again; may be NULL. */
	void (*on_room)(void *arg);
	/* The call was freed, after on_end or by call_drop: frees the memory of arg; may be NULL. */
	void (*on_free)(void *arg);
};

/*
 * Takes the fd. on_lost is called once when the link breaks, after all calls have ended; the owner
 * still has to close the link. The link also breaks if the guest does not greet within 5 s or does not
 * answer a ping for 30 s.
 */
struct link *link_open(struct loop *l, int fd, uint64_t generation,
		       void (*on_lost)(void *arg, const struct err *e), void *arg);
/* Ends all calls with an error (without on_lost). */
void link_close(struct link *k);
/* While the guest is frozen, no pings are sent. Accepts NULL. */
void link_suspend(struct link *k, bool suspended);

/* The link's work is this user's from now on; see loop.h. */
void link_set_user(struct link *k, struct loop_user *user);

/* How many streams are open. */
unsigned link_open_calls(const struct link *k);

/* Sends a request; callbacks come from the loop. payload may be NULL. Large G_EXEC requests are split
 * into G_MORE frames here. */
struct call *link_call(struct link *k, uint8_t type, const void *payload, size_t len,
		       const struct call_ops *ops, void *arg);
/* A call that ends with this error, from the loop: for a sandbox that has no link. */
struct call *call_refused(struct loop *l, const struct err *e, const struct call_ops *ops,
			  void *arg);
/* How much G_DATA may be sent now. */
size_t call_room(const struct call *c);
/* Sends G_DATA within call_room; false: nothing was sent. */
bool call_send(struct call *c, const void *bytes, size_t len);
/* Sends as many bytes as there is room for and returns their number; on_room reports new room. */
size_t call_push(struct call *c, const void *bytes, size_t len);
/* Sends G_CLOSE: no more bytes follow. */
void call_close(struct call *c);
/* The receiver has consumed this many payload bytes of counted frames. */
void call_credit(struct call *c, size_t len);
/* Cancels the call: sends G_END, calls on_free, frees c. No other callback follows. Accepts NULL. */
void call_drop(struct call *c);
