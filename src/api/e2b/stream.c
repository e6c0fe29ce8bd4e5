/* Server streams of RPCs: envelopes, keepalives, deadlines, and the cut when the sandbox goes. */
#include "api/e2b/e2b_internal.h"

#define KEEPALIVE_S 90
#define KEEPALIVE_MAX_S 3600
#define EARLY_MS 200
#define GOING_MS 5000 /* between the loss of the link and the new state of the sandbox */

static void stream_flush(struct e2b_stream *t)
{
	struct exchange *x = t->q->x;

	if (!t->begun) {
		exchange_stream(x, 200, "application/connect+json", EXCHANGE_UNKNOWN_LENGTH);
		t->begun = true;
	}
	exchange_write(x, buf_head(&t->out), t->out.len);
	buf_drop(&t->out, t->out.len);
	loop_timer_set(x->api->loop, &t->silence, t->keepalive_ms);
}

static void stream_keepalive(void *arg)
{
	struct e2b_stream *t = arg;

	/* The client takes the first envelope for the start event, so no keepalive may precede it. */
	if (!t->begun) {
		loop_timer_set(t->q->x->api->loop, &t->silence, t->keepalive_ms);
		return;
	}
	connect_put(&t->out, 0, t->keepalive, strlen(t->keepalive));
	stream_flush(t);
}

/* Stops the timers and releases the source of the stream, once. */
static void stream_release(struct e2b_stream *t)
{
	struct loop *l = t->q->x->api->loop;

	loop_timer_stop(l, &t->silence);
	loop_timer_stop(l, &t->deadline);
	if (t->wait)
		sandbox_unwait(t->wait);
	t->wait = NULL;
	if (t->stop)
		t->stop(t);
	t->stop = NULL;
}

void e2b_stream_done(struct e2b_stream *t)
{
	t->stop = NULL;
	stream_release(t);
	buf_done(&t->out);
}

static void stream_deadline_over(void *arg)
{
	struct e2b_stream *t = arg;

	stream_release(t);
	e2b_stream_end(t, CONNECT_DEADLINE_EXCEEDED,
		       "connect-timeout-ms: the time of the request is over");
}

static void stream_client_gone(void *arg)
{
	struct e2b_stream *t = arg;

	stream_release(t);
	exchange_abort(t->q->x);
}

/* After a cut the client asks /health and learns that the sandbox is gone. */
static void stream_cut(void *arg)
{
	struct e2b_stream *t = arg;
	struct e2b_request *q = t->q;
	bool begun = t->begun;

	stream_release(t);
	if (begun)
		exchange_abort(q->x);
	else
		e2b_not_running(q->x, q->id);
}

static void stream_sandbox_changed(void *arg, struct sandbox *s)
{
	if (sandbox_state(s) != STATE_RUNNING)
		stream_cut(arg);
}

void e2b_stream_fail(struct e2b_stream *t, const struct err *e)
{
	struct exchange *x = t->q->x;

	t->stop = NULL;
	if (!e2b_is_cut(t->q, e)) {
		e2b_stream_end(t, e2b_code_of(e), e->msg);
	} else if (!e2b_running(x->api, t->q->id)) {
		stream_cut(t);
	} else {
		/* The state changes only after the link is lost: a client cut now would find it running. */
		t->deadline.call = stream_cut;
		loop_timer_set(x->api->loop, &t->deadline, GOING_MS);
	}
}

void e2b_stream_open(struct e2b_stream *t, struct sandbox *s, const char *keepalive,
		     uint64_t deadline_ms)
{
	struct e2b_request *q = t->q;
	const char *wanted = exchange_header(q->x, "Keepalive-Ping-Interval");
	uint64_t seconds;
	struct err e;

	t->keepalive = keepalive;
	t->keepalive_ms = KEEPALIVE_S * 1000;
	if (wanted && parse_count(wanted, &seconds, &e) == 0 && seconds >= 1 &&
	    seconds <= KEEPALIVE_MAX_S)
		t->keepalive_ms = seconds * 1000;
	t->silence = (struct loop_timer){.call = stream_keepalive, .arg = t};
	t->deadline = (struct loop_timer){.call = stream_deadline_over, .arg = t};
	loop_timer_set(q->x->api->loop, &t->silence, t->keepalive_ms);
	if (deadline_ms)
		loop_timer_set(q->x->api->loop, &t->deadline, deadline_ms);
	t->wait = sandbox_wait(s, stream_sandbox_changed, t);
	exchange_on_gone(q->x, stream_client_gone, t);
	exchange_pump(q->x, &t->pump);
}

void e2b_stream_send(struct e2b_stream *t, json_t *message)
{
	connect_put_json(&t->out, must_alloc(message));
	stream_flush(t);
}

void e2b_stream_end(struct e2b_stream *t, enum connect_code code, const char *message)
{
	struct exchange *x = t->q->x;

	t->stop = NULL;
	stream_release(t);
	connect_put_end(&t->out, code, message);
	stream_flush(t);
	loop_timer_stop(x->api->loop, &t->silence);
	exchange_finish(x);
}

int e2b_stream_deadline(struct e2b_request *q, struct e2b_deadline *ret)
{
	uint64_t ms, early, used = (uint64_t)(now_ns() - q->x->started_ns) / 1000000;
	struct err e = {0};

	*ret = (struct e2b_deadline){0};
	if (connect_timeout(exchange_header(q->x, "Connect-Timeout-Ms"), &ms, &e) < 0) {
		e2b_rpc_fail(q, CONNECT_INVALID_ARGUMENT, "%s", e.msg);
		return -1;
	}
	if (!ms)
		return 0;
	early = ms / 10 < EARLY_MS ? ms / 10 : EARLY_MS;
	ret->command_ms = ms > used + early ? ms - used - early : 1;
	ret->stream_ms = ret->command_ms + early / 2;
	return 0;
}
