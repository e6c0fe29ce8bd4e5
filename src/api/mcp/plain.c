/*
 * Tool calls over REST: what would come of one (/v1/tools/check), and one made (/v1/tools/call) by the functions
 * that MCP's tools use, in the sandbox of a session of MCP. Rules and interceptors judge both.
 */
#include "api/mcp/mcp_internal.h"

#include "agent/tool_call.h"

#define CALL_FIELDS                                                                                \
	NEEDED("tool", BODY_TEXT, "as the agent calls it: Bash, Read, mcp__NAME__TOOL, run_code"), \
		FIELD("arguments", BODY_OBJECT, "of the tool"),                                    \
		FIELD("cwd", BODY_TEXT, "where relative paths begin"),                             \
		FIELD("paths", BODY_MAP, "paths of the host and what they are inside"),            \
		FIELD("tool_rule", BODY_LIST, "further rules, which can only refuse more"),        \
		FIELD("agent", BODY_TEXT, "the registered agent of the caller's that makes it")

const struct body_table v1_tool_check_table = BODY_TABLE(BODY_ALONE, CALL_FIELDS);
const struct body_table v1_tool_call_table = BODY_TABLE(
	BODY_ALONE, CALL_FIELDS,
	FIELD("session", BODY_TEXT, "calls of one session share their sandboxes; default: tools"),
	FIELD("approved", BODY_FLAG, "a person allowed what rules say to ask about"));

static json_t *verdict_json(const char *verdict, const struct tool_judgement *j)
{
	return json_pack("{s:s, s:o, s:o}", "verdict", verdict, "reason", text_json_of(j->reason),
			 "rule", text_json_of(j->rule));
}

static struct mcp_question question_of(struct exchange *x)
{
	return (struct mcp_question){
		.x = x,
		.call = {.tool = body_text(x->json, "tool"),
			 .agent = body_text(x->json, "agent"),
			 .args = json_object_get(x->json, "arguments"),
			 .cwd = body_text(x->json, "cwd"),
			 .paths = json_object_get(x->json, "paths")},
		.more_rules = json_object_get(x->json, "tool_rule"),
	};
}

/* ---- check ---- */

static void on_checked(void *arg, const struct tool_judgement *j)
{
	struct exchange *x = arg;
	const json_t *paths = json_object_get(x->json, "paths");
	const char *tool = body_text(x->json, "tool"), *ours;
	json_t *args, *answer;
	struct err e;

	if (j->verdict != TOOL_ALLOW || !paths) {
		exchange_json(x, 200, verdict_json(tool_verdict_name(j->verdict), j));
		return;
	}
	if (tool_call_translate(tool, json_object_get(x->json, "arguments"), paths, &ours, &args,
				&e) < 0) {
		exchange_error(x, &e);
		return;
	}
	answer = verdict_json(mcp_tool_find(ours) ? "rewrite" : "allow", j);
	if (mcp_tool_find(ours))
		json_object_set_new(answer, "call",
				    json_pack("{s:s, s:O}", "tool", ours, "arguments", args));
	json_decref(args);
	exchange_json(x, 200, answer);
}

void v1_tool_check(struct exchange *x)
{
	const struct mcp_question q = question_of(x);
	struct err e = {0};

	if (mcp_check_agent(x, q.call.agent, &e) < 0)
		exchange_error(x, &e);
	else
		mcp_judge(&q, on_checked, x);
}

/* ---- call ---- */

static void start_call(struct exchange *x)
{
	static const struct mcp_method *method;
	const char *session = body_text(x->json, "session"), *tool;
	struct jsonrpc m = {.kind = JSONRPC_REQUEST, .method = "tools/call"};
	auto_free char *name = str_format("rest %.48s", session ? session : "tools");
	struct mcp_session *s;
	struct mcp_call *c;
	struct err e = {0};
	json_t *args;

	if (tool_call_translate(body_text(x->json, "tool"), json_object_get(x->json, "arguments"),
				json_object_get(x->json, "paths"), &tool, &args, &e) < 0) {
		exchange_error(x, &e);
		return;
	}
	method = mcp_method_find(m.method, MCP_LEGACY);
	s = mcp_session_implicit(mcp_state(x->api), &x->caller, name, &e);
	if (!s) {
		json_decref(args);
		exchange_error(x, &e);
		return;
	}
	m.id = json_integer(1);
	m.params = json_pack("{s:s, s:o}", "name", tool, "arguments", args);
	c = mcp_call_new(s, x, &m, MCP_LEGACY, method);
	c->plain = true;
	json_decref(m.id);
	json_decref(m.params);
	mcp_call_tool(c);
}

/* 429: a limit is reached. */
static void refuse_for_now(struct exchange *x, const struct tool_judgement *j)
{
	exchange_retry_after(x, j->wait_s);
	exchange_fail(x, ERR_LIMIT, "%s", j->reason);
}

static void on_judged(void *arg, const struct tool_judgement *j)
{
	struct exchange *x = arg;
	bool approved = body_flag(x->json, "approved");

	if (x->gone) {
		exchange_answer_gone(x);
	} else if (j->verdict == TOOL_ALLOW || (j->verdict == TOOL_ASK && approved)) {
		start_call(x);
	} else if (j->wait_s) {
		refuse_for_now(x, j);
	} else {
		exchange_fail(x, ERR_DENIED, "%s: %s", j->verdict == TOOL_ASK ? "ask" : "deny",
			      j->reason);
	}
}

void v1_tool_call(struct exchange *x)
{
	struct mcp_question q = question_of(x);
	struct err e = {0};

	q.counts = true;
	if (mcp_check_agent(x, q.call.agent, &e) < 0)
		exchange_error(x, &e);
	else
		mcp_judge(&q, on_judged, x);
}
