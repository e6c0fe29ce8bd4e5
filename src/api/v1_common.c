#include "api/v1.h"

#include "base/auto.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

#define PING_MS 15000

bool v1_body(struct exchange *x)
{
	struct err e = {0};

	if (body_check(x->json, x->route->describe, &e) == 0)
		return true;
	exchange_error(x, &e);
	return false;
}

struct sandbox *v1_sandbox(struct exchange *x)
{
	struct err e = {0};
	struct sandbox *s = manager_find(x->api->manager, &x->caller, x->params[0], &e);

	if (!s)
		exchange_error(x, &e);
	return s;
}

struct waking {
	struct exchange *x;
	void (*call)(struct exchange *x, struct sandbox *s);
};

static void on_awake(void *arg, struct sandbox *s, const struct err *e)
{
	struct waking w = *(struct waking *)arg;

	free(arg);
	if (!s)
		exchange_error(w.x, e);
	else if (w.x->gone)
		exchange_fail(w.x, ERR_SYSTEM, "the client has gone");
	else
		w.call(w.x, s);
}

void v1_awake(struct exchange *x, void (*call)(struct exchange *x, struct sandbox *s))
{
	struct sandbox *s = v1_sandbox(x);
	struct waking *w;

	if (!s)
		return;
	w = must_alloc(malloc(sizeof(*w)));
	*w = (struct waking){x, call};
	sandbox_wake(s, on_awake, w);
}

void v1_answer_sandbox(void *arg, struct sandbox *s, const struct err *e)
{
	if (s)
		exchange_json(arg, 200, sandbox_describe(s));
	else
		exchange_error(arg, e);
}

static bool failed(const struct err *e)
{
	return e && e->kind != ERR_NONE;
}

void v1_answer_json(void *arg, json_t *value, const struct err *e)
{
	if (failed(e)) {
		json_decref(value);
		exchange_error(arg, e);
		return;
	}
	exchange_json(arg, 200, value ? value : json_object());
}

void v1_answer_empty(void *arg, json_t *value, const struct err *e)
{
	json_decref(value);
	if (failed(e))
		exchange_error(arg, e);
	else
		exchange_reply(arg, 204, NULL, "", 0);
}

/* ---- events ---- */

static void ping(void *arg)
{
	struct sse *s = arg;

	exchange_write(s->x, ": \n\n", 4);
	loop_timer_set(s->x->api->loop, &s->ping, PING_MS);
}

void sse_open(struct sse *s, struct exchange *x)
{
	s->x = x;
	s->ping = (struct loop_timer){.call = ping, .arg = s};
	exchange_set_header(x, "Cache-Control", "no-cache");
	exchange_set_header(x, "X-Accel-Buffering", "no");
	exchange_stream(x, 200, "text/event-stream", EXCHANGE_UNKNOWN_LENGTH);
	loop_timer_set(x->api->loop, &s->ping, PING_MS);
}

void sse_send(struct sse *s, const char *event, json_t *value)
{
	char *text = json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(12));

	json_decref(value);
	if (text)
		exchange_event(s->x, event, text, strlen(text));
	free(text);
}

void sse_close(struct sse *s)
{
	if (s->x)
		loop_timer_stop(s->x->api->loop, &s->ping);
}
