/* Coding agents whose settings `cloche init` writes: one row each. docs/hook.md has the others. */
#include "cli/operator/init/init.h"

#include <jansson.h>

#define COMMAND "COMMAND"
#define OURS "cloche hook" /* an entry with that is ours, and replaced */
#define SHELL_EVENT(name, tool)                                                                    \
	"{\"hook_event_name\": \"" name "\", \"session_id\": \"init\", \"tool_name\": \"" tool     \
	"\", \"tool_input\": {\"command\": \"true\"}}"

static const struct agent_client clients[] = {
	{"claude", ".claude", ".claude/settings.json",
	 "{\"hooks\": {\"PreToolUse\": [{\"matcher\": \"Bash\", \"hooks\": [{\"type\": "
	 "\"command\", \"command\": "
	 "\"COMMAND\"}]}]}}",
	 "cloche hook --policy", SHELL_EVENT("PreToolUse", "Bash")},
	{"codex", ".codex", "~/.codex/hooks.json",
	 "{\"hooks\": {\"PreToolUse\": [{\"matcher\": \"Bash\", \"hooks\": [{\"type\": "
	 "\"command\", \"command\": "
	 "\"COMMAND\"}]}]}}",
	 "cloche hook --policy", SHELL_EVENT("PreToolUse", "Bash")},
	{"cursor", ".cursor", ".cursor/hooks.json",
	 "{\"version\": 1, \"hooks\": {\"preToolUse\": [{\"matcher\": \"Shell\", \"command\": "
	 "\"COMMAND\"}]}}",
	 "cloche hook --policy", SHELL_EVENT("preToolUse", "Shell")},
	{"gemini", ".gemini", ".gemini/settings.json",
	 "{\"hooks\": {\"BeforeTool\": [{\"matcher\": \"run_shell_command\", \"hooks\": "
	 "[{\"type\": \"command\", "
	 "\"command\": \"COMMAND\"}]}]}}",
	 "cloche hook --policy", SHELL_EVENT("BeforeTool", "run_shell_command")},
	{"vscode", ".vscode", ".vscode/mcp.json",
	 "{\"servers\": {\"cloche\": {\"type\": \"stdio\", \"command\": \"cloche\", \"args\": "
	 "[\"mcp\"]}}}",
	 NULL, NULL},
};

const struct agent_client *client_at(size_t i)
{
	return i < ARRAY_LEN(clients) ? &clients[i] : NULL;
}

const struct agent_client *client_find_name(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(clients); i++)
		if (str_equal(clients[i].name, name))
			return &clients[i];
	return NULL;
}

static bool exists(const char *dir, const char *name)
{
	auto_free char *path = str_format("%s/%s", dir, name);

	return access(path, F_OK) == 0;
}

bool client_is_used(const struct agent_client *c, const char *dir)
{
	const char *home = getenv("HOME");

	/* Settings in HOME hold for all projects: only who asks for them by name gets those. */
	return !str_starts(c->file, "~/") &&
	       (exists(dir, c->marker) || (home && exists(home, c->marker)));
}

char *client_path_of(const struct agent_client *c, const char *dir)
{
	const char *home = getenv("HOME");

	return str_starts(c->file, "~/") ? str_format("%s/%s", home ? home : "", c->file + 2)
					 : str_format("%s/%s", dir, c->file);
}

/* ---- settings in settings ---- */

static bool is_ours(const json_t *item)
{
	auto_free char *text = json_dumps(item, JSON_COMPACT | JSON_ENCODE_ANY);

	return text && strstr(text, OURS);
}

static int merge(json_t *into, json_t *from);

static bool has_item(const json_t *list, const json_t *item)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		if (json_equal(json_array_get(list, i), item))
			return true;
	return false;
}

/* An entry of ours that is there from before is replaced. */
static int merge_lists(json_t *into, json_t *from)
{
	for (size_t i = json_array_size(into); i-- > 0;)
		if (is_ours(json_array_get(into, i)) || has_item(from, json_array_get(into, i)))
			json_array_remove(into, i);
	return json_array_extend(into, from);
}

static int merge_objects(json_t *into, json_t *from)
{
	const char *key;
	json_t *value;

	json_object_foreach (from, key, value) {
		json_t *old = json_object_get(into, key);

		if (!old ? json_object_set(into, key, value) < 0 : merge(old, value) < 0)
			return -1;
	}
	return 0;
}

/* -1: what is there is of another type. A plain value stays as it is. */
static int merge(json_t *into, json_t *from)
{
	if (json_typeof(into) != json_typeof(from))
		return -1;
	return json_is_array(from)    ? merge_lists(into, from)
	       : json_is_object(from) ? merge_objects(into, from)
				      : 0;
}

/* Puts the command in the place of COMMAND. */
static void fill_in(json_t *in, const char *command)
{
	const char *key;
	json_t *value;
	size_t i;

	json_object_foreach (in, key, value) {
		if (json_is_string(value) && str_equal(json_string_value(value), COMMAND))
			json_string_set(value, command);
		fill_in(value, command);
	}
	json_array_foreach (in, i, value)
		fill_in(value, command);
}

char *client_command(const struct agent_client *c, const char *policy)
{
	return c->command ? str_format("%s '%s'", c->command, policy) : str_copy("cloche mcp");
}

char *client_merge(const struct agent_client *c, const char *old, const char *policy, struct err *e)
{
	json_auto_t *ours = json_loads(c->settings, 0, NULL), *all = NULL;
	auto_free char *text = NULL, *command = client_command(c, policy);
	json_error_t wrong;

	fill_in(ours, command);
	all = old && old[strspn(old, " \t\r\n")] ? json_loads(old, JSON_REJECT_DUPLICATES, &wrong)
						 : json_object();
	if (!all) {
		err_set(e, ERR_INVALID, "%s:%d: %s; write its settings by hand (docs/hook.md)",
			c->file, wrong.line, wrong.text);
		return NULL;
	}
	if (merge(all, ours) < 0) {
		err_set(e, ERR_INVALID,
			"%s: has something else where hooks are; write them by hand", c->file);
		return NULL;
	}
	text = must_alloc(json_dumps(all, JSON_INDENT(2) | JSON_PRESERVE_ORDER));
	return str_format("%s\n", text);
}
