/* What an interceptor answered: {"verdict": "allow" | "ask" | "deny", "reason": TEXT}. */
#include "policy/tools/rules.h"

static bool find_verdict(const char *name, enum tool_verdict *ret)
{
	for (int v = TOOL_ALLOW; v <= TOOL_DENY; v++)
		if (name && str_equal(name, tool_verdict_name((enum tool_verdict)v))) {
			*ret = (enum tool_verdict)v;
			return true;
		}
	return false;
}

void tool_verdict_read(const char *name, const char *text, size_t len, struct tool_judgement *ret)
{
	json_auto_t *answer = len && len <= TOOL_ANSWER_MAX
				      ? json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL)
				      : NULL;
	const char *verdict = json_string_value(json_object_get(answer, "verdict"));
	const char *reason = json_string_value(json_object_get(answer, "reason"));

	*ret = (struct tool_judgement){.verdict = TOOL_DENY};
	snprintf(ret->rule, sizeof(ret->rule), "interceptor %s", name);
	if (!find_verdict(verdict, &ret->verdict))
		snprintf(ret->reason, sizeof(ret->reason), "the interceptor %s gave no verdict",
			 name);
	else
		str_sanitise(ret->reason, sizeof(ret->reason), reason ? reason : name,
			     strlen(reason ? reason : name));
}

void tool_take_stricter(struct tool_judgement *to, const struct tool_judgement *other)
{
	if (other->verdict > to->verdict)
		*to = *other;
}
