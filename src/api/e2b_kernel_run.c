/* Executions of a context: queued, one at a time with the kernel, told in lines. */
#include "api/e2b_kernel_inside.h"

#include "base/auto.h"
#include "base/str.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LINE_MAX_BYTES (9u << 20)
#define QUEUE_MAX 128
#define GRACE_MS 20000 /* for an interrupted execution to end */

/* ---- executions ---- */

static void say(struct execution *r, json_t *o)
{
	auto_free char *text = o ? json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;

	json_decref(o);
	if (text && r->ops)
		r->ops->on_line(r->arg, text, strlen(text));
}

void kernel_execution_free(struct execution *r)
{
	json_decref(r->request);
	free(r);
}

/* Takes the first one out of the queue and ends it. */
void kernel_end_first(struct context *c, bool cut)
{
	struct execution *r = c->queue;

	c->queue = r->next;
	c->active = false;
	loop_timer_stop(c->box->api->loop, &c->patience);
	if (r->ops)
		r->ops->on_end(r->arg, cut);
	kernel_execution_free(r);
}

void kernel_fail_first(struct context *c, const char *name, const char *value)
{
	say(c->queue, json_pack("{s:s,s:s,s:s,s:s}", "type", "error", "name", name, "value", value,
				"traceback", ""));
	say(c->queue, json_pack("{s:s}", "type", "end_of_execution"));
	kernel_end_first(c, false);
}

void kernel_tell_ready(struct context *c, const struct err *e)
{
	struct readiness *all = take_ptr(c->awaited);

	/* What is told may be answered by removing the context. */
	while (all) {
		struct readiness *a = all;

		all = a->next;
		a->done(a->arg, e);
		free(a);
	}
}

/* It cannot work: everybody who waits for it is told. */
void kernel_failed(struct context *c, const struct err *e)
{
	c->state = IDLE;
	loop_timer_stop(c->box->api->loop, &c->patience);
	while (c->queue)
		kernel_fail_first(c, "KernelNotAvailable", e->msg);
	kernel_tell_ready(c, e);
}

/* ---- what the kernel says ---- */

static json_t *now_json(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return e2b_time((uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000);
}

static void on_started(struct execution *r, const json_t *m)
{
	say(r, json_pack("{s:s,s:I}", "type", "number_of_executions", "execution_count",
			 json_integer_value(json_object_get(m, "execution_count"))));
}

static void on_text(struct execution *r, const json_t *m)
{
	say(r, json_pack("{s:O,s:O,s:o}", "type", json_object_get(m, "type"), "text",
			 json_object_get(m, "text"), "timestamp", now_json()));
}

/* The names are the same; the id is ours alone. */
static void on_result(struct execution *r, const json_t *m)
{
	json_t *o = json_copy((json_t *)m);

	json_object_del(o, "id");
	say(r, o);
}

static void on_end_of(struct execution *r, const json_t *m)
{
	struct context *c = r->context;

	(void)m;
	say(r, json_pack("{s:s}", "type", "end_of_execution"));
	kernel_end_first(c, false);
	kernel_next(c);
}

static void on_bad_request(struct execution *r, const json_t *m)
{
	const char *why = json_string_value(json_object_get(m, "message"));
	struct context *c = r->context;

	kernel_fail_first(c, "BadRequest", why ? why : "the kernel did not take the request");
	kernel_next(c);
}

static const struct {
	const char *type;
	void (*take)(struct execution *r, const json_t *m);
} messages[] = {
	{"started", on_started},	 {"stdout", on_text},  {"stderr", on_text},
	{"result", on_result},		 {"error", on_result}, {"end", on_end_of},
	{"bad_request", on_bad_request},
};

static void on_message(struct context *c, const json_t *m)
{
	const char *type = json_string_value(json_object_get(m, "type"));
	const json_t *id = json_object_get(m, "id");

	if (!type)
		return;
	if (c->state == STARTING && str_equal(type, "ready")) {
		c->state = READY;
		loop_timer_stop(c->box->api->loop, &c->patience);
		kernel_next(c);
		kernel_tell_ready(c, NULL);
		return;
	}
	if (!c->active || (uint64_t)json_integer_value(id) != c->queue->id)
		return;
	for (size_t i = 0; i < ARRAY_LEN(messages); i++) {
		if (str_equal(messages[i].type, type)) {
			messages[i].take(c->queue, m);
			return;
		}
	}
}

/* Whole lines; a line that has no end is not the kernel's. */
void kernel_read_lines(struct context *c)
{
	char *end;

	while (c->line.len && (end = memchr(buf_head(&c->line), '\n', c->line.len))) {
		size_t len = (size_t)(end - buf_head(&c->line)) + 1;
		json_t *m = json_loadb(buf_head(&c->line), len - 1, 0, NULL);

		buf_drop(&c->line, len);
		if (json_is_object(m))
			on_message(c, m);
		json_decref(m);
	}
	if (c->line.len > LINE_MAX_BYTES)
		kernel_kill(c);
	else if (c->line.len == 0)
		buf_done(&c->line);
}

/* ---- executing ---- */

void kernel_next(struct context *c)
{
	auto_free char *text = NULL;
	struct sandbox *s;

	if (c->active || !c->queue || c->state != READY || !c->exec || c->restarting)
		return;
	s = kernel_sandbox(c->box);
	text = json_dumps(c->queue->request, JSON_COMPACT | JSON_ENSURE_ASCII);
	if (!s || !text) {
		kernel_end_first(c, true);
		return;
	}
	c->active = true;
	buf_add(&c->input, text, strlen(text));
	buf_add(&c->input, "\n", 1);
	kernel_feed(c);
}

struct execution *kernel_execute(struct context *c, const char *code, json_t *env,
				 const struct execution_ops *ops, void *arg)
{
	struct execution *r, **last = &c->queue;
	size_t waiting = 0;

	for (; *last; last = &(*last)->next)
		waiting++;
	if (waiting >= QUEUE_MAX)
		return NULL;
	r = must_alloc(calloc(1, sizeof(*r)));
	*r = (struct execution){.context = c, .id = ++c->next_id, .ops = ops, .arg = arg};
	r->request = must_alloc(
		json_pack("{s:I,s:s,s:s}", "id", (json_int_t)r->id, "op", "execute", "code", code));
	if (env)
		json_object_set(r->request, "env", env);
	*last = r;
	if (c->state == READY)
		kernel_next(c);
	else
		kernel_go(c);
	return r;
}

void kernel_abandon(struct execution *r)
{
	struct context *c = r->context;
	struct sandbox *s = kernel_sandbox(c->box);
	struct execution **p = &c->queue;

	r->ops = NULL;
	if (c->active && c->queue == r) {
		if (s)
			sandbox_signal(s, c->eid, SIGINT, false, kernel_ignore, NULL);
		loop_timer_set(c->box->api->loop, &c->patience, GRACE_MS);
		kernel_credit(c);
		return;
	}
	while (*p != r)
		p = &(*p)->next;
	*p = r->next;
	kernel_execution_free(r);
}

void kernel_room(struct execution *r)
{
	kernel_credit(r->context);
}
