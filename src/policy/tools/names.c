/* What agents call their tools: many names for the same few. And paths, from one side to the other. */
#include "policy/tools/rules.h"

static const struct {
	const char *common; /* as MCP's tools of this daemon */
	const char *names[20];
} tools[] = {
	{"run_command",
	 {"Bash", "bash", "Shell", "shell", "developer__shell", "local_shell", "shell_command",
	  "exec_command", "container.exec", "run_in_terminal", "runInTerminal",
	  "runTerminalCommand", "run_shell_command", "run_commands", "execute_command"}},
	{"read_file", {"Read", "read", "ReadFile", "view", "readFile", "read_many_files"}},
	{"write_file", {"Write", "write", "create", "create_file", "write_to_file", "createFile"}},
	{"edit_file",
	 {"Edit", "edit", "MultiEdit", "StrReplace", "replace", "str_replace", "replace_in_file",
	  "NotebookEdit", "insert_edit_into_file", "developer__text_editor"}},
	{"search_files",
	 {"Grep", "Glob", "grep", "glob", "search_file_content", "grep_search", "file_search"}},
	{"list_files", {"LS", "ls", "list_directory", "list_dir", "ListDir"}},
	{"web_fetch", {"WebFetch", "webfetch", "fetch", "fetch_webpage", "fetch_url"}},
};

#define OWN_PREFIX "mcp__cloche__"

const char *tool_common_name(const char *name)
{
	if (str_starts(name, OWN_PREFIX))
		name += strlen(OWN_PREFIX);
	for (size_t i = 0; i < ARRAY_LEN(tools); i++)
		for (size_t j = 0; j < ARRAY_LEN(tools[i].names) && tools[i].names[j]; j++)
			if (str_equal(name, tools[i].names[j]))
				return tools[i].common;
	return name;
}

bool tool_is_shell(const char *name)
{
	const char *common = tool_common_name(name);

	return str_equal(common, "run_command") || str_equal(common, "process_start");
}

/* ---- members of the arguments ---- */

static const char *const commands[] = {"command",     "commands",     "cmd",
				       "commandLine", "command_line", "shell_command"};
static const char *const path_members[] = {
	"file_path",	 "path",	"filePath",  "absolute_path", "notebook_path",
	"target_file",	 "file",	"filename",  "directory",     "dir_path",
	"relative_path", "source_path", "from_path", "to_path",	      "cwd",
};

/* Tools with such a member that is not for a shell. */
static const char *const not_shells[] = {"apply_patch"};

const char *tool_command_member(size_t i)
{
	return i < ARRAY_LEN(commands) ? commands[i] : NULL;
}

bool tool_has_command(const char *name, const json_t *args)
{
	for (size_t i = 0; i < ARRAY_LEN(not_shells); i++)
		if (str_equal(name, not_shells[i]))
			return false;
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		if (json_object_get(args, commands[i]))
			return true;
	return false;
}

const char *tool_path_member(size_t i)
{
	return i < ARRAY_LEN(path_members) ? path_members[i] : NULL;
}

/* ---- paths ---- */

char *tool_path_clean(const char *cwd, const char *path)
{
	auto_free char *whole = NULL;
	auto_buf struct buf b = {0};
	bool relative = path[0] != '/' && path[0] != '~';

	whole = relative && cwd ? str_format("%s/%s", cwd, path) : str_copy(path);
	for (const char *p = whole; *p;) {
		size_t slashes = strspn(p, "/"), n = strcspn(p + slashes, "/");
		const char *part = p + slashes;

		p = part + n;
		if (n == 0 || (n == 1 && part[0] == '.'))
			continue;
		if (n == 2 && part[0] == '.' && part[1] == '.') {
			while (b.len && b.data[b.at + b.len - 1] != '/')
				b.len--;
			b.len -= b.len > 0;
			continue;
		}
		if (b.len || slashes)
			buf_add(&b, "/", 1);
		buf_add(&b, part, n);
	}
	if (!b.len)
		buf_add(&b, "/", 1);
	return must_alloc(strndup(buf_head(&b), b.len));
}

static char *move_path(const json_t *paths, const char *path, bool inside)
{
	const char *host, *from = NULL, *to = NULL, *rest;
	auto_free char *clean = tool_path_clean(NULL, path);
	json_t *value;

	json_object_foreach ((json_t *)paths, host, value) {
		const char *its = json_string_value(value);
		const char *f = inside ? host : its, *t = inside ? its : host;

		if (its && path_below(clean, f) && (!from || strlen(f) > strlen(from))) {
			from = f;
			to = t;
		}
	}
	if (!from)
		return NULL;
	rest = clean + (str_equal(from, "/") ? 0 : strlen(from));
	return str_format("%s%s", str_equal(to, "/") && *rest ? "" : to, rest);
}

char *tool_path_inside(const json_t *paths, const char *host_path)
{
	return move_path(paths, host_path, true);
}

char *tool_path_outside(const json_t *paths, const char *inside_path)
{
	return move_path(paths, inside_path, false);
}
