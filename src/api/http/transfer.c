/* Connects an exchange to a stream of a guest: the answer's bytes, or the request's body. */
#include "api/http/transfer.h"

static void client_gone(void *arg)
{
	struct transfer *t = arg;

	call_drop(take_ptr(t->call));
	exchange_answer_gone(t->x);
}

static void answer_error(struct transfer *t, const struct err *e)
{
	if (t->ops->error)
		t->ops->error(t->x, e);
	else
		exchange_error(t->x, e);
}

static struct transfer *new_transfer(struct exchange *x, const struct transfer_ops *ops)
{
	struct transfer *t = must_alloc(calloc(1, sizeof(*t)));

	t->x = x;
	t->ops = ops;
	exchange_also_free(x, t, NULL);
	exchange_on_gone(x, client_gone, t);
	return t;
}

/* ---- down ---- */

static void begin_answer(void *arg, const struct file_info *info)
{
	struct transfer *t = arg;

	t->left = t->ops->begin(t->x, info);
	t->begun = t->left != TRANSFER_ANSWERED;
	if (!t->begun)
		call_drop(take_ptr(t->call));
}

static void pass_bytes(void *arg, const void *bytes, size_t len)
{
	struct transfer *t = arg;

	if (t->left != TRANSFER_UNKNOWN) {
		len = len > (uint64_t)t->left ? (size_t)t->left : len;
		t->left -= (int64_t)len;
	}
	exchange_write(t->x, bytes, len);
}

static void end_answer(void *arg, const struct answer *a, const struct err *e)
{
	struct transfer *t = arg;

	t->call = NULL;
	if (!t->begun) {
		answer_error(t, e);
	} else if (e || t->left > 0) {
		exchange_abort(t->x);
	} else {
		if (t->ops->end)
			t->ops->end(t->x, a);
		exchange_finish(t->x);
	}
}

struct transfer *transfer_down(struct exchange *x, const struct transfer_ops *ops)
{
	struct transfer *t = new_transfer(x, ops);

	exchange_pump(x, &t->pump);
	t->receiver = (struct receiver){.begin = begin_answer,
					.bytes = pass_bytes,
					.done = end_answer,
					.arg = t,
					.pump = &t->pump};
	return t;
}

/* ---- up ---- */

static size_t push_body(void *arg, const char *bytes, size_t len)
{
	return call_push(((struct transfer *)arg)->call, bytes, len);
}

static void end_body(void *arg)
{
	call_close(((struct transfer *)arg)->call);
}

static void take_body(void *arg, const struct file_info *info)
{
	static const struct body_ops body = {push_body, end_body};
	struct transfer *t = arg;

	exchange_take_body(t->x, &body, t);
}

static void resume_body(void *arg)
{
	exchange_more(((struct transfer *)arg)->x);
}

static void end_upload(void *arg, const struct answer *a, const struct err *e)
{
	struct transfer *t = arg;

	t->call = NULL;
	if (e)
		answer_error(t, e);
	else
		t->ops->done(t->x, a->count);
}

struct transfer *transfer_up(struct exchange *x, const struct transfer_ops *ops)
{
	struct transfer *t = new_transfer(x, ops);

	t->receiver = (struct receiver){
		.begin = take_body, .room = resume_body, .done = end_upload, .arg = t};
	return t;
}
