/* manager: the daemon's end of a guest link, against guests that behave and guests that do not. */
#include "manager/link.h"

#include "base/auto.h"
#include "base/buf.h"
#include "base/str.h"
#include "wire/guest.h"
#include "wire/pack.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define LIMIT_MS 60000

struct seen {
	unsigned frames, ends, rooms;
	uint8_t last;
	size_t bytes;
	struct err err;
	bool drop_in_frame;
	struct call *call;
};

struct fixture {
	struct loop *loop;
	struct link *link;
	int guest;
	unsigned lost;
	bool close_when_lost, late;
	struct loop_timer limit;
};

static void on_frame(void *arg, uint8_t type, const void *payload, size_t len)
{
	struct seen *s = arg;

	(void)payload;
	s->frames++;
	s->last = type;
	s->bytes += len;
	if (s->drop_in_frame)
		call_drop(take_ptr(s->call));
}

static void on_end(void *arg, const struct err *e)
{
	struct seen *s = arg;

	s->ends++;
	if (e)
		s->err = *e;
	s->call = NULL;
}

static void on_room(void *arg)
{
	struct seen *s = arg;

	s->rooms++;
}

static const struct call_ops ops = {.on_frame = on_frame, .on_end = on_end, .on_room = on_room};

static void on_lost(void *arg, const struct err *e)
{
	struct fixture *f = arg;

	assert_int_equal(ERR_SYSTEM, e->kind);
	f->lost++;
	if (f->close_when_lost)
		link_close(take_ptr(f->link));
}

static void on_limit(void *arg)
{
	struct fixture *f = arg;

	f->late = true;
	loop_stop(f->loop);
}

static void stop(void *arg)
{
	loop_stop(arg);
}

static void step(struct fixture *f)
{
	struct loop_timer soon = {.call = stop, .arg = f->loop};

	loop_timer_set(f->loop, &soon, 1);
	loop_run(f->loop);
	loop_timer_stop(f->loop, &soon);
	assert_false(f->late);
}

#define until(f, condition)                                                                        \
	do {                                                                                       \
		while (!(condition))                                                               \
			step(f);                                                                   \
	} while (0)

static void say(struct fixture *f, uint32_t stream, uint8_t type, const void *bytes, size_t len)
{
	struct buf out = {0};

	guest_frame_add(&out, stream, type, bytes, len);
	assert_int_equal(out.len, send(f->guest, buf_head(&out), out.len, MSG_NOSIGNAL));
	buf_done(&out);
}

static void welcome(struct fixture *f, uint64_t generation)
{
	struct buf b = {0};

	pack_u32(&b, GUEST_VERSION);
	pack_u64(&b, generation);
	pack_u64(&b, 1);
	say(f, 0, G_WELCOME, buf_head(&b), b.len);
	buf_done(&b);
}

/* Reads what the daemon has said; returns the header of the n-th frame from the end. */
static struct guest_header read_frames(struct fixture *f, size_t *ret_count)
{
	static unsigned char bytes[4 << 20];
	struct guest_header h = {0};
	size_t len = 0, at = 0, count = 0;
	ssize_t n;

	while ((n = recv(f->guest, bytes + len, sizeof(bytes) - len, MSG_DONTWAIT)) > 0) {
		len += (size_t)n;
		step(f);
	}
	while (len - at >= GUEST_HEADER) {
		assert_true(guest_header_get(bytes + at, &h));
		assert_true(len - at >= GUEST_HEADER + h.size);
		at += GUEST_HEADER + h.size;
		count++;
	}
	assert_int_equal(at, len);
	if (ret_count)
		*ret_count = count;
	return h;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	int pair[2];

	f->loop = loop_new();
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	f->guest = pair[1];
	f->link = link_open(f->loop, pair[0], 7, on_lost, f);
	f->limit = (struct loop_timer){.call = on_limit, .arg = f};
	loop_timer_set(f->loop, &f->limit, LIMIT_MS);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	link_close(f->link);
	step(f);
	close(f->guest);
	loop_timer_stop(f->loop, &f->limit);
	loop_free(f->loop);
	free(f);
	return 0;
}

static void greets_and_answers(void **state)
{
	struct fixture *f = *state;
	struct seen s = {0};
	size_t count;

	link_call(f->link, G_PING, NULL, 0, &ops, &s);
	step(f);
	assert_int_equal(0, s.frames);
	assert_int_equal(G_PING, read_frames(f, &count).type);
	assert_int_equal(2, count);
	welcome(f, 7);
	say(f, 1, G_OK, NULL, 0);
	until(f, s.ends);
	assert_int_equal(1, s.frames);
	assert_int_equal(ERR_NONE, s.err.kind);
	assert_int_equal(0, link_open_calls(f->link));
	/* It is over: what still comes for it is nobody's. */
	say(f, 1, G_OK, NULL, 0);
	step(f);
	assert_int_equal(0, f->lost);
}

static void tells_errors_apart(void **state)
{
	static const struct {
		int number;
		enum err_kind kind;
	} rows[] = {{ENOENT, ERR_NOT_FOUND}, {EACCES, ERR_DENIED}, {EEXIST, ERR_CONFLICT},
		    {EINVAL, ERR_INVALID},   {ENOSPC, ERR_LIMIT},  {EIO, ERR_SYSTEM}};
	struct fixture *f = *state;

	welcome(f, 7);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct seen s = {0};
		struct buf b = {0};

		link_call(f->link, G_STAT, "", 0, &ops, &s);
		step(f);
		pack_u32(&b, (uint32_t)rows[i].number);
		pack_bytes(&b, "no\nway\033", 7);
		say(f, (uint32_t)i + 1, G_ERROR, buf_head(&b), b.len);
		buf_done(&b);
		until(f, s.ends);
		assert_int_equal(rows[i].kind, s.err.kind);
		assert_int_equal(rows[i].number, s.err.errnum);
		assert_null(strpbrk(s.err.msg, "\n\033"));
	}
}

static void keeps_windows(void **state)
{
	static const char bytes[GUEST_MAX_PAYLOAD];
	struct fixture *f = *state;
	struct seen s = {0};
	struct call *c;
	struct buf b = {0};

	welcome(f, 7);
	c = link_call(f->link, G_WRITE, "", 0, &ops, &s);
	step(f);
	say(f, 1, G_OK, NULL, 0);
	until(f, s.frames);
	assert_int_equal(GUEST_WINDOW, call_room(c));
	for (size_t sent = 0; sent < GUEST_WINDOW; sent += sizeof(bytes)) {
		assert_true(call_send(c, bytes, sizeof(bytes)));
		step(f);
		read_frames(f, NULL);
	}
	assert_int_equal(0, call_room(c));
	assert_false(call_send(c, bytes, 1));
	pack_u32(&b, 1000);
	say(f, 1, G_CREDIT, buf_head(&b), b.len);
	until(f, s.rooms);
	assert_int_equal(1000, call_room(c));
	/* More credit than was used up is a lie. */
	buf_done(&b);
	pack_u32(&b, GUEST_WINDOW);
	say(f, 1, G_CREDIT, buf_head(&b), b.len);
	until(f, f->lost);
	assert_int_equal(1, s.ends);
	buf_done(&b);
}

static void gives_credit(void **state)
{
	static const char bytes[1 << 15];
	struct fixture *f = *state;
	struct seen s = {0};
	size_t count;

	welcome(f, 7);
	s.call = link_call(f->link, G_READ, "", 0, &ops, &s);
	step(f);
	read_frames(f, NULL);
	say(f, 1, G_OK, NULL, 0);
	for (int i = 0; i < 40; i++) {
		say(f, 1, G_DATA, bytes, sizeof(bytes));
		until(f, s.frames == (unsigned)i + 2);
		call_credit(s.call, sizeof(bytes));
	}
	step(f);
	assert_int_equal(G_CREDIT, read_frames(f, &count).type);
	assert_int_equal(20, count);
	assert_int_equal(0, f->lost);
	/* Without credit the window ends. */
	for (int i = 0; i < 9; i++) {
		say(f, 1, G_DATA, bytes, sizeof(bytes));
		step(f);
	}
	until(f, f->lost);
	assert_int_equal(1, s.ends);
}

static void splits_large_requests(void **state)
{
	static char large[GUEST_MAX_PAYLOAD * 2 + 5];
	struct fixture *f = *state;
	struct seen s = {0}, t = {0};
	size_t count;

	link_call(f->link, G_EXEC, large, sizeof(large), &ops, &s);
	step(f);
	assert_int_equal(5, read_frames(f, &count).size);
	assert_int_equal(4, count);
	/* Others must fit into a frame. */
	link_call(f->link, G_STAT, large, sizeof(large), &ops, &t);
	until(f, t.ends);
	assert_int_equal(ERR_INVALID, t.err.kind);
	link_close(take_ptr(f->link));
	until(f, s.ends);
}

static void drops_calls(void **state)
{
	struct fixture *f = *state;
	struct seen s = {0}, t = {.drop_in_frame = true};

	welcome(f, 7);
	s.call = link_call(f->link, G_WATCH, "", 0, &ops, &s);
	t.call = link_call(f->link, G_EXECS, "", 0, &ops, &t);
	step(f);
	read_frames(f, NULL);
	call_drop(s.call);
	step(f);
	assert_int_equal(G_END, read_frames(f, NULL).type);
	say(f, 1, G_OK, NULL, 0);
	say(f, 2, G_OK, NULL, 0);
	say(f, 2, G_END, NULL, 0);
	until(f, t.frames);
	step(f);
	assert_int_equal(0, s.frames + s.ends + t.ends);
	assert_int_equal(0, link_open_calls(f->link));
	assert_int_equal(0, f->lost);
}

static void ends_calls_when_closed(void **state)
{
	struct fixture *f = *state;
	struct seen s = {0};

	link_call(f->link, G_PING, NULL, 0, &ops, &s);
	link_close(take_ptr(f->link));
	assert_int_equal(0, s.ends);
	until(f, s.ends);
	assert_int_equal(ERR_CONFLICT, s.err.kind);
	assert_int_equal(0, f->lost);
}

static void breaks(struct fixture *f, uint32_t stream, uint8_t type, const void *bytes, size_t len)
{
	struct seen s = {0}, late = {0};

	link_call(f->link, G_READ, "", 0, &ops, &s);
	step(f);
	say(f, stream, type, bytes, len);
	until(f, f->lost);
	assert_int_equal(1, f->lost);
	assert_int_equal(1, s.ends);
	assert_int_equal(ERR_SYSTEM, s.err.kind);
	/* A broken link still answers. */
	link_call(f->link, G_PING, NULL, 0, &ops, &late);
	assert_int_equal(0, late.ends);
	until(f, late.ends);
	assert_int_equal(ERR_SYSTEM, late.err.kind);
}

static void refuses_another_generation(void **state)
{
	struct fixture *f = *state;

	welcome(f, 6);
	until(f, f->lost);
}

static void refuses_frames_before_its_welcome(void **state)
{
	breaks(*state, 1, G_OK, NULL, 0);
}

static void refuses_unknown_types(void **state)
{
	welcome(*state, 7);
	breaks(*state, 1, 200, NULL, 0);
}

static void refuses_requests_from_a_guest(void **state)
{
	welcome(*state, 7);
	breaks(*state, 1, G_EXEC, NULL, 0);
}

static void refuses_streams_that_never_were(void **state)
{
	welcome(*state, 7);
	breaks(*state, 99, G_OK, NULL, 0);
}

static void refuses_data_before_the_answer(void **state)
{
	welcome(*state, 7);
	breaks(*state, 1, G_DATA, "x", 1);
}

static void refuses_malformed_errors(void **state)
{
	welcome(*state, 7);
	breaks(*state, 1, G_ERROR, "abc", 3);
}

static void refuses_a_second_welcome(void **state)
{
	struct fixture *f = *state;

	welcome(f, 7);
	welcome(f, 7);
	until(f, f->lost);
}

static void refuses_floods_of_small_frames(void **state)
{
	struct fixture *f = *state;
	struct seen s = {0};

	welcome(f, 7);
	link_call(f->link, G_READ, "", 0, &ops, &s);
	step(f);
	say(f, 1, G_OK, NULL, 0);
	for (int i = 0; i < 20; i++)
		say(f, 1, G_DATA, NULL, 0);
	until(f, f->lost);
}

/* Frames that use no window at all. */
static void refuses_floods_of_uncounted_frames(void **state)
{
	struct fixture *f = *state;
	struct seen s = {0};

	welcome(f, 7);
	link_call(f->link, G_READ, "", 0, &ops, &s);
	step(f);
	say(f, 1, G_OK, NULL, 0);
	for (int i = 0; i < 20; i++)
		say(f, 1, G_CLOSE, NULL, 0);
	until(f, f->lost);
}

static void takes_frames_in_pieces(void **state)
{
	struct fixture *f = *state;
	struct seen s = {0};
	struct buf out = {0};

	welcome(f, 7);
	link_call(f->link, G_READ, "", 0, &ops, &s);
	step(f);
	guest_frame_add(&out, 1, G_OK, "abc", 3);
	guest_frame_add(&out, 1, G_DATA, "defg", 4);
	guest_frame_add(&out, 1, G_END, NULL, 0);
	for (size_t i = 0; i < out.len; i++) {
		assert_int_equal(1, send(f->guest, buf_head(&out) + i, 1, MSG_NOSIGNAL));
		step(f);
	}
	until(f, s.ends);
	assert_int_equal(7, s.bytes);
	assert_int_equal(ERR_NONE, s.err.kind);
	buf_done(&out);
}

static void may_be_closed_when_lost(void **state)
{
	struct fixture *f = *state;
	struct seen s = {0};

	f->close_when_lost = true;
	link_call(f->link, G_PING, NULL, 0, &ops, &s);
	shutdown(f->guest, SHUT_RDWR);
	until(f, f->lost);
	assert_int_equal(1, s.ends);
	assert_null(f->link);
}

/* Takes five seconds: the time in which a guest has to greet. */
static void loses_a_guest_that_does_not_greet(void **state)
{
	struct fixture *f = *state;
	struct seen s = {0};

	link_call(f->link, G_PING, NULL, 0, &ops, &s);
	until(f, f->lost);
	assert_int_equal(1, s.ends);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(greets_and_answers),
		TEST(tells_errors_apart),
		TEST(keeps_windows),
		TEST(gives_credit),
		TEST(splits_large_requests),
		TEST(drops_calls),
		TEST(ends_calls_when_closed),
		TEST(refuses_another_generation),
		TEST(refuses_frames_before_its_welcome),
		TEST(refuses_unknown_types),
		TEST(refuses_requests_from_a_guest),
		TEST(refuses_streams_that_never_were),
		TEST(refuses_data_before_the_answer),
		TEST(refuses_malformed_errors),
		TEST(refuses_a_second_welcome),
		TEST(refuses_floods_of_small_frames),
		TEST(refuses_floods_of_uncounted_frames),
		TEST(takes_frames_in_pieces),
		TEST(may_be_closed_when_lost),
		TEST(loses_a_guest_that_does_not_greet),
	};

	return cmocka_run_group_tests_name("link", tests, NULL, NULL);
}
