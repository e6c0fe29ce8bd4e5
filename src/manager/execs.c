/* Commands by their number, without an attachment; and bare calls. */
#include "manager/exec.h"

#include "base/str.h"
#include "wire/guest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void on_end(void *arg, const struct err *e)
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

static void ask(struct sandbox *s, uint8_t type, struct buf *b, const struct call_ops *ops,
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

static const struct call_ops plain_ops = {.on_end = on_end};

static void ask_plain(struct sandbox *s, uint8_t type, struct buf *b, json_done done, void *arg)
{
	struct asking a = {.done = done, .arg = arg, .value = json_object()};

	ask(s, type, b, &plain_ops, &a);
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

void sandbox_input(struct sandbox *s, uint32_t eid, const void *bytes, size_t len, bool close,
		   json_done done, void *arg)
{
	struct buf b = {0};

	pack_u32(&b, eid);
	pack_bytes(&b, bytes, len);
	pack_u8(&b, close);
	ask_plain(s, G_INPUT, &b, done, arg);
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

static void set_exit(json_t *o, const struct exec_exit *x, bool running)
{
	json_object_set_new(o, "status", json_string(running ? "running" : status_name(x->status)));
	json_object_set_new(o, "exit_code",
			    !running && x->exit_code >= 0 ? json_integer(x->exit_code)
							  : json_null());
	json_object_set_new(o, "signal",
			    !running && x->signal ? json_integer(x->signal) : json_null());
	json_object_set_new(o, "duration_ms", running ? json_null() : json_real(x->duration_ms));
	json_object_set_new(o, "cpu_ms", running ? json_null() : json_real(x->cpu_ms));
	json_object_set_new(o, "max_rss_bytes",
			    running ? json_null() : json_integer((json_int_t)x->max_rss_bytes));
}

static json_t *item_json(struct unpack *u)
{
	json_t *o = json_object();
	struct exec_exit x;
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
	exit_read(u, &x);
	set_exit(o, &x, running);
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
	item = item_json(&u);
	a->bytes += len + 256;
	if (!unpack_is_done(&u) || a->bytes > EXECS_BYTES_MAX) {
		a->bad = true;
		json_decref(item);
		return;
	}
	json_array_append_new(a->value, item);
}

static const struct call_ops list_ops = {.on_frame = on_item, .on_end = on_end};

void sandbox_execs(struct sandbox *s, json_done done, void *arg)
{
	struct asking a = {.done = done, .arg = arg, .value = json_array()};
	struct buf b = {0};

	ask(s, G_EXECS, &b, &list_ops, &a);
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
