/* One MCP request that takes time: its life, its answers, messages on the way, and tools/call. */
#include "api/mcp/mcp_internal.h"

#include "agent/tool_call.h"

#include <stdarg.h>

#define TICK_MS 1000

static struct loop *loop_of(const struct mcp_call *c)
{
	return c->session->state->api->loop;
}

/* ---- life ---- */

static void on_client_gone(void *arg)
{
	mcp_call_cancel(arg);
}

static void on_tick(void *arg)
{
	struct mcp_call *c = arg;

	c->ticks++;
	if (c->token && c->tool)
		mcp_call_progress(c, c->ticks, 0, "running");
	loop_timer_set(loop_of(c), &c->tick, TICK_MS);
}

static int wanted_level(const struct mcp_session *s, const json_t *meta, enum mcp_era era)
{
	if (era == MCP_LEGACY)
		return s->level;
	return mcp_level_find(body_text(meta, MCP_META "logLevel"));
}

struct mcp_call *mcp_call_new(struct mcp_session *s, struct exchange *x, const struct jsonrpc *m,
			      enum mcp_era era, const struct mcp_method *method)
{
	struct mcp_call *c = must_alloc(calloc(1, sizeof(*c)));
	const json_t *meta = json_object_get(m->params, "_meta");

	c->session = s;
	c->x = x;
	c->era = era;
	c->method = method;
	c->id = json_incref(m->id);
	c->params = json_incref(m->params);
	c->token = json_object_get(meta, "progressToken");
	c->level = wanted_level(s, meta, era);
	c->tick = (struct loop_timer){.call = on_tick, .arg = c};
	c->next = s->calls;
	s->calls = c;
	loop_timer_set(loop_of(c), &c->tick, TICK_MS);
	exchange_on_gone(x, on_client_gone, c);
	return c;
}

static void free_call(struct mcp_call *c)
{
	struct mcp_session *s = c->session;
	struct mcp_call **p = &s->calls;

	loop_timer_stop(loop_of(c), &c->tick);
	while (*p && *p != c)
		p = &(*p)->next;
	if (*p)
		*p = c->next;
	if (c->work_done)
		c->work_done(c->work);
	free(c->work);
	json_decref(c->id);
	json_decref(c->params);
	free(c);
	mcp_session_settle(s);
}

static void start_stream(struct mcp_call *c)
{
	if (c->streaming)
		return;
	c->streaming = true;
	sse_open(&c->sse, c->x);
}

static void end_stream(struct mcp_call *c)
{
	sse_close(&c->sse);
	exchange_finish(c->x);
}

static void send_event(struct mcp_call *c, json_t *message)
{
	size_t len;
	auto_free char *text = jsonrpc_print(message, &len);

	start_stream(c);
	exchange_event(c->x, "message", text, len);
	json_decref(message);
}

/* For REST: the result alone, or an error in that door's shape. */
static void send_plain(struct mcp_call *c, json_t *message)
{
	json_t *result = json_object_get(message, "result");
	const char *why = body_text(json_object_get(message, "error"), "message");

	tool_result_outside(json_object_get(result, "structuredContent"),
			    json_object_get(c->x->json, "paths"));
	if (result)
		exchange_json(c->x, 200, json_pack("{s:O}", "result", result));
	else
		exchange_fail(c->x, ERR_NOT_FOUND, "tool: %s", why ? why : "it did not work");
	json_decref(message);
}

/* The last message of a call: plain JSON, or the end of its stream. */
static void send_answer(struct mcp_call *c, json_t *message)
{
	if (c->plain) {
		send_plain(c, message);
	} else if (c->streaming) {
		send_event(c, message);
		end_stream(c);
	} else {
		mcp_reply(c->x, 200, message);
	}
	free_call(c);
}

/* A cancelled request gets no JSON-RPC answer, but HTTP needs one: an empty stream. */
static void end_quietly(struct mcp_call *c)
{
	if (c->plain) {
		exchange_answer_gone(c->x);
	} else {
		start_stream(c);
		end_stream(c);
	}
	free_call(c);
}

void mcp_call_cancel(struct mcp_call *c)
{
	if (c->cancelled)
		return;
	c->cancelled = true;
	if (!c->stop)
		return; /* the callback it waits for calls mcp_call_is_over */
	c->stop(c);
	end_quietly(c);
}

static void stop_guest_call(struct mcp_call *c)
{
	call_drop(take_ptr(c->guest_call));
}

void mcp_call_guest(struct mcp_call *c, struct call *call)
{
	c->guest_call = call;
	c->stop = stop_guest_call;
}

bool mcp_call_is_over(struct mcp_call *c)
{
	if (!c->cancelled)
		return false;
	end_quietly(c);
	return true;
}

/* ---- answers ---- */

void mcp_call_result(struct mcp_call *c, json_t *result)
{
	send_answer(c, jsonrpc_result(c->id, mcp_finish(c->era, c->method, result)));
}

void mcp_call_fault(struct mcp_call *c, int code, const char *text, json_t *data)
{
	send_answer(c, jsonrpc_error(c->id, code, text, data));
}

static json_t *text_content(const char *text)
{
	return json_pack("[{s:s, s:s}]", "type", "text", "text", text);
}

void mcp_call_structured(struct mcp_call *c, json_t *value)
{
	auto_free char *text =
		value ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;

	if (!text) {
		json_decref(value);
		mcp_call_fault(c, JSONRPC_INTERNAL, "the result cannot be written as JSON", NULL);
		return;
	}
	mcp_call_result(c, json_pack("{s:o, s:o, s:b}", "content", text_content(text),
				     "structuredContent", value, "isError", 0));
}

void mcp_call_refuse(struct mcp_call *c, const char *fmt, ...)
{
	char raw[1024], text[1024];
	va_list args;

	va_start(args, fmt);
	vsnprintf(raw, sizeof(raw), fmt, args);
	va_end(args);
	str_sanitise(text, sizeof(text), raw, strlen(raw));
	mcp_call_result(c, json_pack("{s:o, s:b}", "content", text_content(text), "isError", 1));
}

void mcp_call_error(struct mcp_call *c, const struct err *e)
{
	static const char *const advice[ERR_KIND_COUNT] = {
		[ERR_DENIED] = " This is a rule of the sandbox, not a fault: do without it, or "
			       "tell the user what you need it for.",
		[ERR_LIMIT] = " A limit is used up: destroy what is not needed any more, or try "
			      "again later.",
		[ERR_UNSUPPORTED] = " It cannot be had here: use another way.",
		[ERR_SYSTEM] = " If it happens again, destroy the sandbox (sandbox_destroy); the "
			       "next call makes a new one.",
	};
	const char *more = e->kind < ERR_KIND_COUNT ? advice[e->kind] : NULL;

	mcp_call_refuse(c, "%s.%s", e->msg[0] ? e->msg : "It did not work", more ? more : "");
}

void mcp_call_answer_json(void *arg, json_t *value, const struct err *e)
{
	struct mcp_call *c = arg;

	json_decref(value);
	if (mcp_call_is_over(c))
		return;
	if (e && e->kind != ERR_NONE)
		mcp_call_error(c, e);
	else
		mcp_call_structured(c, json_pack("{s:b}", "done", 1));
}

/* ---- on the way ---- */

void mcp_call_notify(struct mcp_call *c, const char *method, json_t *params)
{
	send_event(c, jsonrpc_notification(method, params));
}

void mcp_call_progress(struct mcp_call *c, json_int_t progress, json_int_t total, const char *text)
{
	json_t *params;

	if (!c->token || c->cancelled)
		return;
	params = json_pack("{s:O, s:I, s:s*}", "progressToken", c->token, "progress", progress,
			   "message", text);
	if (total > 0)
		json_object_set_new(params, "total", json_integer(total));
	mcp_call_notify(c, "notifications/progress", params);
}

void mcp_call_log(struct mcp_call *c, int level, const char *text)
{
	if (c->level < 0 || level < c->level || c->cancelled)
		return;
	mcp_call_notify(c, "notifications/message",
			json_pack("{s:s, s:s, s:s}", "level", mcp_level_name(level), "logger",
				  "cloche", "data", text ? text : ""));
}

/* There is nothing to undo. */
static void stop_waiting(struct mcp_call *c)
{
}

void mcp_call_ask(struct mcp_call *c, const char *method, json_t *params,
		  void (*on_reply)(struct mcp_call *c, const json_t *result))
{
	c->asking = ++c->session->asked;
	c->on_reply = on_reply;
	c->stop = stop_waiting;
	send_event(c, jsonrpc_request(c->asking, method, params));
}

/* ---- text ---- */

json_t *mcp_text(const struct mcp_call *c, const char *bytes, size_t len, struct cleaned *n)
{
	auto_list struct list env = {0}, values = {0};
	auto_buf struct buf b = {0};
	struct err ignored;

	if (body_env(c->session->options, "env", &env, &ignored) == 0)
		clean_values_of(&env, &values);
	clean_text(&b, bytes, len, &values, n);
	return text_json(b.len ? buf_head(&b) : "", b.len);
}

json_t *mcp_output(const struct mcp_call *c, const struct buf *bytes, struct cleaned *n)
{
	const char *at = bytes->len ? buf_head(bytes) : "";

	return body_flag(c->args, "raw") ? text_json_base64(at, bytes->len)
					 : mcp_text(c, at, bytes->len, n);
}

void mcp_finish_output(const struct mcp_call *c, json_t *result, const struct cleaned *n)
{
	if (body_flag(c->args, "raw"))
		json_object_set_new(result, "encoding", json_string("base64"));
	text_add_cleaned(result, n);
}

/* ---- arguments ---- */

const char *mcp_arg_text(const struct mcp_call *c, const char *name, const char *dflt)
{
	const char *s = json_string_value(json_object_get(c->args, name));

	return s ? s : dflt;
}

double mcp_arg_number(const struct mcp_call *c, const char *name, double dflt)
{
	const json_t *n = json_object_get(c->args, name);

	return n ? json_number_value(n) : dflt;
}

/* ---- start ---- */

static void run_tool(struct mcp_call *c)
{
	c->run = c->tool->run;
	if (c->tool->no_sandbox)
		c->run(c);
	else
		mcp_call_with_sandbox(c, mcp_arg_text(c, "sandbox_id", NULL));
}

static void on_judged(void *arg, const struct tool_judgement *j)
{
	struct mcp_call *c = arg;

	c->stop = NULL;
	if (mcp_call_is_over(c))
		return;
	if (j->verdict == TOOL_ALLOW)
		run_tool(c);
	else if (j->wait_s)
		mcp_call_refuse(c, "Not now: %s.", j->reason);
	else
		mcp_call_refuse(c,
				"A rule of the user refuses this call%s: %s. Do without it, or "
				"tell the user what you need it for.",
				j->verdict == TOOL_ASK ? " unless somebody is asked, and nobody "
							 "can be"
						       : "",
				j->reason);
}

/* What came through plain.c was judged by the names that its agent uses. */
static void judge_tool(struct mcp_call *c)
{
	const struct mcp_question q = {
		.x = c->x,
		.call = {.tool = c->tool->name,
			 .agent = body_text(c->session->options, "agent"),
			 .args = c->args,
			 .cwd = "/workspace"},
		.more_rules = json_object_get(c->session->options, "tool_rule"),
		.counts = true,
	};
	struct err e = {0};

	if (c->plain)
		run_tool(c);
	else if (mcp_check_agent(c->x, q.call.agent, &e) < 0)
		mcp_call_error(c, &e);
	else
		mcp_judge(&q, on_judged, c);
}

void mcp_call_tool(struct mcp_call *c)
{
	const char *name = body_text(c->params, "name");
	struct err e = {0};

	c->args = json_object_get(c->params, "arguments");
	if (name && &mcp_extra && mcp_extra.call_tool(c, name))
		return;
	c->tool = name ? mcp_tool_find(name) : NULL;
	if (!c->tool) {
		auto_free char *text = str_format("Unknown tool: %.64s", name ? name : "(no name)");

		mcp_call_fault(c, JSONRPC_PARAMS, text, NULL);
		return;
	}
	if ((c->session->caller.scopes & c->tool->scope) != c->tool->scope) {
		mcp_call_refuse(
			c,
			"The token of this client may not use %s. Do without it, or tell the user.",
			c->tool->name);
		return;
	}
	if (mcp_tool_check(c->tool, c->args, &e) < 0) {
		mcp_call_refuse(c, "%s.", e.msg);
		return;
	}
	judge_tool(c);
}

/* No list of ours ever changes: acknowledges, and keeps the stream open. */
void mcp_call_listen(struct mcp_call *c)
{
	c->stop = stop_waiting;
	mcp_call_notify(c, "notifications/subscriptions/acknowledged",
			json_pack("{s:{}, s:{s:O}}", "notifications", "_meta",
				  MCP_META "subscriptionId", c->id));
}
