/* calls: typed calls and the pump, against a guest that behaves and one that does not. */

/* The module itself, so that a sandbox of the test's own stands in for the manager's. */
#define sandbox_call test_sandbox_call
#include "calls/calls.c" /* NOLINT(bugprone-suspicious-include) */

#include "base/auto.h"
#include "base/buf.h"
#include "base/str.h"
#include "wire/guest.h"
#include "wire/pack.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

struct sandbox {
	struct loop *loop;
	struct link *link; /* NULL: not running */
	int guest;
	struct loop_timer limit;
	bool late;
};

struct call *sandbox_call(struct sandbox *s, uint8_t type, const void *payload, size_t len,
			  const struct call_ops *ops, void *arg)
{
	struct err e = {.kind = ERR_CONFLICT};

	return s->link ? link_call(s->link, type, payload, len, ops, arg)
		       : call_refused(s->loop, &e, ops, arg);
}

struct seen {
	unsigned done, begun, bytes, files, matches, changes, closed;
	struct err err;
	struct file_info info;
	struct answer answer;
	size_t len;
	char text[64];
	struct call *drop; /* by the next callback */
};

static void on_done(void *arg, const struct answer *a, const struct err *e)
{
	struct seen *s = arg;

	assert_true(!a != !e);
	s->done++;
	if (e)
		s->err = *e;
	if (a)
		s->answer = *a;
	if (a && a->info)
		s->info = *a->info;
	if (a && a->xattr_count)
		snprintf(s->text, sizeof(s->text), "%s=%s", a->xattrs[0].name, a->xattrs[0].value);
	if (a && a->len)
		snprintf(s->text, sizeof(s->text), "%.*s", (int)a->len, a->bytes);
}

static void on_begin(void *arg, const struct file_info *info)
{
	struct seen *s = arg;

	s->begun++;
	if (info)
		s->info = *info;
}

static void on_bytes(void *arg, const void *bytes, size_t len)
{
	struct seen *s = arg;

	(void)bytes;
	s->bytes++;
	s->len += len;
	call_drop(take_ptr(s->drop));
}

static void on_file(void *arg, const struct file_info *info)
{
	struct seen *s = arg;

	s->files++;
	s->info = *info;
}

static void on_match(void *arg, const struct file_match *m)
{
	struct seen *s = arg;

	s->matches++;
	snprintf(s->text, sizeof(s->text), "%s:%u:%.*s", m->path, (unsigned)m->line, (int)m->len,
		 m->text);
}

static void on_change(void *arg, const struct file_change *c)
{
	struct seen *s = arg;

	s->changes++;
	snprintf(s->text, sizeof(s->text), "%d %s %d", c->kind, c->path, c->is_dir);
}

static void on_closed(void *arg)
{
	((struct seen *)arg)->closed++;
}

static struct receiver receiver_of(struct seen *s)
{
	return (struct receiver){.begin = on_begin,
				 .bytes = on_bytes,
				 .file = on_file,
				 .match = on_match,
				 .change = on_change,
				 .closed = on_closed,
				 .done = on_done,
				 .arg = s};
}

/* ---- the guest ---- */

static void stop(void *arg)
{
	loop_stop(arg);
}

static void on_limit(void *arg)
{
	struct sandbox *s = arg;

	s->late = true;
	loop_stop(s->loop);
}

static void step(struct sandbox *s)
{
	struct loop_timer soon = {.call = stop, .arg = s->loop};

	loop_timer_set(s->loop, &soon, 1);
	loop_run(s->loop);
	loop_timer_stop(s->loop, &soon);
	assert_false(s->late);
}

#define until(s, condition)                                                                        \
	do {                                                                                       \
		while (!(condition))                                                               \
			step(s);                                                                   \
	} while (0)

static void say(struct sandbox *s, uint32_t stream, uint8_t type, struct buf *payload)
{
	struct buf out = {0};

	guest_frame_add(&out, stream, type, payload ? buf_head(payload) : NULL,
			payload ? payload->len : 0);
	assert_int_equal(out.len, send(s->guest, buf_head(&out), out.len, MSG_NOSIGNAL));
	buf_done(&out);
	if (payload)
		buf_done(payload);
}

/* The last frame that the daemon has sent; *ret_data: bytes of G_DATA among them. */
static struct guest_header hear(struct sandbox *s, size_t *ret_data)
{
	static unsigned char bytes[4 << 20];
	struct guest_header h = {0};
	size_t len = 0, at = 0, data = 0;
	ssize_t n;

	step(s);
	while ((n = recv(s->guest, bytes + len, sizeof(bytes) - len, MSG_DONTWAIT)) > 0) {
		len += (size_t)n;
		step(s);
	}
	while (at < len) {
		assert_true(guest_header_get(bytes + at, &h));
		at += GUEST_HEADER + h.size;
		data += h.type == G_DATA ? h.size : 0;
	}
	assert_int_equal(at, len);
	if (ret_data)
		*ret_data = data;
	return h;
}

static struct buf stat_of(const char *path, uint64_t size)
{
	struct buf b = {0};

	pack_str(&b, path);
	pack_u8(&b, 'f');
	pack_u32(&b, 0640);
	pack_u32(&b, 1000);
	pack_u32(&b, 1001);
	pack_u64(&b, size);
	pack_u64(&b, 5);
	pack_str(&b, "user");
	pack_str(&b, "group");
	pack_str(&b, "");
	return b;
}

static int setup(void **state)
{
	struct sandbox *s = calloc(1, sizeof(*s));
	struct buf b = {0};
	int pair[2];

	s->loop = loop_new();
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	s->guest = pair[1];
	s->link = link_open(s->loop, pair[0], 7, NULL, s);
	s->limit = (struct loop_timer){.call = on_limit, .arg = s};
	loop_timer_set(s->loop, &s->limit, 60000);
	pack_u32(&b, GUEST_VERSION);
	pack_u64(&b, 7);
	pack_u64(&b, 1);
	say(s, 0, G_WELCOME, &b);
	*state = s;
	return 0;
}

static int teardown(void **state)
{
	struct sandbox *s = *state;

	link_close(s->link);
	step(s);
	close(s->guest);
	loop_timer_stop(s->loop, &s->limit);
	loop_free(s->loop);
	free(s);
	return 0;
}

/* ---- one question, one answer ---- */

static void answers_are_parsed(void **state)
{
	struct sandbox *s = *state;
	struct seen stat = {0}, made = {0}, gone = {0}, xattrs = {0};
	struct buf b = stat_of("/a", 77);

	call_stat(s, "/a", true, on_done, &stat);
	assert_int_equal(0, stat.done);
	assert_int_equal(G_STAT, hear(s, NULL).type);
	say(s, 1, G_OK, &b);
	until(s, stat.done);
	assert_string_equal("/a", stat.info.path);
	assert_int_equal('f', stat.info.kind);
	assert_int_equal(0640, stat.info.mode);
	assert_int_equal(77, stat.info.size);
	assert_string_equal("group", stat.info.group);

	call_mkdir(s, "/b", 0755, true, on_done, &made);
	pack_u8(&b, 1);
	hear(s, NULL);
	say(s, 2, G_OK, &b);
	until(s, made.done);
	assert_true(made.answer.created);

	call_remove(s, "/b", true, on_done, &gone);
	pack_u32(&b, ENOENT);
	pack_str(&b, "no");
	hear(s, NULL);
	say(s, 3, G_ERROR, &b);
	until(s, gone.done);
	assert_int_equal(ERR_NOT_FOUND, gone.err.kind);

	call_xattr_list(s, "/b", on_done, &xattrs);
	pack_u32(&b, 1);
	pack_str(&b, "user.k");
	pack_str(&b, "v");
	hear(s, NULL);
	say(s, 4, G_OK, &b);
	until(s, xattrs.done);
	assert_string_equal("user.k=v", xattrs.text);
	assert_int_equal(0, link_open_calls(s->link));
}

static void a_malformed_answer_is_an_error(void **state)
{
	struct sandbox *s = *state;
	struct seen stat = {0}, made = {0}, xattrs = {0}, read = {0}, list = {0}, watch = {0};
	struct receiver r;
	struct buf b = {0};

	call_stat(s, "/a", true, on_done, &stat);
	call_mkdir(s, "/a", 0, true, on_done, &made);
	call_xattr_list(s, "/a", on_done, &xattrs);
	r = receiver_of(&read);
	call_read(s, "/a", 0, 1, &r);
	r = receiver_of(&list);
	call_list(s, "/a", 1, &r);
	r = receiver_of(&watch);
	call_watch(s, "/a", true, &r);
	hear(s, NULL);
	b = stat_of("/a", UINT64_MAX);
	say(s, 1, G_OK, &b);
	say(s, 2, G_OK, NULL);
	pack_u32(&b, 0x10000000);
	say(s, 3, G_OK, &b);
	say(s, 4, G_OK, NULL);
	say(s, 5, G_OK, NULL);
	pack_u8(&b, 3);
	say(s, 5, G_ITEM, &b);
	say(s, 6, G_OK, NULL);
	pack_u8(&b, 6);
	pack_str(&b, "/a");
	pack_u8(&b, 0);
	say(s, 6, G_ITEM, &b);
	until(s, watch.done);
	assert_int_equal(EBADMSG, stat.err.errnum);
	assert_int_equal(EBADMSG, made.err.errnum);
	assert_int_equal(EBADMSG, xattrs.err.errnum);
	assert_int_equal(EBADMSG, read.err.errnum);
	assert_int_equal(0, read.begun);
	assert_int_equal(EBADMSG, list.err.errnum);
	assert_int_equal(EBADMSG, watch.err.errnum);
	assert_int_equal(ERR_SYSTEM, watch.err.kind);
	assert_int_equal(0, link_open_calls(s->link));
}

static void a_stopped_sandbox_is_an_error_later(void **state)
{
	struct sandbox *s = *state, stopped = {.loop = s->loop};
	struct seen stat = {0}, put = {0}, dropped = {0};
	struct receiver r = receiver_of(&dropped);
	struct pump p = {0};

	call_stat(&stopped, "/a", true, on_done, &stat);
	call_put(&stopped, &(struct file_put){"/a", 0644, "x", 1}, on_done, &put);
	r.pump = &p;
	call_drop(call_read(&stopped, "/a", 0, 1, &r));
	assert_null(p.from);
	assert_int_equal(0, stat.done + put.done);
	until(s, stat.done && put.done);
	assert_int_equal(ERR_CONFLICT, stat.err.kind);
	assert_int_equal(ERR_CONFLICT, put.err.kind);
	assert_int_equal(0, dropped.done);
}

/* ---- streams ---- */

static void items_are_parsed(void **state)
{
	struct sandbox *s = *state;
	struct seen search = {0}, watch = {0}, list = {0};
	struct receiver r = receiver_of(&search);
	struct buf b = {0};

	call_search(s, &(struct file_search){.path = "/", .most = 5}, &r);
	r = receiver_of(&watch);
	call_drop(call_watch(s, "/", true, &r));
	r = receiver_of(&list);
	call_list(s, "/", 1, &r);
	hear(s, NULL);
	say(s, 1, G_OK, NULL);
	pack_str(&b, "/a");
	pack_u64(&b, 3);
	pack_str(&b, "text");
	say(s, 1, G_ITEM, &b);
	pack_u8(&b, 1);
	say(s, 1, G_END, &b);
	say(s, 3, G_OK, NULL);
	b = stat_of("/c", 1);
	say(s, 3, G_ITEM, &b);
	say(s, 3, G_END, NULL);
	until(s, search.done && list.done);
	assert_string_equal("/a:3:text", search.text);
	assert_true(search.answer.cut);
	assert_string_equal("/c", list.info.path);
	assert_false(list.answer.cut);
	assert_int_equal(0, watch.done);
}

static void a_put_is_paced_by_the_guest(void **state)
{
	struct sandbox *s = *state;
	static char bytes[3 * GUEST_WINDOW];
	struct seen put = {0};
	struct buf b = {0};
	size_t sent = 0, part;

	call_put(s, &(struct file_put){"/a", 0644, bytes, sizeof(bytes)}, on_done, &put);
	hear(s, NULL);
	say(s, 1, G_OK, NULL);
	while (sent < sizeof(bytes)) {
		hear(s, &part);
		assert_true(part > 0 && part <= GUEST_WINDOW);
		sent += part;
		pack_u32(&b, (uint32_t)part);
		say(s, 1, G_CREDIT, &b);
	}
	assert_int_equal(sizeof(bytes), sent);
	pack_u64(&b, sent);
	say(s, 1, G_DONE, &b);
	say(s, 1, G_END, NULL);
	until(s, put.done);
	assert_int_equal(sent, put.answer.count);
}

static void an_unfinished_write_is_an_error(void **state)
{
	struct sandbox *s = *state;
	struct seen put = {0};

	call_put(s, &(struct file_put){"/a", 0644, "", 0}, on_done, &put);
	hear(s, NULL);
	say(s, 1, G_OK, NULL);
	say(s, 1, G_END, NULL);
	until(s, put.done);
	assert_int_equal(ERR_SYSTEM, put.err.kind);
}

static void a_get_is_bounded(void **state)
{
	struct sandbox *s = *state;
	struct seen get = {0};
	struct buf b = stat_of("/a", 10);

	call_get(s, &(struct file_get){"/a", 4, 0}, on_done, &get);
	hear(s, NULL);
	say(s, 1, G_OK, &b);
	buf_add(&b, "0123456789", 10);
	say(s, 1, G_DATA, &b);
	say(s, 1, G_END, NULL);
	until(s, get.done);
	assert_string_equal("0123", get.text);
	assert_int_equal(10, get.info.size);
}

static size_t room;

static size_t room_of(void *to)
{
	(void)to;
	return room;
}

static void data(struct sandbox *s, uint32_t stream, size_t len)
{
	struct buf b = {0};

	memset(buf_reserve(&b, len), 'x', len);
	buf_added(&b, len);
	say(s, stream, G_DATA, &b);
	step(s); /* or the socket is full */
}

static void a_client_without_room_stops_the_guest(void **state)
{
	struct sandbox *s = *state;
	struct seen read = {0};
	struct pump p = {.room = room_of};
	struct receiver r = receiver_of(&read);
	struct buf b = stat_of("/a", 10);

	r.pump = &p;
	call_read(s, "/a", 0, UINT64_MAX, &r);
	hear(s, NULL);
	say(s, 1, G_OK, &b);
	room = 0;
	for (unsigned i = 0; i < 4; i++)
		data(s, 1, GUEST_MAX_PAYLOAD);
	until(s, read.len == GUEST_WINDOW);
	assert_int_equal(0, hear(s, NULL).type);
	pump_resume(&p);
	assert_int_equal(0, hear(s, NULL).type);
	room = 1;
	pump_resume(&p);
	assert_int_equal(G_CREDIT, hear(s, NULL).type);
	say(s, 1, G_END, NULL);
	until(s, read.done);
	assert_null(p.from);
	pump_resume(&p);
}

static void a_callback_may_drop_its_call(void **state)
{
	struct sandbox *s = *state;
	struct seen seen = {0};
	struct pump p = {0};
	struct receiver r = receiver_of(&seen);

	r.pump = &p;
	seen.drop = call_connect(s, 80, &r);
	hear(s, NULL);
	say(s, 1, G_OK, NULL);
	data(s, 1, 5);
	until(s, seen.bytes);
	assert_null(p.from);
	assert_int_equal(G_END, hear(s, NULL).type);
	assert_int_equal(0, seen.done);
	assert_int_equal(0, link_open_calls(s->link));
}

static void a_port_is_half_closed(void **state)
{
	struct sandbox *s = *state;
	struct seen seen = {0};
	struct receiver r = receiver_of(&seen);
	struct call *c = call_connect(s, 80, &r);
	size_t sent;

	hear(s, NULL);
	say(s, 1, G_OK, NULL);
	until(s, seen.begun);
	assert_int_equal(3, call_push(c, "abc", 3));
	assert_int_equal(G_DATA, hear(s, &sent).type);
	assert_int_equal(3, sent);
	say(s, 1, G_CLOSE, NULL);
	until(s, seen.closed);
	say(s, 1, G_END, NULL);
	until(s, seen.done);
	assert_int_equal(ERR_NONE, seen.err.kind);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(answers_are_parsed, setup, teardown),
		cmocka_unit_test_setup_teardown(a_malformed_answer_is_an_error, setup, teardown),
		cmocka_unit_test_setup_teardown(a_stopped_sandbox_is_an_error_later, setup,
						teardown),
		cmocka_unit_test_setup_teardown(items_are_parsed, setup, teardown),
		cmocka_unit_test_setup_teardown(a_put_is_paced_by_the_guest, setup, teardown),
		cmocka_unit_test_setup_teardown(an_unfinished_write_is_an_error, setup, teardown),
		cmocka_unit_test_setup_teardown(a_get_is_bounded, setup, teardown),
		cmocka_unit_test_setup_teardown(a_client_without_room_stops_the_guest, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_callback_may_drop_its_call, setup, teardown),
		cmocka_unit_test_setup_teardown(a_port_is_half_closed, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
