/* The code interpreter's port: contexts, and executions whose output and results are streamed. */
#include "api/e2b/kernel_internal.h"

#define KEEPALIVE_MS 5000
#define KEEPALIVE "{\"type\":\"keepalive\"}\n"

/* Clients of the interpreter show the text of an error as it is. */
static void reply_text(struct exchange *x, int status, const char *text)
{
	exchange_reply(x, status, "text/plain; charset=utf-8", text, strlen(text));
}

static void reply_no_kernel(struct exchange *x, const char *language)
{
	auto_free char *text = str_format(
		"language: '%.60s' has no kernel here; try python, javascript or bash", language);

	reply_text(x, 400, text);
}

/* Finds a context by its id; NULL after a 404. */
static struct context *find_context(struct exchange *x, struct sandbox *s, const char *id)
{
	struct context *c = kernel_find(x->api, s, id);
	char text[120];

	snprintf(text, sizeof(text), "Context %.80s not found", id);
	if (!c)
		reply_text(x, 404, text);
	return c;
}

/* ---- /execute ---- */

struct interpreter_request {
	struct e2b_request *q;
	struct context *context;
	bool is_new; /* the context is made by this request */
	struct execution *execution;
	struct loop_timer silence;
};

static void interpreter_request_done(void *more)
{
	struct interpreter_request *r = more;

	struct execution *e = take_ptr(r->execution);

	loop_timer_stop(r->q->x->api->loop, &r->silence);
	if (e)
		kernel_abandon(e);
}

static struct interpreter_request *request_new(struct e2b_request *q, struct context *c)
{
	struct interpreter_request *r = e2b_keep(q, sizeof(*r), interpreter_request_done);

	*r = (struct interpreter_request){.q = q, .context = c};
	return r;
}

static void send_line(void *arg, const char *text, size_t len)
{
	struct interpreter_request *r = arg;
	struct exchange *x = r->q->x;

	exchange_write(x, text, len);
	exchange_write(x, "\n", 1);
	loop_timer_set(x->api->loop, &r->silence, KEEPALIVE_MS);
}

static void execution_ended(void *arg, enum execution_end how, const char *why)
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

static size_t interpreter_room(void *arg)
{
	return exchange_room(((struct interpreter_request *)arg)->q->x);
}

static void send_keepalive(void *arg)
{
	struct interpreter_request *r = arg;

	exchange_write(r->q->x, KEEPALIVE, strlen(KEEPALIVE));
	loop_timer_set(r->q->x->api->loop, &r->silence, KEEPALIVE_MS);
}

static void execution_room(void *arg)
{
	struct interpreter_request *r = arg;

	if (r->execution)
		pump_resume(&r->context->pump);
}

/* The client timed out or left: the execution is interrupted. */
static void execution_client_gone(void *arg)
{
	struct interpreter_request *r = arg;

	interpreter_request_done(r);
	exchange_abort(r->q->x);
}

static void begin_execution(struct e2b_request *q, struct context *c, const char *code, json_t *env)
{
	static const struct execution_ops ops = {
		.on_line = send_line, .on_end = execution_ended, .room = interpreter_room};
	struct interpreter_request *r = request_new(q, c);

	r->silence = (struct loop_timer){.call = send_keepalive, .arg = r};
	r->execution = kernel_execute(c, code, env, &ops, r);
	if (!r->execution) {
		reply_text(q->x, 429, "Too many executions are waiting for this context");
		return;
	}
	/* The head is sent at once: clients have a timeout for it. */
	exchange_stream(q->x, 200, "application/x-ndjson", EXCHANGE_UNKNOWN_LENGTH);
	exchange_on_gone(q->x, execution_client_gone, r);
	exchange_on_room(q->x, execution_room, r);
	loop_timer_set(q->x->api->loop, &r->silence, KEEPALIVE_MS);
}

static void execute_code(struct e2b_request *q, struct sandbox *s)
{
	struct exchange *x = q->x;
	json_t *env = json_object_get(x->json, "env_vars");
	bool bad_code = false, bad_id = false, bad_language = false;
	const char *code = e2b_text(x->json, "code", &bad_code);
	const char *id = e2b_text(x->json, "context_id", &bad_id);
	const char *name = e2b_text(x->json, "language", &bad_language);
	const struct kernel_language *language = kernel_language(name);
	struct context *c;
	struct err e = {0};

	if (!code || bad_id || bad_language)
		reply_text(x, 422,
			   !code    ? "code: is missing or not a string"
			   : bad_id ? "context_id: not a string"
				    : "language: not a string");
	else if (e2b_strings(env, "env_vars", SIZE_MAX, NULL, &e) < 0)
		reply_text(x, 422, e.msg);
	else if (id && *id && name && *name)
		reply_text(x, 400, "Only one of context_id or language can be provided");
	else if (!language)
		reply_no_kernel(x, name);
	else if ((c = id && *id ? find_context(x, s, id) : kernel_default(x->api, s, language)))
		begin_execution(q, c, code, json_is_object(env) ? env : NULL);
}

/* ---- contexts ---- */

/* The kernel of a context that was made or restarted is ready, or could not be started. */
static void on_context_ready(void *arg, enum execution_end how, const char *why)
{
	struct interpreter_request *r = arg;
	struct exchange *x = r->q->x;

	if (how == EXECUTION_DONE && r->is_new) {
		exchange_json(x, 200, kernel_describe(r->context));
	} else if (how == EXECUTION_DONE) {
		exchange_reply(x, 200, "application/json", "null", 4);
	} else {
		if (r->is_new)
			kernel_remove(r->context);
		reply_text(x, 500, why);
	}
}

static void start_context(struct e2b_request *q, struct context *c, bool is_new)
{
	static const struct execution_ops ops = {.on_end = on_context_ready};
	struct interpreter_request *r = request_new(q, c);

	r->is_new = is_new;
	kernel_start(c, !is_new, &ops, r);
}

/* The directory of a new context is known, or why there is none. */
static void cwd_seen(void *arg, const struct answer *a, const struct err *e)
{
	struct e2b_request *q = arg;
	struct exchange *x = q->x;
	bool bad = false;
	const struct kernel_language *language =
		kernel_language(e2b_text(x->json, "language", &bad));
	struct err limit = {0};
	struct sandbox *s = e2b_still(q);
	auto_free char *text = NULL;
	struct context *c;

	if (!s)
		return;
	if (e)
		text = str_format("cwd: %.400s: %.200s", q->path,
				  e->errnum == ENOENT ? "does not exist" : e->msg);
	else if (a->info->kind != 'd')
		text = str_format("cwd: %.400s: is not a directory", q->path);
	if (text)
		reply_text(x, 400, text);
	else if ((c = kernel_new(x->api, s, language, q->path, &limit)))
		start_context(q, c, true);
	else
		reply_text(x, 429, limit.msg);
}

static void make_context(struct e2b_request *q, struct sandbox *s)
{
	struct exchange *x = q->x;
	bool bad_language = false, bad_cwd = false;
	const char *name = e2b_text(x->json, "language", &bad_language);
	const char *cwd = e2b_text(x->json, "cwd", &bad_cwd);
	struct err e = {0};

	q->path = e2b_path(bad_cwd ? NULL : cwd, "user", &e);
	if (bad_language || bad_cwd)
		reply_text(x, 422, bad_cwd ? "cwd: not a string" : "language: not a string");
	else if (!kernel_language(name))
		reply_no_kernel(x, name);
	else if (!q->path)
		reply_text(x, 400, e.msg);
	else
		call_stat(s, q->path, true, cwd_seen, q);
}

static void list_contexts(struct e2b_request *q, struct sandbox *s)
{
	exchange_json(q->x, 200, kernel_list(q->x->api, s));
}

static void restart_context(struct e2b_request *q, struct sandbox *s)
{
	struct context *c = find_context(q->x, s, q->x->params[0]);

	if (c)
		start_context(q, c, false);
}

static void remove_context(struct e2b_request *q, struct sandbox *s)
{
	struct context *c = find_context(q->x, s, q->x->params[0]);

	if (!c)
		return;
	kernel_remove(c);
	exchange_reply(q->x, 200, "application/json", "null", 4);
}

static void reply_ok(struct e2b_request *q, struct sandbox *s)
{
	reply_text(q->x, 200, "OK");
}

#define CONTEXTS(verb, path, body, summary, handler)                                               \
	E2B_METHOD(verb, path, 0, body, summary, .need = E2B_TRAFFIC_TOKEN, .shape = E2B_KERNEL,   \
		   .call = handler)

static const struct route routes[] = {
	E2B_METHOD("POST", "/execute", 0, BODY_JSON_BIG, "Runs code (E2B)",
		   .need = E2B_ACCESS_TOKEN, .shape = E2B_KERNEL, .call = execute_code),
	CONTEXTS("POST", "/contexts", BODY_JSON, "Makes a context (E2B)", make_context),
	CONTEXTS("GET", "/contexts", BODY_NONE, "Lists contexts (E2B)", list_contexts),
	CONTEXTS("POST", "/contexts/{id}/restart", BODY_BYTES, "Restarts a context (E2B)",
		 restart_context),
	CONTEXTS("DELETE", "/contexts/{id}", BODY_BYTES, "Removes a context (E2B)", remove_context),
	E2B_METHOD("GET", "/health", 0, BODY_NONE, "Is it there? (E2B)", .need = E2B_OPEN,
		   .call = reply_ok),
};

static bool claims_interpreter(const struct exchange *x)
{
	return e2b_port_of(x) == E2B_INTERPRETER_PORT;
}

static void interpreter_error(struct exchange *x, int status, const struct err *e)
{
	reply_text(x, status, e->msg);
}

const struct door e2b_interpreter_door = {
	DOOR_E2B, "e2b",     routes, ARRAY_LEN(routes), claims_interpreter, interpreter_error,
	NULL,	  e2b_admit, NULL,
};
