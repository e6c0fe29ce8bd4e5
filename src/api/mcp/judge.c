/*
 * A tool call is judged before it is made: by the operator's rules (cloche.conf: tools.rules), by those of the
 * session or request, by the operator's limits, then by the operator's interceptors, one after the other. The strictest verdict counts, and
 * each is in the audit log. An interceptor is an agent type (agent/type.h) that gets the call as JSON and answers
 * {"verdict": "allow" | "ask" | "deny", "reason": TEXT}; it runs in a sandbox of its own. Whatever else it
 * does, the call is denied.
 */
#include "api/mcp/mcp_internal.h"

#include "agent/registry.h"
#include "auth/buckets.h"
#include "policy/config.h"

#include <sodium.h>

/* From the settings, without copies. */
static void judge_by_operator(const struct config *c, const struct tool_question *q,
			      struct tool_judgement *ret)
{
	char *items[CONFIG_TOOL_RULES];
	struct list rules = {.items = items, .count = c->tool_rule_count};

	for (uint32_t i = 0; i < c->tool_rule_count; i++)
		items[i] = (char *)c->tool_rules[i];
	tool_rules_judge(&rules, q, ret);
}

static void judge_by_caller(const json_t *more, const struct tool_question *q,
			    struct tool_judgement *ret)
{
	auto_list struct list rules = {0};
	const json_t *item;
	size_t i;

	json_array_foreach ((json_t *)more, i, item)
		list_add(&rules, json_is_string(item) ? json_string_value(item) : "");
	tool_rules_judge(&rules, q, ret);
}

/* ---- interceptors: one after the other, in the operator's order ---- */

struct judging {
	struct exchange *x;
	char *tool;
	json_t *call; /* as interceptors get it */
	uint32_t next;
	char name[CONFIG_NAME]; /* of the one that runs */
	struct tool_judgement j;
	mcp_judged done;
	void *arg;
};

static void ask_next(struct judging *g);

static void end_judging(struct judging *g)
{
	g->done(g->arg, &g->j);
	json_decref(g->call);
	free(g->tool);
	free(g);
}

static void take_verdict(struct judging *g, const char *text, size_t len)
{
	struct tool_judgement j;

	tool_verdict_read(g->name, text, len, &j);
	exchange_note(g->x, g->tool, tool_verdict_name(j.verdict), j.reason);
	tool_take_stricter(&g->j, &j);
	ask_next(g);
}

static void on_interceptor(void *arg, struct result *r, const struct err *e)
{
	auto_buf struct buf b = {0};

	if (r && r->end.status == STATUS_EXITED && r->end.exit_code == 0)
		capture_join(&r->out, buf_take_part, &b);
	take_verdict(arg, b.len ? buf_head(&b) : "", b.len);
}

/* As the caller: what its calls cost is of its own share, and the strictest of its ceilings hold. */
static void ask_next(struct judging *g)
{
	const struct config *c = g->x->api->config;
	auto_free char *task = NULL;
	json_auto_t *body = NULL;
	struct err e = {0};

	if (g->next >= c->interceptor_count || g->j.verdict == TOOL_DENY) {
		end_judging(g);
		return;
	}
	memcpy(g->name, c->interceptors[g->next++], sizeof(g->name));
	task = json_dumps(g->call, JSON_COMPACT);
	body = json_pack("{s:s, s:s?}", "agent_type", g->name, "task", task);
	if (!run_start(g->x->api, &g->x->caller, body, on_interceptor, g, &e))
		take_verdict(g, "", 0);
}

int mcp_check_agent(const struct exchange *x, const char *name, struct err *e)
{
	const struct ipc_agent *a = name ? agents_find(x->api->agents, name) : NULL;

	if (!name || (a && str_equal(a->owner, x->caller.token)))
		return 0;
	return err_field(e, ERR_NOT_FOUND, "agent", "agent: you have no agent %.60s", name);
}

/* ---- limits ---- */

/* Any text in the room of a bucket's name. */
static void id_digest(const char *text, char ret[33])
{
	unsigned char hash[16];

	crypto_generichash(hash, sizeof(hash), (const unsigned char *)text, strlen(text), NULL, 0);
	sodium_bin2hex(ret, 33, hash, sizeof(hash));
}

/* 0, or after how many seconds the call may come again; then j says which limit it was. */
static unsigned take_limits(const struct mcp_question *q, struct tool_judgement *j)
{
	const struct config *c = q->x->api->config;
	struct buckets *used = mcp_state(q->x->api)->calls;
	const char *agent = q->call.agent ? q->call.agent : "";
	struct tool_limit l;
	struct err e;

	for (uint32_t i = 0; i < c->tool_limit_count; i++) {
		auto_free char *name =
			str_format("%s %s %s", c->tool_limits[i], caller_id(&q->x->caller), agent);
		char key[33];
		unsigned wait;

		if (tool_limit_read(c->tool_limits[i], &l, &e) < 0 ||
		    !tool_is_named(l.tool, q->call.agent, q->call.tool))
			continue;
		id_digest(name, key);
		wait = buckets_take_of(used, key, l.count, l.window_ms, now_ns());
		if (!wait)
			continue;
		*j = (struct tool_judgement){.verdict = TOOL_DENY, .wait_s = wait};
		snprintf(j->rule, sizeof(j->rule), "limit %.240s", c->tool_limits[i]);
		snprintf(j->reason, sizeof(j->reason),
			 "the limit %.200s is reached; come again in %u s", c->tool_limits[i],
			 wait);
		return wait;
	}
	return 0;
}

void mcp_judge(const struct mcp_question *q, mcp_judged done, void *arg)
{
	const struct config *c = q->x->api->config;
	struct tool_judgement j, more;
	struct judging *g;

	/* What a rule refuses anyway costs nothing; what an interceptor refuses has cost its run. */
	judge_by_operator(c, &q->call, &j);
	judge_by_caller(q->more_rules, &q->call, &more);
	tool_take_stricter(&j, &more);
	if (c->tool_rule_count || q->more_rules)
		exchange_note(q->x, q->call.tool, tool_verdict_name(j.verdict), j.reason);
	if (q->counts && j.verdict != TOOL_DENY && take_limits(q, &j))
		exchange_note(q->x, q->call.tool, "deny", j.reason);
	if (!c->interceptor_count || j.verdict == TOOL_DENY) {
		done(arg, &j);
		return;
	}
	g = must_alloc(calloc(1, sizeof(*g)));
	*g = (struct judging){
		.x = q->x, .tool = str_copy(q->call.tool), .j = j, .done = done, .arg = arg};
	g->call = json_pack("{s:s, s:s?, s:O?, s:s?, s:O?}", "tool", q->call.tool, "agent",
			    q->call.agent, "arguments", q->call.args, "cwd", q->call.cwd, "paths",
			    q->call.paths);
	ask_next(g);
}
