/* Output of a command as server-sent events, paced by the client. */
#include "api/rest/rest.h"

struct exec_stream {
	struct exchange *x;
	struct exec *exec;
	struct sse sse;
	struct exec_source input; /* its bytes belong to the request */
	bool started;
	uint64_t from; /* output before this is skipped */
	struct pump pump;
};

static void stream_done(void *data)
{
	sse_close(&((struct exec_stream *)data)->sse);
}

static void feed_input(void *arg)
{
	struct exec_stream *t = arg;

	exec_feed(t->exec, &t->input);
}

static void on_command_start(void *arg, uint32_t eid, uint32_t pid)
{
	struct exec_stream *t = arg;

	t->started = true;
	sse_open(&t->sse, t->x);
	sse_send(&t->sse, "start",
		 json_pack("{s:I, s:I}", "id", (json_int_t)eid, "pid", (json_int_t)pid));
	feed_input(t);
}

static void on_command_output(void *arg, int kind, uint64_t seq, const char *bytes, size_t len)
{
	struct exec_stream *t = arg;
	size_t skip = seq >= t->from ? 0 : t->from - seq < len ? t->from - seq : len;
	json_t *text, *o;

	if (skip == len) {
		exec_credit(t->exec, len);
		return;
	}
	bytes += skip;
	text = json_stringn(bytes, len - skip);
	o = json_pack("{s:I}", "seq", (json_int_t)(seq + skip));
	/* A piece may end within a character: then its bytes are sent as base64. */
	json_object_set_new(o, text ? "text" : "base64",
			    text ? text : text_json_base64(bytes, len - skip));
	sse_send(&t->sse, kind == 2 ? "stderr" : "stdout", o);
	pump_moved(&t->pump, len);
}

json_t *stream_describe_exit(const struct outcome *x)
{
	json_t *o = json_pack("{s:b, s:b, s:b}", "success", outcome_is_success(x), "timed_out",
			      x->status == STATUS_TIMEOUT, "oom_killed", x->oom_killed);

	outcome_describe(o, x);
	if (x->exec_errno)
		json_object_set_new(o, "reason", json_string(strerror(x->exec_errno)));
	return o;
}

static void on_command_exit(void *arg, const struct outcome *x)
{
	struct exec_stream *t = arg;

	t->exec = t->pump.from = NULL;
	sse_send(&t->sse, "exit", stream_describe_exit(x));
	exchange_finish(t->x);
}

static void on_command_error(void *arg, const struct err *e)
{
	struct exec_stream *t = arg;

	t->exec = t->pump.from = NULL;
	if (!t->started) {
		exchange_error(t->x, e);
		return;
	}
	sse_send(&t->sse, "error", exchange_error_body(exchange_status_of(e), e));
	exchange_finish(t->x);
}

static void stream_gone(void *arg)
{
	struct exec_stream *t = arg;

	t->pump.from = NULL;
	if (t->exec)
		exec_detach(take_ptr(t->exec));
	exchange_answer_gone(t->x);
}

static const struct exec_ops stream_ops = {on_command_start, on_command_output, on_command_exit,
					   on_command_error, feed_input};

static struct exec_stream *new_stream(struct exchange *x)
{
	struct exec_stream *t = must_alloc(calloc(1, sizeof(*t)));

	t->x = x;
	exchange_on_gone(x, stream_gone, t);
	exchange_pump(x, &t->pump);
	t->pump.credit = exec_credit;
	exchange_also_free(x, t, stream_done);
	return t;
}

void stream_start(struct exchange *x, struct sandbox *s, const struct exec_request *r,
		  const char *input, size_t len)
{
	struct exec_stream *t = new_stream(x);

	t->input = (struct exec_source){input, len, input != NULL};
	t->exec = t->pump.from = exec_start(s, &x->caller, r, &stream_ops, t);
}

void stream_attach(struct exchange *x, struct sandbox *s, uint32_t eid, uint64_t from)
{
	struct exec_stream *t = new_stream(x);

	exchange_set_endless(x); /* its command goes on, and so may the client, elsewhere */
	t->from = from;
	t->exec = t->pump.from = exec_attach(s, eid, from, &stream_ops, t);
}
