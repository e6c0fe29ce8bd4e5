/* Keeps the head and the tail of an output in bounded memory; passes input on from a file. */
#include "sandbox/outside/head_tail.h"

#include <sys/ioctl.h>

/* A program may print more than is kept; one that prints without end is stopped here. */
#define FLOOD_FACTOR 16
#define FLOOD_MIN (64u << 20)

void head_tail_init(struct head_tail *s, int fd, size_t limit)
{
	*s = (struct head_tail){.fd = fd, .relay = -1, .limit = limit};
	s->head_room = limit - limit / 2;
	s->ring_room = limit / 2;
}

/* Takes bytes from the budget; false: it has too few left. */
static bool take_budget(struct head_tail *s, size_t bytes)
{
	if (!budget_take(s->budget, bytes)) {
		s->starved = true;
		return false;
	}
	s->held += bytes;
	return true;
}

static void keep_tail(struct head_tail *s, const char *data, size_t n)
{
	if (!s->ring && s->ring_room && !take_budget(s, s->ring_room))
		s->ring_room = 0;
	if (!s->ring && s->ring_room)
		s->ring = must_alloc(malloc(s->ring_room));
	if (n > s->ring_room) {
		data += n - s->ring_room;
		n = s->ring_room;
	}
	while (n > 0) {
		size_t part = s->ring_room - s->ring_at < n ? s->ring_room - s->ring_at : n;

		memcpy(s->ring + s->ring_at, data, part);
		s->ring_at = (s->ring_at + part) % s->ring_room;
		s->ring_len = s->ring_len + part > s->ring_room ? s->ring_room : s->ring_len + part;
		data += part;
		n -= part;
	}
}

static bool grow_head(struct head_tail *s, size_t need)
{
	size_t size = need * 2 < s->head_room ? need * 2 : s->head_room;
	size_t had = s->head_size > HEAD_TAIL_FREE ? s->head_size : HEAD_TAIL_FREE;

	if (need <= HEAD_TAIL_FREE && size > HEAD_TAIL_FREE)
		size = HEAD_TAIL_FREE;
	if (size > had && !take_budget(s, size - had))
		return false;
	s->head = must_alloc(realloc(s->head, size));
	s->head_size = size;
	return true;
}

/* Returns how many bytes are kept; if not all, no later byte goes to the head. */
static size_t keep_head(struct head_tail *s, const char *data, size_t n)
{
	if (s->head_len + n > s->head_size && !grow_head(s, s->head_len + n)) {
		s->head_room = s->head_size > HEAD_TAIL_FREE ? s->head_size : HEAD_TAIL_FREE;
		n = s->head_room - s->head_len < n ? s->head_room - s->head_len : n;
		if (s->head_size < s->head_room)
			s->head = must_alloc(realloc(s->head, s->head_size = s->head_room));
	}
	memcpy(s->head + s->head_len, data, n);
	s->head_len += n;
	return n;
}

void head_tail_add(struct head_tail *s, const char *data, size_t n)
{
	size_t to_head = s->head_room - s->head_len < n ? s->head_room - s->head_len : n;

	s->total += n;
	if (to_head)
		to_head = keep_head(s, data, to_head);
	if (n > to_head)
		keep_tail(s, data + to_head, n - to_head);
}

/* If the file cannot be written, the command sees a closed pipe. */
static void relay_output(struct head_tail *s, const char *data, size_t n)
{
	if (io_write_all(s->relay, data, n) == 0)
		return;
	s->relay_errno = errno;
	close_fd(&s->fd);
}

ssize_t head_tail_read(struct head_tail *s)
{
	static char buf[64 << 10];
	ssize_t n = read(s->fd, buf, sizeof(buf));

	if (n > 0 && s->relay >= 0)
		relay_output(s, buf, (size_t)n);
	else if (n > 0)
		head_tail_add(s, buf, (size_t)n);
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		close_fd(&s->fd);
	return n;
}

void head_tail_drain(struct head_tail *s)
{
	int left = 0;

	if (s->fd >= 0)
		ioctl(s->fd, FIONREAD, &left);
	while (left > 0 && s->fd >= 0) {
		ssize_t n = head_tail_read(s);

		left -= n > 0 ? (int)n : 0;
	}
	close_fd(&s->fd);
}

bool head_tail_is_flood(const struct head_tail *s)
{
	return s->relay < 0 && s->total > FLOOD_MIN && s->total / FLOOD_FACTOR > s->limit;
}

void head_tail_peek(const struct head_tail *s,
		    void (*add)(void *arg, const char *bytes, size_t len), void *arg)
{
	size_t start = s->ring_room ? (s->ring_at + s->ring_room - s->ring_len) % s->ring_room : 0;
	size_t first = s->ring_len < s->ring_room - start ? s->ring_len : s->ring_room - start;

	if (s->head_len)
		add(arg, s->head, s->head_len);
	if (s->ring_len) {
		add(arg, s->ring + start, first);
		add(arg, s->ring, s->ring_len - first);
	}
}

void head_tail_finish(struct head_tail *s, struct capture *ret)
{
	size_t start = s->ring_room ? (s->ring_at + s->ring_room - s->ring_len) % s->ring_room : 0;
	char *tail = must_alloc(malloc(s->ring_len + 1));
	size_t first = s->ring_len < s->ring_room - start ? s->ring_len : s->ring_room - start;

	if (s->ring_len) {
		memcpy(tail, s->ring + start, first);
		memcpy(tail + first, s->ring, s->ring_len - first);
	}
	*ret = (struct capture){.total = s->total};
	if (s->total > s->head_len + s->ring_len) {
		ret->head = take_ptr(s->head);
		ret->head_len = s->head_len;
		ret->tail = tail;
		ret->tail_len = s->ring_len;
	} else {
		ret->head = must_alloc(realloc(take_ptr(s->head), s->head_len + s->ring_len + 1));
		memcpy(ret->head + s->head_len, tail, s->ring_len);
		ret->head_len = s->head_len + s->ring_len;
		free(tail);
	}
	free(take_ptr(s->ring));
	s->ring_len = s->ring_room = 0;
}

void head_tail_done(struct head_tail *s)
{
	close_fd(&s->fd);
	free(s->head);
	free(s->ring);
	s->head = s->ring = NULL;
	budget_give(s->budget, s->held);
	s->held = 0;
}

/* ---- input ---- */

void stdin_relay_done(struct stdin_relay *f)
{
	close_fd(&f->to);
	close_fd(&f->from);
}

void stdin_relay_move(struct stdin_relay *f)
{
	static char buf[64 << 10];
	ssize_t n;

	if (f->at == f->len) {
		n = read(f->from, buf, sizeof(buf));
		if (n <= 0) {
			if (n == 0 || errno != EINTR)
				stdin_relay_done(f);
			return;
		}
		f->at = 0;
		f->len = (size_t)n;
	}
	n = write(f->to, buf + f->at, f->len - f->at);
	if (n > 0)
		f->at += (size_t)n;
	else if (n < 0 && errno != EAGAIN && errno != EINTR)
		stdin_relay_done(f);
}
