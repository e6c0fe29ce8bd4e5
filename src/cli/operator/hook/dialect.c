/*
 * The dialects of coding agents: how an event is recognised, where it has the tool call, and how a
 * verdict is written. An answer that an agent does not understand counts as "go on", so nothing is
 * written that its dialect does not have (Codex: "ask").
 */
#include "cli/operator/hook/hook.h"

#include "cli/verbs/client.h"
#include "model/refusal.h"

typedef json_t *rewrite_fn(const char *decision, const char *reason, json_t *input);

struct dialect {
	const char *agent;
	const char *key, *value;		  /* a member that the event has; value NULL: any */
	const char *mark;			  /* and one more member, or NULL */
	const char *tool, *input, *cwd, *session; /* where these are: "a.b" */
	rewrite_fn *rewrite; /* NULL: the agent only takes "run it" or "do not" */
	bool can_ask, keeps_cwd;
	int refusal_status;
};

/* ---- verdicts ---- */

static json_t *rewrite_claude(const char *decision, const char *reason, json_t *input)
{
	return json_pack("{s:{s:s, s:s, s:s, s:O}}", "hookSpecificOutput", "hookEventName",
			 "PreToolUse", "permissionDecision", decision, "permissionDecisionReason",
			 reason, "updatedInput", input);
}

static json_t *rewrite_cursor(const char *decision, const char *reason, json_t *input)
{
	return json_pack("{s:s, s:O}", "permission", decision, "updated_input", input);
}

static json_t *rewrite_gemini(const char *decision, const char *reason, json_t *input)
{
	return json_pack("{s:s, s:s, s:{s:s, s:O}}", "decision", decision, "reason", reason,
			 "hookSpecificOutput", "hookEventName", "BeforeTool", "tool_input", input);
}

static json_t *rewrite_copilot(const char *decision, const char *reason, json_t *input)
{
	return json_pack("{s:s, s:s, s:O}", "permissionDecision", decision,
			 "permissionDecisionReason", reason, "modifiedArgs", input);
}

/* Events with a capital P come to Copilot by way of Claude's settings: both forms are read. */
static json_t *rewrite_both(const char *decision, const char *reason, json_t *input)
{
	json_t *all = rewrite_claude(decision, reason, input);
	json_auto_t *more = rewrite_copilot(decision, reason, input);

	json_object_update(all, more);
	return all;
}

static json_t *rewrite_cline(const char *decision, const char *reason, json_t *input)
{
	return json_pack("{s:b, s:O}", "cancel", 0, "overrideInput", input);
}

/* ---- the table ---- */

#define SNAKE .tool = "tool_name", .input = "tool_input", .cwd = "cwd", .session = "session_id"

/* The first row that fits is taken: rows with a mark stand before those without. */
static const struct dialect dialects[] = {
	{"Cline", "tool_call", NULL, NULL, "tool_call.name", "tool_call.input", "workspaceRoots",
	 "taskId", rewrite_cline, false, false, 0},
	{"Cline in VS Code", "preToolUse", NULL, NULL, "preToolUse.toolName",
	 "preToolUse.parameters", "workspaceRoots", "taskId", NULL, false, false, 0},
	{"Copilot CLI", "toolName", NULL, NULL, "toolName", "toolArgs", "cwd", "sessionId",
	 rewrite_copilot, true, true, 0},
	{"Copilot CLI", "hook_event_name", "PreToolUse", "tool_name=bash", SNAKE,
	 .rewrite = rewrite_both, .can_ask = true, .keeps_cwd = true,
	 .refusal_status = EXIT_REFUSED},
	{"Goose", "event", "PreToolUse", NULL, "tool_name", "tool_input", "working_dir",
	 "session_id", NULL, false, false, EXIT_REFUSED},
	{"Gemini CLI", "hook_event_name", "BeforeTool", NULL, SNAKE, .rewrite = rewrite_gemini,
	 .refusal_status = EXIT_REFUSED},
	{"Cursor", "hook_event_name", "preToolUse", NULL, SNAKE, .rewrite = rewrite_cursor,
	 .can_ask = true, .refusal_status = EXIT_REFUSED},
	{"Cursor's beforeShellExecution", "hook_event_name", "beforeShellExecution", NULL, SNAKE,
	 .refusal_status = EXIT_REFUSED},
	{"Codex", "hook_event_name", "PreToolUse", "turn_id", SNAKE, .rewrite = rewrite_claude,
	 .refusal_status = EXIT_REFUSED},
	/* Claude Code, VS Code, and whoever speaks as they do. */
	{"Claude Code", "hook_event_name", "PreToolUse", NULL, SNAKE, .rewrite = rewrite_claude,
	 .can_ask = true, .keeps_cwd = true, .refusal_status = EXIT_REFUSED},
};

/* ---- reading ---- */

/* The member at "a.b"; borrowed, or NULL. */
static json_t *member_at(const json_t *event, const char *path)
{
	const char *dot = strchr(path, '.');
	char first[32];

	if (!dot)
		return json_object_get(event, path);
	snprintf(first, sizeof(first), "%.*s", (int)(dot - path), path);
	return json_object_get(json_object_get(event, first), dot + 1);
}

/* "name": such a member is there; "name=value": with this text. */
static bool has_mark(const json_t *event, const char *mark)
{
	const char *equals = strchr(mark, '=');
	char name[32];

	snprintf(name, sizeof(name), "%.*s", equals ? (int)(equals - mark) : (int)strlen(mark),
		 mark);
	if (!equals)
		return json_object_get(event, name);
	return str_equal(text_at(event, name) ? text_at(event, name) : "", equals + 1);
}

static bool fits(const struct dialect *d, const json_t *event)
{
	const char *text = text_at(event, d->key);

	if (!json_object_get(event, d->key) || (d->mark && !has_mark(event, d->mark)))
		return false;
	return !d->value || (text && str_equal(text, d->value));
}

const struct dialect *dialect_find(const json_t *event, struct err *e)
{
	const char *name = text_at(event, "hook_event_name");

	for (size_t i = 0; i < ARRAY_LEN(dialects); i++)
		if (fits(&dialects[i], event))
			return &dialects[i];
	if (name)
		err_set(e, ERR_UNSUPPORTED,
			"'%.64s' is no event before a tool is used; set this hook for PreToolUse",
			name);
	else
		err_set(e, ERR_INVALID,
			"the event has no hook_event_name, and is of no known agent");
	return NULL;
}

int dialect_check_rewrite(const struct dialect *d, struct err *e)
{
	if (!d->rewrite)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s cannot rewrite a command, so the command cannot be moved into a "
			       "sandbox%s",
			       d->agent,
			       str_starts(d->agent, "Cursor")
				       ? "; set this hook for preToolUse instead"
				       : "");
	return 0;
}

int dialect_check_ask(const struct dialect *d, const char *why, struct err *e)
{
	if (!d->can_ask)
		return err_set(e, ERR_UNSUPPORTED, "%s cannot be told to ask; %s", d->agent, why);
	return 0;
}

bool dialect_keeps_cwd(const struct dialect *d)
{
	return d->keeps_cwd;
}

int dialect_read(const struct dialect *d, const json_t *event, struct tool_call *ret, struct err *e)
{
	json_t *input = member_at(event, d->input);
	const json_t *cwd = member_at(event, d->cwd);

	*ret = (struct tool_call){
		.tool = json_string_value(member_at(event, d->tool)),
		.cwd = json_string_value(json_is_array(cwd) ? json_array_get(cwd, 0) : cwd),
		.session = json_string_value(member_at(event, d->session)),
	};
	/* beforeShellExecution has no tool: the event is the call. */
	if (!ret->tool && !d->rewrite && text_at(event, "command")) {
		ret->tool = "Shell";
		ret->input = json_pack("{s:O}", "command", json_object_get(event, "command"));
		return 0;
	}
	/* Copilot's toolArgs are JSON in a string in some versions. */
	if (json_is_string(input))
		ret->input = json_loads(json_string_value(input), JSON_REJECT_DUPLICATES, NULL);
	else
		ret->input = json_deep_copy(input);
	if (ret->tool && json_is_object(ret->input))
		return 0;
	json_decref(ret->input);
	ret->input = NULL;
	return err_set(e, ERR_INVALID, "the event has no %s or no %s", d->tool, d->input);
}

/* ---- writing ---- */

int dialect_write_rewrite(const struct dialect *d, bool ask, const char *reason, json_t *input,
			  struct err *e)
{
	json_auto_t *answer = d->rewrite(ask ? "ask" : "allow", reason, input);
	auto_free char *text = answer ? json_dumps(answer, JSON_COMPACT) : NULL;

	if (!text || puts(text) < 0 || fflush(stdout) != 0)
		return err_set(e, ERR_SYSTEM, "the answer cannot be written");
	return 0;
}

int dialect_write_refusal(const struct dialect *d, const json_t *event, bool by_rule,
			  const struct err *e)
{
	const char *name = event ? text_at(event, "hook_event_name") : NULL;
	char text[sizeof(e->msg)], reason[sizeof(e->msg) + 128];

	str_sanitise(text, sizeof(text), e->msg, strlen(e->msg));
	snprintf(reason, sizeof(reason), "cloche: %s. %s", text,
		 by_rule ? "A rule of the user refused this call. It was not run."
			 : "The command was not run: without cloche it would run outside of a "
			   "sandbox.");
	refusal_print(stdout, name && strlen(name) < 64 ? name : NULL, reason);
	fprintf(stderr, "%s\n", reason);
	return d ? d->refusal_status : EXIT_REFUSED;
}
