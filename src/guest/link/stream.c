/* Streams of the guest protocol: the table of open streams, sending, receiving. */
#include "guest/link/stream.h"

#include "guest/link/server.h"

/* ---- open streams ---- */

static struct guest_stream **bucket_of(struct guest *g, uint32_t number)
{
	return &g->buckets[number % SERVER_BUCKETS];
}

struct guest_stream *stream_find(struct guest *g, uint32_t number)
{
	struct guest_stream *s = *bucket_of(g, number);

	while (s && s->number != number)
		s = s->bucket_next;
	return s;
}

static void link_last(struct guest *g, struct guest_stream *s)
{
	s->next = NULL;
	s->back = g->streams_end;
	*g->streams_end = s;
	g->streams_end = &s->next;
}

static void unlink_stream(struct guest *g, struct guest_stream *s)
{
	*s->back = s->next;
	if (s->next)
		s->next->back = s->back;
	else
		g->streams_end = s->back;
}

struct guest_stream *stream_new(struct guest *g, uint32_t number)
{
	struct guest_stream *s = must_alloc(calloc(1, sizeof(*s)));
	struct guest_stream **bucket = bucket_of(g, number);

	s->guest = g;
	s->number = number;
	s->window = GUEST_WINDOW;
	s->bucket_next = *bucket;
	*bucket = s;
	link_last(g, s);
	g->stream_count++;
	return s;
}

void stream_drop(struct guest_stream *s)
{
	struct guest *g = s->guest;
	struct guest_stream **p = bucket_of(g, s->number);

	while (*p != s)
		p = &(*p)->bucket_next;
	*p = s->bucket_next;
	unlink_stream(g, s);
	g->stream_count--;
	free(s);
}

/* ---- sending ---- */

void stream_send(struct guest_stream *s, uint8_t type, const void *payload, size_t len)
{
	struct buf *out = server_out(s->guest);

	if (!out)
		return;
	guest_frame_add(out, s->number, type, payload, len);
	server_wake(s->guest);
}

void stream_ok(struct guest_stream *s, const struct buf *payload)
{
	s->answered = true;
	stream_send(s, G_OK, payload && payload->len ? buf_head(payload) : NULL,
		    payload ? payload->len : 0);
	if (!s->ops)
		stream_drop(s);
	else if (s->ops->pump)
		server_wake(s->guest);
}

void stream_pack_error(struct buf *b, int errnum, const char *fmt, va_list args)
{
	char text[512];

	vsnprintf(text, sizeof(text), fmt, args);
	pack_u32(b, (uint32_t)errnum);
	pack_str(b, text);
}

void stream_error(struct guest_stream *s, int errnum, const char *fmt, ...)
{
	auto_buf struct buf b = {0};
	va_list args;

	va_start(args, fmt);
	stream_pack_error(&b, errnum, fmt, args);
	va_end(args);
	stream_send(s, G_ERROR, buf_head(&b), b.len);
	stream_drop(s);
}

void stream_go_on(struct guest_stream *s, const struct stream_ops *ops, void *arg)
{
	s->ops = ops;
	s->arg = arg;
}

void stream_end(struct guest_stream *s, const void *payload, size_t len)
{
	stream_send(s, G_END, payload, len);
	stream_drop(s);
}

size_t stream_room(const struct guest_stream *s)
{
	const struct buf *out = server_out(s->guest);

	if (!out || out->len >= SERVER_HIGH)
		return 0;
	return s->window < GUEST_MAX_PAYLOAD ? s->window : GUEST_MAX_PAYLOAD;
}

char *stream_reserve(struct guest_stream *s, size_t max)
{
	return buf_reserve(server_out(s->guest), GUEST_HEADER + max) + GUEST_HEADER;
}

void stream_commit(struct guest_stream *s, uint8_t type, size_t len)
{
	struct buf *out = server_out(s->guest);
	struct guest_header h = {(uint32_t)len, s->number, type};

	guest_header_put((unsigned char *)buf_head(out) + out->len, &h);
	buf_added(out, GUEST_HEADER + len);
	s->window -= len;
	server_wake(s->guest);
}

ssize_t stream_splice(struct guest_stream *s, uint8_t type, int fd, uint64_t offset, size_t max)
{
	struct guest_header like = {.stream = s->number, .type = type};
	ssize_t n = server_splice(s->guest, &like, fd, offset, max);

	if (n > 0) {
		s->window -= (size_t)n;
		server_wake(s->guest);
	}
	return n;
}

void stream_put(struct guest_stream *s, uint8_t type, const void *payload, size_t len)
{
	stream_send(s, type, payload, len);
	s->window -= len;
}

void stream_credit(struct guest_stream *s, size_t len)
{
	auto_buf struct buf b = {0};

	s->owed += len;
	if (s->owed < GUEST_WINDOW / 4)
		return;
	pack_u32(&b, (uint32_t)s->owed);
	stream_send(s, G_CREDIT, buf_head(&b), b.len);
	s->unpaid -= s->owed;
	s->owed = 0;
}

void stream_write_waiting(struct guest_stream *s, struct buf *waiting, int fd)
{
	bool gone = fd < 0;
	size_t done = gone ? 0 : buf_write(waiting, fd, &gone);

	if (gone) {
		done += waiting->len;
		buf_drop(waiting, waiting->len);
	}
	stream_credit(s, done);
}

/* ---- receiving ---- */

static bool take_credit(struct guest_stream *s, const char *payload, size_t len)
{
	struct unpack u = unpack_from(payload, len);
	uint32_t credit = unpack_u32(&u);

	if (!unpack_is_done(&u) || credit > GUEST_WINDOW - s->window)
		return false;
	s->window += credit;
	server_wake(s->guest);
	return true;
}

static bool take_data(struct guest_stream *s, const char *payload, size_t len)
{
	if (len > GUEST_WINDOW - s->unpaid)
		return false;
	s->unpaid += len;
	if (s->ops && s->ops->on_data)
		s->ops->on_data(s->arg, payload, len);
	else
		stream_credit(s, len);
	return true;
}

static void stream_lose(struct guest_stream *s)
{
	const struct stream_ops *ops = s->ops;
	void *arg = s->arg;

	stream_drop(s);
	if (ops && ops->on_end)
		ops->on_end(arg);
}

bool stream_take(struct guest_stream *s, uint8_t type, const char *payload, size_t len)
{
	switch (type) {
	case G_DATA:
		return take_data(s, payload, len);
	case G_CREDIT:
		return take_credit(s, payload, len);
	case G_CLOSE:
		if (s->ops && s->ops->on_close)
			s->ops->on_close(s->arg);
		return len == 0;
	case G_END:
		stream_lose(s);
		return len == 0;
	default:
		return false;
	}
}

void stream_lose_all(struct guest *g)
{
	while (g->streams)
		stream_lose(g->streams);
}

void stream_pump_all(struct guest *g)
{
	/*
	 * Each stream moves to the end of the list before its turn: it may end itself or others
	 * meanwhile.
	 */
	for (size_t n = g->stream_count; n > 0 && g->streams; n--) {
		struct guest_stream *s = g->streams;

		unlink_stream(g, s);
		link_last(g, s);
		if (s->answered && s->ops && s->ops->pump && stream_room(s) > 0)
			s->ops->pump(s->arg);
	}
}
