/*
 * A growing byte buffer that is filled at its end and emptied at its front: what waits to be sent or
 * parsed. Zero-initialised is empty. Allocation failure ends the process.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct buf {
	char *data; /* what is in it: data + at, len bytes */
	size_t at, len, room;
};

static inline char *buf_head(const struct buf *b)
{
	return b->at ? b->data + b->at : b->data; /* nothing may be added to NULL */
}

void buf_add(struct buf *b, const void *bytes, size_t len);
/* The same for those who hand over parts of a text; buf: a struct buf. */
void buf_take_part(void *buf, const char *bytes, size_t len);
/* Room for at least len bytes at the end; buf_added says how many of them were used. */
char *buf_reserve(struct buf *b, size_t len);
void buf_added(struct buf *b, size_t len);
/*
 * Writes to an fd that does not block, and takes away what was written. Returns how much that is; *ret_gone:
 * nothing can be written any more.
 */
size_t buf_write(struct buf *b, int fd, bool *ret_gone);
/* Takes len bytes away at the front. */
void buf_drop(struct buf *b, size_t len);
void buf_done(struct buf *b);
#define auto_buf __attribute__((cleanup(buf_done)))
