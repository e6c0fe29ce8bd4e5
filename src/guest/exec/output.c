/* The output of one command, kept in chunks up to a limit. */
#include "guest/exec/output.h"

enum { CHUNK_MIN = 512, CHUNK_MAX = 16384 };

static struct output_chunk *chunk_new(struct output *o, uint8_t type, size_t want)
{
	/* A command that prints little gets small chunks, one that goes on printing larger ones. */
	size_t room = o->last && o->last->room < CHUNK_MAX ? o->last->room * 2 : CHUNK_MIN;
	struct output_chunk *c;

	if (room < want)
		room = want < CHUNK_MAX ? want : CHUNK_MAX;
	if (o->last && o->last->type != type)
		room = want < CHUNK_MIN ? CHUNK_MIN : room;
	c = must_alloc(malloc(sizeof(*c) + room));
	*c = (struct output_chunk){.seq = o->next_seq, .room = (uint32_t)room, .type = type};
	if (o->last)
		o->last->next = c;
	else
		o->first = c;
	o->last = c;
	o->kept += sizeof(*c) + room;
	return c;
}

void output_add(struct output *o, uint8_t type, const char *bytes, size_t len)
{
	while (len > 0) {
		struct output_chunk *c = o->last;
		size_t part;

		if (!c || c->type != type || c->len == c->room)
			c = chunk_new(o, type, len);
		part = c->room - c->len < len ? c->room - c->len : len;
		memcpy(c->data + c->len, bytes, part);
		c->len += (uint32_t)part;
		o->next_seq += part;
		bytes += part;
		len -= part;
	}
}

void output_trim(struct output *o, uint64_t limit, uint64_t before)
{
	while (o->first && o->kept > limit && o->first->seq + o->first->len <= before) {
		struct output_chunk *c = o->first;

		o->first = c->next;
		if (!o->first)
			o->last = NULL;
		o->kept -= sizeof(*c) + c->room;
		free(c);
	}
}

const struct output_chunk *output_find(const struct output *o, uint64_t seq)
{
	const struct output_chunk *c = o->first;

	while (c && c->seq + c->len <= seq)
		c = c->next;
	return c;
}

void output_done(struct output *o)
{
	output_trim(o, 0, UINT64_MAX);
}
