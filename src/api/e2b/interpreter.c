/* The code interpreter's port: contexts, and executions that stream what they print and show. */
#include "api/e2b/kernel.h"

#define KEEPALIVE_MS 5000
#define NO_KERNEL "This language has no kernel here: try python, javascript or bash"
#define KEEPALIVE "{\"type\":\"keepalive\"}\n"

/* Clients of the interpreter show the text of an error as it is. */
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

/* ---- /execute ---- */

struct interpreter_request {
	struct e2b_request *q;
	struct context *context;
	struct execution *execution;
	struct loop_timer silence;
};

static void running_done(void *more)
{
	struct interpreter_request *r = more;

	loop_timer_stop(r->q->x->api->loop, &r->silence);
	if (r->execution)
		kernel_abandon(r->execution);
}

static struct interpreter_request *running_new(struct e2b_request *q, struct context *c)
{
	struct interpreter_request *r = e2b_keep(q, sizeof(*r), running_done);

	*r = (struct interpreter_request){.q = q, .context = c};
	return r;
}

static void on_line(void *arg, const char *text, size_t len)
{
	struct interpreter_request *r = arg;
	struct exchange *x = r->q->x;

	exchange_write(x, text, len);
	exchange_write(x, "\n", 1);
	loop_timer_set(x->api->loop, &r->silence, KEEPALIVE_MS);
}

static void on_executed(void *arg, enum execution_end how, const char *why)
{
	struct interpreter_request *r = arg;
	struct exchange *x = r->q->x;

	r->execution = NULL;
	loop_timer_stop(x->api->loop, &r->silence);
	if (how == EXECUTION_CUT)
		exchange_abort(x);
	else
		exchange_finish(x);
}

static size_t room_of(void *arg)
{
	return exchange_room(((struct interpreter_request *)arg)->q->x);
}

static void on_silence(void *arg)
{
	struct interpreter_request *r = arg;

	exchange_write(r->q->x, KEEPALIVE, strlen(KEEPALIVE));
	loop_timer_set(r->q->x->api->loop, &r->silence, KEEPALIVE_MS);
}

static void execution_room(void *arg)
{
	struct interpreter_request *r = arg;

	if (r->execution)
		kernel_room(r->execution);
}

/* The client timed out or left: the execution is interrupted. */
static void execution_client_gone(void *arg)
{
	struct interpreter_request *r = arg;
	struct execution *e = take_ptr(r->execution);

	loop_timer_stop(r->q->x->api->loop, &r->silence);
	if (e)
		kernel_abandon(e);
	exchange_abort(r->q->x);
}

static void begin_execution(struct e2b_request *q, struct context *c, const char *code, json_t *env)
{
	static const struct execution_ops ops = {
		.on_line = on_line, .on_end = on_executed, .room = room_of};
	struct interpreter_request *r = running_new(q, c);

	r->silence = (struct loop_timer){.call = on_silence, .arg = r};
	r->execution = kernel_execute(c, code, env, &ops, r);
	if (!r->execution) {
		say(q->x, 429, "Too many executions are waiting for this context");
		return;
	}
	/* The head is sent at once: clients have a timeout for it. */
	exchange_stream(q->x, 200, "application/x-ndjson", EXCHANGE_UNKNOWN_LENGTH);
	exchange_on_gone(q->x, execution_client_gone, r);
	exchange_on_room(q->x, execution_room, r);
	loop_timer_set(q->x->api->loop, &r->silence, KEEPALIVE_MS);
}

static void execute(struct e2b_request *q, struct sandbox *s)
{
	struct exchange *x = q->x;
	json_t *env = json_object_get(x->json, "env_vars");
	bool bad = false;
	const char *code = e2b_text(x->json, "code", &bad);
	const char *id = e2b_text(x->json, "context_id", &bad);
	const char *name = e2b_text(x->json, "language", &bad);
	const struct kernel_language *language = kernel_language(name);
	struct context *c;
	struct err e = {0};

	if (bad || !code || e2b_check_strings(env, "env_vars", SIZE_MAX, &e) < 0) {
		say(x, 422,
		    "code, context_id and language are strings, env_vars an object of them");
		return;
	}
	if (id && *id && name && *name) {
		say(x, 400, "Only one of context_id or language can be provided");
		return;
	}
	if (!language) {
		say(x, 400, NO_KERNEL);
		return;
	}
	c = id && *id ? kernel_find(x->api, s, id) : kernel_default(x->api, s, language);
	if (!c)
		say_not_found(x, id);
	else
		begin_execution(q, c, code, json_is_object(env) ? env : NULL);
}

/* ---- contexts ---- */

static void context_made(void *arg, enum execution_end how, const char *why)
{
	struct interpreter_request *r = arg;

	if (how == EXECUTION_DONE) {
		exchange_json(r->q->x, 200, kernel_describe(r->context));
		return;
	}
	kernel_remove(r->context);
	say(r->q->x, 500, why);
}

static void make_context(struct e2b_request *q, struct sandbox *s)
{
	static const struct execution_ops ops = {.on_end = context_made};
	struct exchange *x = q->x;
	bool bad = false;
	const struct kernel_language *language =
		kernel_language(e2b_text(x->json, "language", &bad));
	const char *cwd = e2b_text(x->json, "cwd", &bad);
	struct err e = {0};
	auto_free char *path = bad ? NULL : e2b_path(cwd, "user", &e);
	struct context *c;

	if (bad) {
		say(x, 422, "language and cwd are strings");
		return;
	}
	if (!language || !path) {
		say(x, 400, path ? NO_KERNEL : e.msg);
		return;
	}
	c = kernel_new(x->api, s, language, path, &e);
	if (c)
		kernel_start(c, false, &ops, running_new(q, c));
	else
		say(x, 429, e.msg);
}

static void list_contexts(struct e2b_request *q, struct sandbox *s)
{
	exchange_json(q->x, 200, kernel_list(q->x->api, s));
}

static void on_restarted(void *arg, enum execution_end how, const char *why)
{
	struct interpreter_request *r = arg;

	if (how == EXECUTION_DONE)
		exchange_reply(r->q->x, 200, "application/json", "null", 4);
	else
		say(r->q->x, 500, why);
}

static void restart_context(struct e2b_request *q, struct sandbox *s)
{
	static const struct execution_ops ops = {.on_end = on_restarted};
	struct context *c = kernel_find(q->x->api, s, q->x->params[0]);

	if (c)
		kernel_start(c, true, &ops, running_new(q, c));
	else
		say_not_found(q->x, q->x->params[0]);
}

static void remove_context(struct e2b_request *q, struct sandbox *s)
{
	struct context *c = kernel_find(q->x->api, s, q->x->params[0]);

	if (!c) {
		say_not_found(q->x, q->x->params[0]);
		return;
	}
	kernel_remove(c);
	exchange_reply(q->x, 200, "application/json", "null", 4);
}

static void healthy(struct e2b_request *q, struct sandbox *s)
{
	say(q->x, 200, "OK");
}

#define METHOD(verb, path, body, summary, ...)                                                     \
	{                                                                                          \
		verb, path, e2b_enter, 0, body, ROUTE_OPEN, summary, &(const struct e2b_method)    \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}
#define CONTEXTS(verb, path, body, summary, handler)                                               \
	METHOD(verb, path, body, summary, .need = E2B_TRAFFIC_TOKEN, .shape = E2B_KERNEL,          \
	       .call = handler)

const struct route e2b_interpreter_routes[] = {
	METHOD("POST", "/execute", BODY_JSON_BIG, "Runs code (E2B)", .need = E2B_ACCESS_TOKEN,
	       .shape = E2B_KERNEL, .call = execute),
	CONTEXTS("POST", "/contexts", BODY_JSON, "Makes a context (E2B)", make_context),
	CONTEXTS("GET", "/contexts", BODY_NONE, "Lists contexts (E2B)", list_contexts),
	CONTEXTS("POST", "/contexts/{id}/restart", BODY_BYTES, "Restarts a context (E2B)",
		 restart_context),
	CONTEXTS("DELETE", "/contexts/{id}", BODY_BYTES, "Removes a context (E2B)", remove_context),
	METHOD("GET", "/health", BODY_NONE, "Is it there? (E2B)", .need = E2B_OPEN,
	       .call = healthy),
};
const size_t e2b_interpreter_route_count = ARRAY_LEN(e2b_interpreter_routes);
