/* G_EXECS: which commands there are. */
#include "guest/exec/command.h"
#include "guest/link/request.h"

struct exec_listing {
	struct guest_stream *stream;
	uint32_t next; /* eid */
};

static void list_some(void *arg)
{
	struct exec_listing *l = arg;
	struct command *c = l->stream->guest->commands;

	for (; c; c = c->next) {
		auto_buf struct buf b = {0};

		if (c->eid < l->next)
			continue;
		command_pack(c, &b);
		if (b.len > stream_room(l->stream))
			return;
		stream_put(l->stream, G_ITEM, buf_head(&b), b.len);
		l->next = c->eid + 1;
	}
	stream_end(l->stream, NULL, 0);
	free(l);
}

void execs_request(struct guest_stream *s, const struct unpacked_request *r)
{
	static const struct stream_ops ops = {.pump = list_some, .on_end = free};
	struct exec_listing *l = must_alloc(calloc(1, sizeof(*l)));

	*l = (struct exec_listing){.stream = s};
	stream_go_on(s, &ops, l);
	stream_ok(s, NULL);
}
