#include "api/transfer.h"

#include "base/auto.h"
#include "base/str.h"
#include "wire/guest.h"
#include "wire/pack.h"

#include <stdlib.h>

struct transfer {
	struct exchange *x;
	struct call *call;
	const struct transfer_ops *ops;
	bool begun, refused, limited, has_done;
	uint64_t left, number;
	size_t debt;
};

static struct transfer *prepare(struct exchange *x, const struct transfer_ops *ops)
{
	struct transfer *t = exchange_attach(x, sizeof(*t), NULL);

	t->x = x;
	t->ops = ops;
	return t;
}

static void start(struct transfer *t, struct sandbox *s, uint8_t type, struct buf *request,
		  const struct call_ops *ops)
{
	t->call = sandbox_call(s, type, buf_head(request), request->len, ops, t);
	buf_done(request);
	if (!t->call)
		exchange_fail(t->x, ERR_CONFLICT, "the sandbox is not running");
}

static void on_gone(void *arg)
{
	struct transfer *t = arg;

	if (t->call)
		call_drop(take_ptr(t->call));
	if (t->begun)
		exchange_finish(t->x);
	else
		exchange_fail(t->x, ERR_SYSTEM, "the client has gone");
}

/* ---- down ---- */

void transfer_limit(struct exchange *x, uint64_t most)
{
	struct transfer *t = x->data;

	t->limited = true;
	t->left = most;
}

static void down_data(struct transfer *t, const void *bytes, size_t len)
{
	size_t n = t->limited && len > t->left ? t->left : len;

	t->left -= t->limited ? n : 0;
	exchange_write(t->x, bytes, n);
	if (exchange_room(t->x))
		call_credit(t->call, len);
	else
		t->debt += len;
}

static void down_frame(void *arg, uint8_t type, const void *payload, size_t len)
{
	struct transfer *t = arg;

	if (type == G_OK) {
		t->begun = t->ops->begin(t->x, payload, len);
		if (!t->begun)
			call_drop(take_ptr(t->call));
	} else if (type == G_DATA) {
		down_data(t, payload, len);
	}
}

static void down_room(void *arg)
{
	struct transfer *t = arg;

	if (t->call && t->debt)
		call_credit(t->call, t->debt);
	t->debt = 0;
}

static void down_end(void *arg, const struct err *e)
{
	struct transfer *t = arg;
	bool failed = e && e->kind != ERR_NONE;

	t->call = NULL;
	if (!t->begun && failed)
		exchange_error(t->x, e);
	else if (!t->begun)
		exchange_fail(t->x, ERR_SYSTEM, "the guest gave no answer");
	else if (failed || (t->limited && t->left))
		exchange_abort(t->x);
	else
		exchange_finish(t->x);
}

void transfer_down(struct exchange *x, struct sandbox *s, uint8_t type, struct buf *request,
		   const struct transfer_ops *ops)
{
	static const struct call_ops calls = {.on_frame = down_frame, .on_end = down_end};
	struct transfer *t = prepare(x, ops);

	exchange_on_gone(x, on_gone, t);
	exchange_on_room(x, down_room, t);
	start(t, s, type, request, &calls);
}

/* ---- up ---- */

static size_t up_take(void *arg, const char *bytes, size_t len)
{
	struct transfer *t = arg;
	size_t sent = 0;

	while (sent < len) {
		size_t room = call_room(t->call), n = len - sent;

		n = n < room ? n : room;
		n = n < GUEST_MAX_PAYLOAD ? n : GUEST_MAX_PAYLOAD;
		if (!n || !call_send(t->call, bytes + sent, n))
			break;
		sent += n;
	}
	return sent;
}

static void up_complete(void *arg)
{
	struct transfer *t = arg;

	call_close(t->call);
}

static void up_frame(void *arg, uint8_t type, const void *payload, size_t len)
{
	static const struct body_ops body = {up_take, up_complete};
	struct transfer *t = arg;
	struct unpack u = unpack_from(payload, len);

	if (type == G_OK) {
		exchange_take_body(t->x, &body, t);
	} else if (type == G_DONE) {
		t->number = unpack_u64(&u);
		t->has_done = true;
	}
}

static void up_room(void *arg)
{
	struct transfer *t = arg;

	exchange_more(t->x);
}

static void up_end(void *arg, const struct err *e)
{
	struct transfer *t = arg;

	t->call = NULL;
	if (e && e->kind != ERR_NONE)
		exchange_error(t->x, e);
	else if (!t->has_done)
		exchange_fail(t->x, ERR_SYSTEM, "the guest did not finish");
	else
		t->ops->done(t->x, t->number);
}

void transfer_up(struct exchange *x, struct sandbox *s, uint8_t type, struct buf *request,
		 const struct transfer_ops *ops)
{
	static const struct call_ops calls = {
		.on_frame = up_frame, .on_end = up_end, .on_room = up_room};
	struct transfer *t = prepare(x, ops);

	exchange_on_gone(x, on_gone, t);
	start(t, s, type, request, &calls);
}
