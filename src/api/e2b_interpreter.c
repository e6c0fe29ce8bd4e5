/* The code interpreter's port: contexts, and executions that stream what they print and show. */
#include "api/e2b_kernel.h"

#include "base/auto.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

#define KEEPALIVE_MS 5000
#define KEEPALIVE "{\"type\":\"keepalive\"}\n"

/* Its clients show the text of an error as it is. */
static void say(struct exchange *x, int status, const char *text)
{
	exchange_reply(x, status, "text/plain; charset=utf-8", text, strlen(text));
}

static void say_not_found(struct exchange *x, const char *id)
{
	char text[120];

	snprintf(text, sizeof(text), "Context %.80s not found", id);
	say(x, 404, text);
}

/* What an earlier daemon left is found before anything is done. */
static void on_open(void *arg)
{
	struct e2b_request *q = arg;
	struct sandbox *s = e2b_still(q);

	if (s)
		q->then(q, s);
}

static void open_kernels(struct e2b_request *q, struct sandbox *s)
{
	kernel_open(q->x->api, s, on_open, q);
}

static void enter(struct exchange *x, enum e2b_need need,
		  void (*then)(struct e2b_request *q, struct sandbox *s))
{
	e2b_request_of(x)->then = then;
	e2b_enter(x, need, open_kernels);
}

/* ---- /execute ---- */

struct running {
	struct e2b_request *q;
	struct execution *execution;
	struct loop_timer silence;
};

static void running_free(void *more)
{
	struct running *r = more;

	loop_timer_stop(r->q->x->api->loop, &r->silence);
	if (r->execution)
		kernel_abandon(r->execution);
	free(r);
}

static void on_line(void *arg, const char *text, size_t len)
{
	struct running *r = arg;
	struct exchange *x = r->q->x;

	exchange_write(x, text, len);
	exchange_write(x, "\n", 1);
	loop_timer_set(x->api->loop, &r->silence, KEEPALIVE_MS);
}

static void on_end(void *arg, bool cut)
{
	struct running *r = arg;
	struct exchange *x = r->q->x;

	r->execution = NULL;
	loop_timer_stop(x->api->loop, &r->silence);
	if (cut)
		exchange_abort(x);
	else
		exchange_finish(x);
}

static bool has_room(void *arg)
{
	return exchange_room(((struct running *)arg)->q->x) > 0;
}

static void on_silence(void *arg)
{
	struct running *r = arg;

	exchange_write(r->q->x, KEEPALIVE, strlen(KEEPALIVE));
	loop_timer_set(r->q->x->api->loop, &r->silence, KEEPALIVE_MS);
}

static void on_room(void *arg)
{
	struct running *r = arg;

	if (r->execution)
		kernel_room(r->execution);
}

/* The client's time is over, or it lost interest: what runs is interrupted. */
static void on_gone(void *arg)
{
	struct running *r = arg;
	struct execution *e = take_ptr(r->execution);

	loop_timer_stop(r->q->x->api->loop, &r->silence);
	if (e)
		kernel_abandon(e);
	exchange_abort(r->q->x);
}

static void begin(struct e2b_request *q, struct context *c, const char *code, json_t *env)
{
	static const struct execution_ops ops = {
		.on_line = on_line, .on_end = on_end, .has_room = has_room};
	struct running *r = must_alloc(calloc(1, sizeof(*r)));

	r->q = q;
	r->silence = (struct loop_timer){.call = on_silence, .arg = r};
	q->more = r;
	q->free_more = running_free;
	r->execution = kernel_execute(c, code, env, &ops, r);
	if (!r->execution) {
		say(q->x, 429, "Too many executions are waiting for this context");
		return;
	}
	/* The head goes out at once: its clients wait only so long for it. */
	exchange_stream(q->x, 200, "application/x-ndjson", EXCHANGE_UNKNOWN_LENGTH);
	exchange_on_gone(q->x, on_gone, r);
	exchange_on_room(q->x, on_room, r);
	loop_timer_set(q->x->api->loop, &r->silence, KEEPALIVE_MS);
}

static bool are_strings(json_t *env)
{
	const char *key;
	json_t *value;

	if (env && !json_is_object(env) && !json_is_null(env))
		return false;
	json_object_foreach (env, key, value)
		if (!json_is_string(value))
			return false;
	return true;
}

static void execute(struct e2b_request *q, struct sandbox *s)
{
	struct exchange *x = q->x;
	json_t *env = json_object_get(x->json, "env_vars");
	bool bad = false;
	const char *code = e2b_text(x->json, "code", &bad);
	const char *id = e2b_text(x->json, "context_id", &bad);
	const char *name = e2b_text(x->json, "language", &bad);
	const char *language = kernel_language(name);
	struct context *c;

	if (bad || !code || !are_strings(env)) {
		say(x, 422,
		    "code, context_id and language are strings, env_vars an object of them");
		return;
	}
	if (id && *id && name && *name) {
		say(x, 400, "Only one of context_id or language can be provided");
		return;
	}
	if (!language) {
		say(x, 400, "This language has no kernel here: try python, javascript or bash");
		return;
	}
	c = id && *id ? kernel_find(x->api, s, id) : kernel_default(x->api, s, language);
	if (!c)
		say_not_found(x, id);
	else
		begin(q, c, code, json_is_object(env) ? env : NULL);
}

static void handle_execute(struct exchange *x)
{
	enter(x, E2B_ACCESS_TOKEN, execute);
}

/* ---- contexts ---- */

struct making {
	struct e2b_request *q;
	char id[40];
};

static struct context *made_one(struct making *m)
{
	struct sandbox *s = manager_find_any(m->q->x->api->manager, m->q->id);

	return s ? kernel_find(m->q->x->api, s, m->id) : NULL;
}

static void on_made(void *arg, const struct err *e)
{
	struct making *m = arg;
	struct context *c = made_one(m);
	struct exchange *x = m->q->x;

	free(m);
	if (!e && c) {
		exchange_json(x, 200, kernel_describe(c));
		return;
	}
	say(x, 500, e ? e->msg : "The context is gone");
	if (c)
		kernel_remove(c);
}

static void create(struct e2b_request *q, struct sandbox *s)
{
	struct exchange *x = q->x;
	bool bad = false;
	const char *language = kernel_language(e2b_text(x->json, "language", &bad));
	const char *cwd = e2b_text(x->json, "cwd", &bad);
	struct err e = {0};
	auto_free char *path = bad ? NULL : e2b_path(cwd, "user", &e);
	struct context *c;
	struct making *m;
	json_t *told;

	if (bad) {
		say(x, 422, "language and cwd are strings");
		return;
	}
	if (!language || !path) {
		say(x, 400,
		    path ? "This language has no kernel here: try python, javascript or bash"
			 : e.msg);
		return;
	}
	c = kernel_new(x->api, s, language, path, &e);
	if (!c) {
		say(x, 429, e.msg);
		return;
	}
	m = must_alloc(calloc(1, sizeof(*m)));
	m->q = q;
	told = kernel_describe(c);
	snprintf(m->id, sizeof(m->id), "%s", json_string_value(json_object_get(told, "id")));
	json_decref(told);
	kernel_start(c, false, on_made, m);
}

static void handle_create(struct exchange *x)
{
	enter(x, E2B_TRAFFIC_TOKEN, create);
}

static void list(struct e2b_request *q, struct sandbox *s)
{
	exchange_json(q->x, 200, kernel_list(q->x->api, s));
}

static void handle_list(struct exchange *x)
{
	enter(x, E2B_TRAFFIC_TOKEN, list);
}

static void on_restarted(void *arg, const struct err *e)
{
	struct exchange *x = arg;

	if (e)
		say(x, 500, e->msg);
	else
		exchange_reply(x, 200, "application/json", "null", 4);
}

static void restart(struct e2b_request *q, struct sandbox *s)
{
	struct context *c = kernel_find(q->x->api, s, q->x->params[0]);

	if (c)
		kernel_start(c, true, on_restarted, q->x);
	else
		say_not_found(q->x, q->x->params[0]);
}

static void handle_restart(struct exchange *x)
{
	enter(x, E2B_TRAFFIC_TOKEN, restart);
}

static void remove_(struct e2b_request *q, struct sandbox *s)
{
	struct context *c = kernel_find(q->x->api, s, q->x->params[0]);

	if (!c) {
		say_not_found(q->x, q->x->params[0]);
		return;
	}
	kernel_remove(c);
	exchange_reply(q->x, 200, "application/json", "null", 4);
}

static void handle_remove(struct exchange *x)
{
	enter(x, E2B_TRAFFIC_TOKEN, remove_);
}

static void healthy(struct e2b_request *q, struct sandbox *s)
{
	(void)s;
	say(q->x, 200, "OK");
}

static void handle_health(struct exchange *x)
{
	e2b_enter(x, E2B_OPEN, healthy);
}

const struct route e2b_interpreter_routes[] = {
	{"POST", "/execute", handle_execute, 0, BODY_JSON_BIG, ROUTE_OPEN, "Runs code (E2B)", NULL},
	{"POST", "/contexts", handle_create, 0, BODY_JSON, ROUTE_OPEN, "Makes a context (E2B)",
	 NULL},
	{"GET", "/contexts", handle_list, 0, BODY_NONE, ROUTE_OPEN, "Lists contexts (E2B)", NULL},
	{"POST", "/contexts/{id}/restart", handle_restart, 0, BODY_BYTES, ROUTE_OPEN,
	 "Restarts a context (E2B)", NULL},
	{"DELETE", "/contexts/{id}", handle_remove, 0, BODY_BYTES, ROUTE_OPEN,
	 "Removes a context (E2B)", NULL},
	{"GET", "/health", handle_health, 0, BODY_NONE, ROUTE_OPEN, "Is it there? (E2B)", NULL},
};
const size_t e2b_interpreter_route_count = ARRAY_LEN(e2b_interpreter_routes);
