/* Writes the refusal of `cloche hook`, for the launcher too, which may have no cloched to ask. */
#include "model/refusal.h"

#include "base/jsonw.h"

/* Members at the top of the answer, and the agents that read them. */
static const struct {
	const char *name, *value; /* value NULL: the reason */
} members[] = {
	{"decision", "block"}, /* Gemini CLI, Goose; Claude Code of old */
	{"reason", NULL},
	{"permission", "deny"}, /* Cursor */
	{"user_message", NULL},
	{"agent_message", NULL},
	{"permissionDecision", "deny"}, /* Copilot CLI */
	{"permissionDecisionReason", NULL},
	{"errorMessage", NULL}, /* Cline, with "cancel" below */
};

void refusal_print(FILE *to, const char *event, const char *reason)
{
	struct jsonw j;

	jsonw_begin(&j, to);
	jsonw_open(&j, NULL, '{');
	for (size_t i = 0; i < ARRAY_LEN(members); i++)
		jsonw_string(&j, members[i].name, members[i].value ? members[i].value : reason);
	jsonw_bool(&j, "cancel", true);
	/* Claude Code, Codex, VS Code. */
	jsonw_open(&j, "hookSpecificOutput", '{');
	jsonw_string(&j, "hookEventName", event ? event : "PreToolUse");
	jsonw_string(&j, "permissionDecision", "deny");
	jsonw_string(&j, "permissionDecisionReason", reason);
	jsonw_close(&j, '}');
	jsonw_close(&j, '}');
	jsonw_raw(&j, "\n", 1);
	jsonw_finish(&j);
}
