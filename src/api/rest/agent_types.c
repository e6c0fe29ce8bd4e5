/*
 * Agent types over REST: what there is, and one run of one of them. A run is POST /v1/run with a body that the
 * type and the task make (agent/type.h); so limits, network, secrets, capture and cancelling are those of any run.
 */
#include "api/rest/rest.h"

#include "agent/type.h"
#include "auth/trust.h"
#include "base/clean.h"
#include "base/log.h"

#define STDERR_MAX (16u << 10)
#define CALL_BYTES (8u << 20) /* parsed in one turn of the loop */

static const char *const ways[] = {"argument", "stdin", "file", "variable", NULL};
static const char *const outputs[] = {"text", "json", "jsonl", NULL};

/* The keys of a type's file; how a sandbox is made stands beside them, as in a policy. */
static const struct body_table type_table = BODY_TABLE(
	BODY_WITH_SPEC, FIELD("description", BODY_TEXT, "what it is"),
	NEEDED("command", BODY_LIST,
	       "program and arguments; {task}, {system}, {name} as whole words"),
	FIELD("task", BODY_TEXT, "how the task arrives", .values = ways),
	FIELD("system", BODY_LIST, "words that are added for a system prompt"),
	FIELD("env", BODY_MAP, "its variables"), FIELD("secrets", BODY_LIST, "names of secrets"),
	FIELD("files", BODY_ITEMS, "files put there before"),
	FIELD("capture", BODY_LIST, "globs: files taken out afterwards"),
	FIELD("output", BODY_TEXT, "what it prints", .values = outputs),
	FIELD("needs", BODY_LIST, "programs and modules that its image must have"),
	FIELD("hint", BODY_TEXT, "how to get them"),
	FIELD("trust", BODY_COUNT, "the most that it is trusted, from 0 to 5"));

#define CALL_FIELDS                                                                                \
	FIELD("agent_name", BODY_TEXT, "what this one is called"),                                 \
		FIELD("system_prompt", BODY_TEXT, "what it is to be"),                             \
		FIELD("files", BODY_ITEMS, "files put there before"),                              \
		FIELD("capture", BODY_LIST, "globs: files taken out afterwards"),                  \
		FIELD("env", BODY_MAP, "further variables"),                                       \
		FIELD("agent", BODY_TEXT, "the registered agent that it is")

/* What a caller may say; limits only narrow those of the type. */
const struct body_table v1_agent_run_table =
	BODY_TABLE(BODY_WITH_LIMITS, NEEDED("task", BODY_STRING, "what it is to do"), CALL_FIELDS);
/* The same as a body of /v1/run and of a batch's task. */
static const struct body_table run_table =
	BODY_TABLE(BODY_WITH_LIMITS, NEEDED("task", BODY_STRING, "what it is to do"),
		   NEEDED("agent_type", BODY_TEXT, "which"), CALL_FIELDS);

/* ---- the types ---- */

/* A type that is less trusted has no wider network than its level. */
static int check_net(const json_t *type, struct err *e)
{
	int level = (int)body_count(type, "trust", TRUST_LEVELS - 1);
	struct sandbox_spec s;
	int rc = 0;

	spec_init(&s);
	if (body_spec(type, &type_table, &s, e) < 0)
		rc = -1;
	else if (body_has(type, "trust") && s.net > trust_level(level)->net)
		rc = err_field(e, ERR_DENIED, "net", "net: is wider than trust level %d has",
			       level);
	spec_done(&s);
	return rc;
}

static int check_type(const json_t *type, struct err *e)
{
	const json_t *command = json_object_get(type, "command");

	if (!json_is_object(type) || body_check(type, &type_table, e) < 0)
		return e->kind ? -1 : err_set(e, ERR_INVALID, "is no mapping");
	if (json_array_size(command) == 0)
		return err_field(e, ERR_INVALID, "command", "command: is empty");
	if (body_count(type, "trust", 0) >= TRUST_LEVELS)
		return err_field(e, ERR_INVALID, "trust", "trust: is a level from 0 to 5");
	return check_net(type, e);
}

void agent_types_take(struct api *api, const char *text, size_t len)
{
	json_t *all = json_loadb(text, len, 0, NULL), *type;
	const char *name;
	void *next;

	if (!all) {
		log_error("agent types refused", "error", "they are no JSON");
		return;
	}
	json_object_foreach_safe(all, next, name, type)
	{
		struct err e = {0};

		if (check_type(type, &e) == 0)
			continue;
		/* Left out, so that nobody runs what the operator did not mean. */
		log_error("agent type refused", "type", name, "error", e.msg);
		json_object_del(all, name);
	}
	json_decref(api->agent_types);
	api->agent_types = all;
}

static json_t *describe_type(const char *name, const json_t *type)
{
	json_t *ret = json_pack("{s:s}", "type", name);
	static const char *const shown[] = {"description", "task",    "output", "image",
					    "net",	   "needs",   "hint",	"capture",
					    "memory",	   "timeout", "trust"};

	for (size_t i = 0; i < ARRAY_LEN(shown); i++)
		json_object_set(ret, shown[i],
				json_object_get(type, shown[i]) ? json_object_get(type, shown[i])
								: json_null());
	return ret;
}

void v1_agent_types(struct exchange *x)
{
	json_t *list = json_array(), *type;
	const char *name;

	json_object_foreach (x->api->agent_types, name, type)
		json_array_append_new(list, describe_type(name, type));
	exchange_json(x, 200, json_pack("{s:o}", "types", list));
}

/* ---- bodies ---- */

json_t *agent_run_body(const struct api *api, struct caller *who, const json_t *call, struct err *e)
{
	const char *name = body_text(call, "agent_type");
	const json_t *type = name ? json_object_get(api->agent_types, name) : NULL;
	int trust;

	if (body_check(call, &run_table, e) < 0)
		return NULL;
	if (!type) {
		err_field(e, ERR_INVALID, "agent_type", "agent_type: there is no '%.64s' here",
			  name);
		return NULL;
	}
	trust = (int)body_count(type, "trust", 5);
	if (trust < who->trust)
		who->trust = trust;
	return agent_type_body(name, type, call, e);
}

json_t *run_record_json(const struct result *r, bool raw)
{
	size_t len;
	auto_free char *text = result_text(r, &len);
	json_t *ret = json_loadb(text, len, JSON_ALLOW_NUL, NULL);

	if (!raw) {
		json_object_del(ret, "stdout");
		json_object_del(ret, "stderr");
	}
	return ret;
}

/* ---- one run: POST /mcp/agents/{type} ---- */

struct agent_call {
	struct exchange *x;
	struct run *run;
	json_t *type; /* held */
	json_t *body; /* held */
};

static void agent_call_done(void *data)
{
	struct agent_call *a = data;

	json_decref(a->type);
	json_decref(a->body);
}

/* What it printed, fit for a terminal and a model. */
static void clean_output(const struct agent_call *a, const struct capture *c, struct buf *ret,
			 struct cleaned *n)
{
	auto_list struct list env = {0}, values = {0};
	auto_buf struct buf b = {0};
	struct err ignored;

	capture_join(c, buf_take_part, &b);
	if (body_env(a->body, "env", &env, &ignored) == 0)
		clean_values_of(&env, &values);
	clean_text(ret, b.len ? buf_head(&b) : "", b.len, &values, n);
}

/* The last part of its error output, which has the reason as a rule. */
static json_t *error_output(const struct agent_call *a, const struct result *r, struct cleaned *n)
{
	auto_buf struct buf b = {0};
	size_t skip;

	clean_output(a, &r->err, &b, n);
	skip = b.len > STDERR_MAX ? b.len - STDERR_MAX : 0;
	return text_json(b.len ? buf_head(&b) + skip : "", b.len - skip);
}

static bool wants_raw(const struct agent_call *a)
{
	return exchange_arg_flag(a->x, "raw");
}

static void say_what_is_missing(const struct agent_call *a, const struct result *r, struct err *e)
{
	const json_t *needs = json_object_get(a->type, "needs");
	const char *hint = body_text(a->type, "hint");

	if (r->end.exit_code != 127 && r->end.exit_code != 126)
		return;
	for (size_t i = 0; i < json_array_size(needs); i++)
		str_append(e->msg, sizeof(e->msg), i ? ", " : ". It needs in its image: ", "%s",
			   json_string_value(json_array_get(needs, i)));
	if (hint)
		str_append(e->msg, sizeof(e->msg), ". ", "%s", hint);
}

/* It ran and failed: its fault, not the daemon's. */
static void answer_failure(const struct agent_call *a, const struct result *r)
{
	bool late = r->end.status == STATUS_TIMEOUT;
	struct cleaned n = {0};
	struct err e = {0};
	json_t *body, *error;

	if (late)
		err_set(&e, ERR_LIMIT, "the agent's time was up");
	else if (r->end.status == STATUS_EXITED)
		err_set(&e, ERR_SYSTEM, "the agent failed with exit status %d", r->end.exit_code);
	else
		err_set(&e, ERR_SYSTEM, "the agent ended: %s", status_name(r->end.status));
	say_what_is_missing(a, r, &e);
	body = exchange_error_body(late ? 408 : 500, &e);
	error = json_object_get(body, "error");
	json_object_set_new(error, "kind", json_string(late ? "timeout" : "failed"));
	json_object_set_new(error, "fault", json_string("program"));
	json_object_set_new(error, "retryable", json_false());
	json_object_set_new(body, "stderr", error_output(a, r, &n));
	json_object_set_new(body, "record", run_record_json(r, wants_raw(a)));
	exchange_json(a->x, late ? 408 : 500, body);
}

static void answer_success(const struct agent_call *a, const struct result *r)
{
	const char *kind = body_text(a->type, "output");
	auto_buf struct buf b = {0};
	struct cleaned n = {0};
	struct err e = {0};
	json_t *output, *answer;

	clean_output(a, &r->out, &b, &n);
	output = agent_type_answer(a->type, b.len ? buf_head(&b) : "", b.len, &e);
	if (!output) {
		exchange_error_as(a->x, 500, &e);
		return;
	}
	answer = json_pack("{s:s, s:s, s:o, s:o}", "agent", a->x->params[0], "kind",
			   kind ? kind : "text", "output", output, "record",
			   run_record_json(r, wants_raw(a)));
	text_add_cleaned(answer, &n);
	exchange_json(a->x, 200, answer);
}

static void on_agent_done(void *arg, struct result *r, const struct err *e)
{
	struct agent_call *a = arg;

	a->run = NULL;
	if (!r)
		exchange_error(a->x, e);
	else if (r->end.status == STATUS_EXITED && r->end.exit_code == 0)
		answer_success(a, r);
	else
		answer_failure(a, r);
}

static void on_agent_gone(void *arg)
{
	struct agent_call *a = arg;

	if (!a->run)
		return;
	run_cancel(take_ptr(a->run));
	exchange_answer_gone(a->x);
}

/* JSON, whatever the Content-Type says: curl -d calls it a form. */
static json_t *read_call(struct exchange *x)
{
	json_t *call = x->body_len > CALL_BYTES
			       ? NULL
			       : json_loadb(x->body ? x->body : "", x->body_len,
					    JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	struct err e = {0};

	if (x->body_len > CALL_BYTES) {
		err_set(&e, ERR_LIMIT, "the body has more than 8 MB");
		e.errnum = E2BIG;
		exchange_error(x, &e);
		return NULL;
	}
	if (!json_is_object(call)) {
		json_decref(call);
		exchange_fail(x, ERR_INVALID, "the body is not a JSON object with a task");
		return NULL;
	}
	if (body_check(call, &v1_agent_run_table, &e) < 0) {
		json_decref(call);
		exchange_error(x, &e);
		return NULL;
	}
	json_object_set_new(call, "agent_type", json_string(x->params[0]));
	return call;
}

void v1_agent_call(struct exchange *x)
{
	json_t *call = read_call(x);
	struct agent_call *a;
	struct err e = {0};

	if (!call)
		return;
	a = exchange_attach(x, sizeof(*a), agent_call_done);
	a->x = x;
	a->body = call;
	a->type = json_incref(json_object_get(x->api->agent_types, x->params[0]));
	a->run = run_start(x->api, &x->caller, call, on_agent_done, a, &e);
	if (!a->run)
		exchange_error(x, &e);
	else
		exchange_on_gone(x, on_agent_gone, a);
}
