/* One question to the guest, one answer. */
#include "api/e2b.h"

#include "base/str.h"
#include "wire/guest.h"

#include <stdlib.h>

struct ask {
	struct call *call;
	struct buf answer;
	e2b_answer done;
	void *arg;
	struct loop_task later;
};

static void ask_free(struct ask *a)
{
	buf_done(&a->answer);
	free(a);
}

static void on_frame(void *arg, uint8_t type, const void *payload, size_t len)
{
	struct ask *a = arg;

	if (type == G_OK)
		buf_add(&a->answer, payload, len);
}

static void on_end(void *arg, const struct err *e)
{
	struct ask *a = arg;

	a->done(a->arg, a->answer.len ? buf_head(&a->answer) : "", a->answer.len, e);
	ask_free(a);
}

static const struct call_ops ops = {.on_frame = on_frame, .on_end = on_end};

static void not_running(void *arg)
{
	struct err e = {0};

	err_set(&e, ERR_CONFLICT, "the sandbox is not running");
	on_end(arg, &e);
}

void e2b_ask(struct exchange *x, struct sandbox *s, uint8_t type, struct buf *payload,
	     e2b_answer done, void *arg)
{
	struct ask *a = must_alloc(calloc(1, sizeof(*a)));

	*a = (struct ask){.done = done, .arg = arg};
	a->call = sandbox_call(s, type, payload->len ? buf_head(payload) : NULL, payload->len, &ops,
			       a);
	buf_done(payload);
	if (a->call)
		return;
	a->later = (struct loop_task){.call = not_running, .arg = a};
	loop_task_add(x->api->loop, &a->later);
}
