/*
 * Questions to a guest: one question and one answer, as bytes (guest_ask) or as JSON; commands by
 * their number, without an attachment; and the raw calls that calls/ is built on.
 */
#include "manager/manager_internal.h"

#include "wire/guest.h"

#define INPUT_PIECE (32u << 10)
#define EXECS_BYTES_MAX (8u << 20) /* a guest that lists more is lying */

struct call *guest_call(struct sandbox *s, uint8_t type, const void *payload, size_t len,
			const struct call_ops *ops, void *arg)
{
	struct err e;

	if (s->link && s->state == STATE_RUNNING)
		return link_call(s->link, type, payload, len, ops, arg);
	if (s->state != STATE_RUNNING) {
		err_set(&e, ERR_CONFLICT, "the sandbox is %s", state_name(s->state));
	} else {
		err_set(&e, ERR_SYSTEM, "the link to the sandbox was lost; try again");
		e.errnum = EBUSY;
	}
	return call_refused(s->m->p.loop, &e, ops, arg);
}

struct call *sandbox_call(struct sandbox *s, uint8_t type, const void *payload, size_t len,
			  const struct call_ops *ops, void *arg)
{
	sandbox_used(s);
	return guest_call(s, type, payload, len, ops, arg);
}

/* ---- questions ---- */

struct guest_question {
	struct sandbox *s;   /* held */
	guest_answer answer; /* is given the payload, or: */
	json_done done;	     /* is given the value */
	void *arg;
	struct buf payload;
	json_t *value;
	struct call *call;
	size_t bytes;
	bool is_malformed;
};

static void keep_payload(void *arg, uint8_t type, const void *payload, size_t len)
{
	struct guest_question *q = arg;

	if (type == G_OK)
		buf_add(&q->payload, payload, len);
}

static void end_question(void *arg, const struct err *e)
{
	struct guest_question *q = arg;
	struct unpack u = unpack_from(buf_head(&q->payload), q->payload.len);
	struct err bad;

	if (!e && q->is_malformed) {
		err_set(&bad, ERR_SYSTEM, "the sandbox gave an answer that makes no sense");
		e = &bad;
	}
	if (q->answer)
		q->answer(q->arg, q->s, &u, e);
	else
		q->done(q->arg, e ? NULL : json_incref(q->value), e);
	json_decref(q->value);
	buf_done(&q->payload);
	sandbox_release(q->s);
	free(q);
}

static void send_question(struct sandbox *s, uint8_t type, struct buf *b,
			  const struct call_ops *ops, const struct guest_question *given)
{
	struct guest_question *q = must_alloc(calloc(1, sizeof(*q)));

	*q = *given;
	q->s = sandbox_hold(s);
	q->call = guest_call(s, type, buf_head(b), b->len, ops, q);
	buf_done(b);
}

static const struct call_ops question_ops = {.on_frame = keep_payload, .on_end = end_question};

void guest_ask(struct sandbox *s, uint8_t type, struct buf *b, guest_answer answer, void *arg)
{
	struct guest_question q = {.answer = answer, .arg = arg};

	send_question(s, type, b, &question_ops, &q);
}

static void ask_plain(struct sandbox *s, uint8_t type, struct buf *b, json_done done, void *arg)
{
	struct guest_question q = {.done = done, .arg = arg, .value = json_object()};

	sandbox_used(s);
	send_question(s, type, b, &question_ops, &q);
}

/* ---- commands by their number ---- */

void sandbox_signal(struct sandbox *s, uint32_t eid, int sig, bool tree, json_done done, void *arg)
{
	struct buf b = {0};

	pack_u32(&b, eid);
	pack_u32(&b, (uint32_t)sig);
	pack_u8(&b, tree);
	ask_plain(s, G_SIGNAL, &b, done, arg);
}

void sandbox_resize(struct sandbox *s, uint32_t eid, uint32_t rows, uint32_t cols, json_done done,
		    void *arg)
{
	struct buf b = {0};

	pack_u32(&b, eid);
	pack_u32(&b, rows);
	pack_u32(&b, cols);
	ask_plain(s, G_RESIZE, &b, done, arg);
}

/* Input for a command, sent in pieces that a frame holds. */
struct typed_input {
	struct sandbox *s; /* held */
	uint32_t eid;
	const char *bytes;
	size_t left;
	bool close;
	json_done done;
	void *arg;
};

static void send_input(struct typed_input *i);

static void on_input_taken(void *arg, json_t *value, const struct err *e)
{
	struct typed_input *i = arg;

	if (!e && (i->left || i->close)) {
		json_decref(value);
		send_input(i);
		return;
	}
	i->done(i->arg, value, e);
	sandbox_release(i->s);
	free(i);
}

static void send_input(struct typed_input *i)
{
	size_t n = i->left < INPUT_PIECE ? i->left : INPUT_PIECE;
	bool is_last = i->close && n == i->left;
	struct buf b = {0};

	pack_u32(&b, i->eid);
	pack_bytes(&b, i->bytes, n);
	pack_u8(&b, is_last);
	i->bytes += n;
	i->left -= n;
	i->close = i->close && !is_last;
	ask_plain(i->s, G_INPUT, &b, on_input_taken, i);
}

void sandbox_input(struct sandbox *s, uint32_t eid, const void *bytes, size_t len, bool close,
		   json_done done, void *arg)
{
	struct typed_input *i = must_alloc(calloc(1, sizeof(*i)));

	*i = (struct typed_input){sandbox_hold(s), eid, bytes, len, close, done, arg};
	send_input(i);
}

/* ---- the list ---- */

static json_t *text_json(struct unpack *u)
{
	size_t len;
	const char *text = unpack_bytes(u, &len);
	char clean[4096];

	str_sanitise(clean, sizeof(clean), text, len);
	return json_string(clean);
}

static json_t *argv_json(struct unpack *u)
{
	json_t *all = json_array();
	uint32_t count = unpack_u32(u);

	for (uint32_t i = 0; i < count && !u->bad; i++)
		json_array_append_new(all, text_json(u));
	return all;
}

void outcome_describe(json_t *object, const struct outcome *o)
{
	json_t *more;

	if (!o)
		more = json_pack("{s:s,s:n,s:n,s:n,s:n,s:n}", "status", "running", "exit_code",
				 "signal", "duration_ms", "cpu_ms", "max_rss_bytes");
	else
		more = json_pack("{s:s,s:o,s:o,s:f,s:f,s:I}", "status", status_name(o->status),
				 "exit_code",
				 o->exit_code >= 0 ? json_integer(o->exit_code) : json_null(),
				 "signal", o->signal ? json_integer(o->signal) : json_null(),
				 "duration_ms", o->duration_ms, "cpu_ms", o->cpu_ms,
				 "max_rss_bytes", (json_int_t)o->max_rss_bytes);
	json_object_update(object, more);
	json_decref(more);
}

static json_t *exec_item_json(struct unpack *u, const struct sandbox *s)
{
	json_t *o = json_object();
	struct outcome x;
	bool running;
	uint8_t flags;

	json_object_set_new(o, "id", json_integer(unpack_u32(u)));
	json_object_set_new(o, "pid", json_integer(unpack_u32(u)));
	running = unpack_u8(u);
	flags = unpack_u8(u);
	json_object_set_new(o, "running", json_boolean(running));
	json_object_set_new(o, "tty", json_boolean(flags & GUEST_EXEC_TTY));
	json_object_set_new(o, "background", json_boolean(flags & GUEST_EXEC_BACKGROUND));
	json_object_set_new(o, "shell", json_boolean(flags & GUEST_EXEC_SHELL));
	json_object_set_new(o, "tag", text_json(u));
	json_object_set_new(o, "session", text_json(u));
	json_object_set_new(o, "cwd", text_json(u));
	json_object_set_new(o, "cmd", argv_json(u));
	json_object_set_new(o, "started_at", time_json(unpack_u64(u)));
	exit_read(u, s, &x);
	outcome_describe(o, running ? NULL : &x);
	json_object_set_new(o, "oldest_seq", json_integer((json_int_t)unpack_u64(u)));
	json_object_set_new(o, "next_seq", json_integer((json_int_t)unpack_u64(u)));
	return o;
}

static void add_exec_item(void *arg, uint8_t type, const void *payload, size_t len)
{
	struct guest_question *q = arg;
	struct unpack u = unpack_from(payload, len);
	json_t *item;

	if (type != G_ITEM)
		return;
	call_credit(q->call, len);
	if (q->is_malformed)
		return;
	item = exec_item_json(&u, q->s);
	q->bytes += len + 256;
	q->is_malformed = !unpack_is_done(&u) || q->bytes > EXECS_BYTES_MAX;
	json_array_append_new(q->value, item);
}

void sandbox_execs(struct sandbox *s, json_done done, void *arg)
{
	static const struct call_ops ops = {.on_frame = add_exec_item, .on_end = end_question};
	struct guest_question q = {.done = done, .arg = arg, .value = json_array()};

	sandbox_used(s);
	send_question(s, G_EXECS, &(struct buf){0}, &ops, &q);
}
