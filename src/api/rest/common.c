/* What the handlers of the REST door share: entering a route, reading arguments, common answers. */
#include "api/rest/rest.h"
#include "auth/shares.h"

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
	void (*call)(struct exchange *x);
};

static void on_sandbox_awake(void *arg, struct sandbox *s, const struct err *e)
{
	struct waking w = *(struct waking *)arg;

	free(arg);
	if (!s)
		exchange_error(w.x, e);
	else if (w.x->gone)
		exchange_answer_gone(w.x);
	else {
		w.x->sandbox = s;
		w.call(w.x);
	}
}

void v1_awake(struct exchange *x, void (*call)(struct exchange *x))
{
	struct sandbox *s = v1_sandbox(x);
	struct waking *w;

	if (!s)
		return;
	w = must_alloc(malloc(sizeof(*w)));
	*w = (struct waking){x, call};
	sandbox_wake(s, &x->caller, on_sandbox_awake, w);
}

static bool has_path(struct exchange *x)
{
	const char *path = exchange_arg(x, "path");

	if (path && *path && strlen(path) < CALL_PATH_MAX - 16)
		return true;
	exchange_refuse(x, "path", "is missing, empty or too long");
	return false;
}

void v1_enter(struct exchange *x)
{
	const struct route *r = x->route;
	bool has_table = r->describe && !route_query(r) && !(r->flags & ROUTE_OWN_BODY);

	if ((has_table && !v1_body(x)) || (r->flags & ROUTE_PATH && !has_path(x)))
		return;
	if (r->flags & ROUTE_AWAKE)
		v1_awake(x, r->handle);
	else if (!(r->flags & ROUTE_SANDBOX) || (x->sandbox = v1_sandbox(x)))
		r->handle(x);
}

bool v1_arg_uint(struct exchange *x, const char *name, uint64_t dflt, uint64_t max, uint64_t *ret)
{
	struct err e = {0};

	if (exchange_arg_uint(x, name, dflt, max, ret, &e) == 0)
		return true;
	exchange_error(x, &e);
	return false;
}

int v1_read_mode(const char *text, uint32_t dflt, uint32_t max, uint32_t *ret, struct err *e)
{
	char *end;
	unsigned long mode = text ? strtoul(text, &end, 8) : dflt;

	if (text && (!*text || *end || mode > max || text[0] == '-'))
		return err_field(e, ERR_INVALID, "mode", "mode: '%.20s' is not one; try 644", text);
	*ret = (uint32_t)mode;
	return 0;
}

void v1_answer_sandbox(void *arg, struct sandbox *s, const struct err *e)
{
	if (s)
		exchange_json(arg, 200, sandbox_describe(s));
	else
		exchange_error(arg, e);
}

static bool is_failure(const struct err *e)
{
	return e && e->kind != ERR_NONE;
}

static void answer_value(struct exchange *x, int status, json_t *value, const struct err *e)
{
	if (is_failure(e)) {
		json_decref(value);
		exchange_error(x, e);
		return;
	}
	exchange_json(x, status, value ? value : json_object());
}

void v1_answer_json(void *arg, json_t *value, const struct err *e)
{
	answer_value(arg, 200, value, e);
}

void v1_answer_created(void *arg, json_t *value, const struct err *e)
{
	answer_value(arg, 201, value, e);
}

/* ---- records ---- */

#define PRINTED_AT_ONCE (64u << 10) /* of output */

struct long_record {
	struct exchange *x;
	struct result_printing *printing;
	size_t kept;
	struct loop_task task;
};

static void long_record_done(void *data)
{
	struct long_record *l = data;

	loop_task_remove(l->x->api->loop, &l->task);
	result_printing_free(l->printing);
}

static void print_some(void *arg)
{
	struct long_record *l = arg;
	struct loop *loop = l->x->api->loop;
	size_t len;
	char *text;

	while (!result_printing_step(l->printing))
		if (loop_turn_is_over(loop)) {
			loop_task_add(loop, &l->task);
			return;
		}
	text = result_printing_take(l->printing, &len);
	/* From here on the answer itself is counted. */
	exchange_keep(l->x, 0 - l->kept);
	exchange_reply_take(l->x, 200, "application/json", text, len);
}

void v1_answer_result(struct exchange *x, struct result *r)
{
	size_t output = r->out.head_len + r->out.tail_len + r->err.head_len + r->err.tail_len, len;
	struct long_record *l;
	char *text;

	if (output < PRINTED_AT_ONCE || r->base64) {
		text = result_text(r, &len);
		exchange_reply_take(x, 200, "application/json", text, len);
		return;
	}
	l = must_alloc(calloc(1, sizeof(*l)));
	exchange_also_free(x, l, long_record_done);
	*l = (struct long_record){.x = x, .printing = result_printing_new(r), .kept = output};
	l->task = (struct loop_task){
		.call = print_some,
		.arg = l,
		.user = shares_user(manager_shares(x->api->manager), x->caller.token)};
	exchange_keep(x, output);
	loop_task_add(x->api->loop, &l->task);
}

void v1_answer_empty(void *arg, json_t *value, const struct err *e)
{
	json_decref(value);
	if (is_failure(e))
		exchange_error(arg, e);
	else
		exchange_reply(arg, 204, NULL, "", 0);
}

int v1_read_input(const json_t *body, struct exec_request *r, char **ret_decoded, struct err *e)
{
	json_t *text = json_object_get(body, "stdin");

	if (json_is_string(text) && !body_has(body, "stdin_base64")) {
		r->input_text = text;
		r->input = json_string_value(text);
		r->input_len = json_string_length(text);
		return 0;
	}
	if (body_bytes(body, "stdin", "stdin_base64", ret_decoded, &r->input_len, e) < 0)
		return -1;
	r->input = *ret_decoded;
	return 0;
}
