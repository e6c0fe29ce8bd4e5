/* Commands by their number, without an attachment; and bare calls. */
#include "manager/exec.h"

#include "wire/guest.h"

#define INPUT_PIECE (32u << 10)
#define EXECS_BYTES_MAX (8u << 20) /* a guest that lists more is lying */

struct asking {
	struct sandbox *s;
	json_done done;
	void *arg;
	json_t *value;
	struct call *call;
	size_t bytes;
	bool bad;
};

static void on_answer_end(void *arg, const struct err *e)
{
	struct asking *a = arg;
	struct err bad;

	if (!e && a->bad) {
		err_set(&bad, ERR_SYSTEM, "the sandbox gave an answer that makes no sense");
		e = &bad;
	}
	if (e) {
		json_decref(a->value);
		a->value = NULL;
	}
	a->done(a->arg, a->value, e);
	sandbox_release(a->s);
	free(a);
}

static void ask_guest(struct sandbox *s, uint8_t type, struct buf *b, const struct call_ops *ops,
		      struct asking *given)
{
	struct asking *a = must_alloc(calloc(1, sizeof(*a)));
	struct err e;

	*a = *given;
	if (!s->link || s->state != STATE_RUNNING) {
		sandbox_cannot_be_asked(s, &e);
		json_decref(a->value);
		answer_json_later(s->m, a->done, a->arg, NULL, &e);
		free(a);
	} else {
		a->s = sandbox_hold(s);
		sandbox_used(s);
		a->call = link_call(s->link, type, buf_head(b), b->len, ops, a);
	}
	buf_done(b);
}

static const struct call_ops plain_ops = {.on_end = on_answer_end};

static void ask_plain(struct sandbox *s, uint8_t type, struct buf *b, json_done done, void *arg)
{
	struct asking a = {.done = done, .arg = arg, .value = json_object()};

	ask_guest(s, type, b, &plain_ops, &a);
}

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

static void send_piece(struct typed_input *i);

static void on_piece(void *arg, json_t *value, const struct err *e)
{
	struct typed_input *i = arg;

	if (!e && (i->left || i->close)) {
		json_decref(value);
		send_piece(i);
		return;
	}
	i->done(i->arg, value, e);
	sandbox_release(i->s);
	free(i);
}

static void send_piece(struct typed_input *i)
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
	ask_plain(i->s, G_INPUT, &b, on_piece, i);
}

void sandbox_input(struct sandbox *s, uint32_t eid, const void *bytes, size_t len, bool close,
		   json_done done, void *arg)
{
	struct typed_input *i = must_alloc(calloc(1, sizeof(*i)));

	*i = (struct typed_input){sandbox_hold(s), eid, bytes, len, close, done, arg};
	send_piece(i);
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

static json_t *number_or_null(bool known, json_int_t n)
{
	return known ? json_integer(n) : json_null();
}

void outcome_describe(json_t *object, const struct outcome *o)
{
	json_object_set_new(object, "status", json_string(o ? status_name(o->status) : "running"));
	json_object_set_new(object, "exit_code",
			    number_or_null(o && o->exit_code >= 0, o ? o->exit_code : 0));
	json_object_set_new(object, "signal", number_or_null(o && o->signal, o ? o->signal : 0));
	json_object_set_new(object, "duration_ms", o ? json_real(o->duration_ms) : json_null());
	json_object_set_new(object, "cpu_ms", o ? json_real(o->cpu_ms) : json_null());
	json_object_set_new(object, "max_rss_bytes",
			    number_or_null(o, o ? (json_int_t)o->max_rss_bytes : 0));
}

static json_t *item_json(struct unpack *u, const struct sandbox *s)
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

static void on_item(void *arg, uint8_t type, const void *payload, size_t len)
{
	struct asking *a = arg;
	struct unpack u = unpack_from(payload, len);
	json_t *item;

	if (type != G_ITEM)
		return;
	call_credit(a->call, len);
	if (a->bad)
		return;
	item = item_json(&u, a->s);
	a->bytes += len + 256;
	if (!unpack_is_done(&u) || a->bytes > EXECS_BYTES_MAX) {
		a->bad = true;
		json_decref(item);
		return;
	}
	json_array_append_new(a->value, item);
}

static const struct call_ops list_ops = {.on_frame = on_item, .on_end = on_answer_end};

void sandbox_execs(struct sandbox *s, json_done done, void *arg)
{
	struct asking a = {.done = done, .arg = arg, .value = json_array()};
	struct buf b = {0};

	ask_guest(s, G_EXECS, &b, &list_ops, &a);
}

/* ---- bare calls ---- */

struct call *sandbox_call(struct sandbox *s, uint8_t type, const void *payload, size_t len,
			  const struct call_ops *ops, void *arg)
{
	struct err e;

	if (!s->link || s->state != STATE_RUNNING) {
		err_set(&e, ERR_CONFLICT, "the sandbox is not running");
		return call_refused(s->m->p.loop, &e, ops, arg);
	}
	sandbox_used(s);
	return link_call(s->link, type, payload, len, ops, arg);
}
