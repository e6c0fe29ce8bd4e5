/*
 * The output of a command, stdout and stderr in the order of arrival, in bounded memory. Bytes are
 * counted from 0 (seq); the oldest are dropped first.
 */
#pragma once

#include "base/base.h"

struct output_chunk {
	struct output_chunk *next;
	uint64_t seq; /* of its first byte */
	uint32_t len, room;
	uint8_t type; /* G_OUT or G_ERR */
	char data[];
};

struct output {
	struct output_chunk *first, *last;
	uint64_t next_seq;
	uint64_t kept; /* memory in use */
};

static inline uint64_t output_oldest(const struct output *o)
{
	return o->first ? o->first->seq : o->next_seq;
}

void output_add(struct output *o, uint8_t type, const char *bytes, size_t len);
/* Drops whole chunks that lie before `before` until at most `limit` bytes are kept. */
void output_trim(struct output *o, uint64_t limit, uint64_t before);
/* The chunk that holds seq, or the first one after it; NULL at the end. */
const struct output_chunk *output_find(const struct output *o, uint64_t seq);
void output_done(struct output *o);
