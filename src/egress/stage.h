/*
 * What stands between the bytes of a program inside and those of its server, if more is understood of a
 * connection than TCP: HTTP checks (http_filter.c), HTTP/2 (h2.c), TLS in the middle (inspect.c), which holds one
 * of the other two. A stage does no input or output. Its caller
 *
 *   - reads from a side only while stage_wants(side), and passes the bytes to stage_feed;
 *   - sends out[side] to that side, and calls stage_drained after some of it was sent;
 *   - tells the end of what a side sends with stage_end;
 *   - when out[side] is sent and closing[side] is set, shuts writing to that side down.
 *
 * The connection is over when both sides are closed.
 */
#pragma once

#include "base/base.h"

enum stage_side { STAGE_CLIENT, STAGE_SERVER };

/* So many bytes may wait for one side; then nothing more is read from the other. */
#define STAGE_FULL (128u << 10)

struct stage;
struct stage_ops {
	void (*feed)(struct stage *s, enum stage_side from, const char *bytes, size_t len);
	void (*end)(struct stage *s, enum stage_side from);
	void (*drained)(struct stage *s);
	/* May be NULL: whenever there is room. */
	bool (*wants)(const struct stage *s, enum stage_side from);
	size_t (*held)(const struct stage *s); /* bytes that wait in it */
	/* The server cannot be reached: says so to the client, if it can be said. */
	void (*fail)(struct stage *s, int status, const char *why);
	void (*free)(struct stage *s);
};

struct stage {
	const struct stage_ops *ops;
	struct buf out[2]; /* by the side that it is for */
	bool closing[2];
};

static inline enum stage_side stage_other(enum stage_side side)
{
	return side == STAGE_CLIENT ? STAGE_SERVER : STAGE_CLIENT;
}

static inline bool stage_wants(const struct stage *s, enum stage_side from)
{
	return s->out[stage_other(from)].len < STAGE_FULL &&
	       (!s->ops->wants || s->ops->wants(s, from));
}

static inline void stage_feed(struct stage *s, enum stage_side from, const char *bytes, size_t len)
{
	s->ops->feed(s, from, bytes, len);
}

static inline void stage_end(struct stage *s, enum stage_side from)
{
	s->ops->end(s, from);
}

static inline void stage_drained(struct stage *s)
{
	if (s->ops->drained)
		s->ops->drained(s);
}

static inline size_t stage_held(const struct stage *s)
{
	return s->out[STAGE_CLIENT].len + s->out[STAGE_SERVER].len + s->ops->held(s);
}

static inline void stage_fail(struct stage *s, int status, const char *why)
{
	s->ops->fail(s, status, why);
}

static inline bool stage_is_over(const struct stage *s)
{
	return s->closing[STAGE_CLIENT] && s->closing[STAGE_SERVER] && !s->out[STAGE_CLIENT].len &&
	       !s->out[STAGE_SERVER].len;
}

static inline void stage_free(struct stage *s)
{
	if (s)
		s->ops->free(s);
}
