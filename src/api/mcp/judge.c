/*
 * A tool call is judged before it is made: by the operator's rules (cloche.conf: tools.rules), by those of the
 * session or request, then by the operator's interceptors, one after the other. The strictest verdict counts, and
 * each is in the audit log. An interceptor is an agent type (agent/type.h) that gets the call as JSON and answers
 * {"verdict": "allow" | "ask" | "deny", "reason": TEXT}; it runs in a sandbox of its own. Whatever else it
 * does, the call is denied.
 */
#include "api/mcp/mcp_internal.h"

#include "policy/config.h"

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

static void take_stricter(struct tool_judgement *to, const struct tool_judgement *other)
{
	if (other->verdict > to->verdict)
		*to = *other;
}

void mcp_judge(const struct mcp_question *q, mcp_judged done, void *arg)
{
	const struct config *c = q->x->api->config;
	struct tool_judgement j, more;

	judge_by_operator(c, &q->call, &j);
	judge_by_caller(q->more_rules, &q->call, &more);
	take_stricter(&j, &more);
	if (c->tool_rule_count || q->more_rules)
		exchange_note(q->x, q->call.tool, tool_verdict_name(j.verdict), j.reason);
	done(arg, &j);
}
