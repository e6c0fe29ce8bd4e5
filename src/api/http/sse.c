/* Server-sent events: see sse.h. */
#include "api/http/sse.h"

#define PING_MS 15000

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
