#include "api/v1_stream.h"

#include "base/auto.h"

#define PIECE (32u << 10) /* of one message to the guest */

static void given(void *arg, json_t *value, const struct err *e)
{
	struct input *i = arg;

	json_decref(value);
	if (e && e->kind != ERR_NONE)
		i->done(i->arg, e);
	else if (i->at == i->len && !i->close)
		i->done(i->arg, NULL);
	else
		input_give(i);
}

void input_give(struct input *i)
{
	struct err e = {0};
	struct sandbox *s = manager_find(i->x->api->manager, &i->x->caller, i->id, &e);
	size_t n = i->len - i->at;
	const char *at = i->bytes + i->at;
	bool last;

	if (!s) {
		i->done(i->arg, &e);
		return;
	}
	n = n < PIECE ? n : PIECE;
	i->at += n;
	last = i->close && i->at == i->len;
	if (last)
		i->close = false;
	sandbox_input(s, i->eid, at, n, last, given, i);
}
