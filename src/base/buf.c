#include "base/base.h"

char *buf_reserve(struct buf *b, size_t len)
{
	/* Moved only if at least as much was dropped: each byte is moved a bounded number of times. */
	if (b->at >= b->len && b->at && b->room - b->at - b->len < len) {
		memmove(b->data, b->data + b->at, b->len);
		b->at = 0;
	}
	if (b->room - b->at - b->len < len) {
		size_t room = b->room ? b->room : 512;

		while (room - b->at - b->len < len)
			room *= 2;
		b->data = must_alloc(realloc(b->data, room));
		b->room = room;
	}
	return b->data + b->at + b->len;
}

void buf_added(struct buf *b, size_t len)
{
	b->len += len;
}

void buf_add(struct buf *b, const void *bytes, size_t len)
{
	if (len == 0)
		return;
	memcpy(buf_reserve(b, len), bytes, len);
	b->len += len;
}

void buf_take_part(void *buf, const char *bytes, size_t len)
{
	buf_add(buf, bytes, len);
}

void buf_drop(struct buf *b, size_t len)
{
	b->at += len;
	b->len -= len;
	if (b->len == 0)
		b->at = 0;
	/* What a burst needed is not kept for ever. */
	if (b->len == 0 && b->room > (256u << 10))
		buf_done(b);
}

void buf_done(struct buf *b)
{
	free(b->data);
	*b = (struct buf){0};
}

size_t buf_write(struct buf *b, int fd, bool *ret_gone)
{
	size_t before = b->len;
	ssize_t n = 0;

	while (b->len > 0) {
		n = write(fd, buf_head(b), b->len);
		if (n > 0)
			buf_drop(b, (size_t)n);
		else if (n == 0 || errno != EINTR)
			break;
	}
	*ret_gone = b->len > 0 && (n == 0 || errno != EAGAIN);
	return before - b->len;
}
