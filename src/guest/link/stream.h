/*
 * One stream of the guest protocol, as a request's handler sees it.
 *
 * A handler reads its request and ends in exactly one of
 *   stream_ok()            the answer; ends the stream unless stream_go_on() was called before
 *   stream_error()         always ends the stream
 * now or later. A stream that goes on ends by stream_end() or stream_error(), or by the other side:
 * then on_end is called, once, and the stream is gone.
 */
#pragma once

#include "base/base.h"
#include "wire/guest.h"
#include "wire/pack.h"

#include <stdarg.h>

struct guest;
struct guest_stream;

struct stream_ops {
	/* G_DATA; consumed bytes are given back by stream_credit. NULL: data is dropped. */
	void (*on_data)(void *arg, const char *bytes, size_t len);
	void (*on_close)(void *arg);
	/* There may be room to send. */
	void (*pump)(void *arg);
	/*
	 * The other side ended the stream, or the link is gone: then server_out is NULL. Not called
	 * after our own end.
	 */
	void (*on_end)(void *arg);
};

struct guest_stream {
	struct guest *guest;
	uint32_t number;
	const struct stream_ops *ops; /* NULL: ends with its answer */
	void *arg;
	size_t window; /* bytes that may be sent */
	size_t unpaid; /* bytes received and not given back */
	size_t owed;   /* of these, bytes consumed: given back in larger pieces */
	bool answered;
	struct guest_stream *next, **back; /* of all */
	struct guest_stream *bucket_next;
};

void stream_ok(struct guest_stream *s, const struct buf *payload);
/* %m in fmt is the text of errno. */
void stream_error(struct guest_stream *s, int errnum, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Packs the payload of an error: the number and the text. */
void stream_pack_error(struct buf *b, int errnum, const char *fmt, va_list args)
	__attribute__((format(printf, 3, 0)));
/* The stream goes on after its answer; to be called before stream_ok. */
void stream_go_on(struct guest_stream *s, const struct stream_ops *ops, void *arg);
/* A small frame that counts against no window. */
void stream_send(struct guest_stream *s, uint8_t type, const void *payload, size_t len);
/* Frees the stream; its last frame was sent. */
void stream_drop(struct guest_stream *s);
/* G_END with an optional payload. */
void stream_end(struct guest_stream *s, const void *payload, size_t len);

/* How many payload bytes of counted frames may be sent now; at most one frame's. */
size_t stream_room(const struct guest_stream *s);
/* One counted frame of at most stream_room bytes. */
void stream_put(struct guest_stream *s, uint8_t type, const void *payload, size_t len);
/* The same without a copy: room for max bytes, of which commit says how many are used. */
char *stream_reserve(struct guest_stream *s, size_t max);
void stream_commit(struct guest_stream *s, uint8_t type, size_t len);
/* The same from a file, as server_splice. */
ssize_t stream_splice(struct guest_stream *s, uint8_t type, int fd, uint64_t offset, size_t max);
/* len bytes of G_DATA were consumed. */
void stream_credit(struct guest_stream *s, size_t len);
/*
 * Writes what waits to an fd that does not block, and gives credit for it. If nothing can be
 * written any more (or fd is -1), drops the rest.
 */
void stream_write_waiting(struct guest_stream *s, struct buf *waiting, int fd);

/* ---- for server.c ---- */
struct guest_stream *stream_new(struct guest *g, uint32_t number);
struct guest_stream *stream_find(struct guest *g, uint32_t number);
/* Takes the other side's frame on an open stream; false: it breaks the protocol. */
bool stream_take(struct guest_stream *s, uint8_t type, const char *payload, size_t len);
/* All streams end: the link is lost. */
void stream_lose_all(struct guest *g);
/* Lets every stream send once. */
void stream_pump_all(struct guest *g);
