/* One row for each argument that a tool of somebody else has; what has no row is left out. */
#include "agent/tool_call.h"

#include "policy/tools/rules.h"
#include "policy/tools/shell.h"

enum argument_kind { AS_IT_IS, PATH, LINE, MILLISECONDS };

static const struct {
	const char *tool, *theirs, *ours;
	enum argument_kind kind;
} rows[] = {
	{"run_command", "command", "command", LINE},
	{"run_command", "cmd", "command", LINE},
	{"run_command", "cwd", "cwd", PATH},
	{"run_command", "workdir", "cwd", PATH},
	{"run_command", "directory", "cwd", PATH},
	{"run_command", "timeout", "timeout", MILLISECONDS},
	{"read_file", "file_path", "path", PATH},
	{"read_file", "filePath", "path", PATH},
	{"read_file", "absolute_path", "path", PATH},
	{"read_file", "path", "path", PATH},
	{"write_file", "file_path", "path", PATH},
	{"write_file", "filePath", "path", PATH},
	{"write_file", "path", "path", PATH},
	{"write_file", "content", "content", AS_IT_IS},
	{"write_file", "file_text", "content", AS_IT_IS},
	{"edit_file", "file_path", "path", PATH},
	{"edit_file", "filePath", "path", PATH},
	{"edit_file", "path", "path", PATH},
	{"edit_file", "old_string", "old", AS_IT_IS},
	{"edit_file", "oldString", "old", AS_IT_IS},
	{"edit_file", "old_str", "old", AS_IT_IS},
	{"edit_file", "new_string", "new", AS_IT_IS},
	{"edit_file", "newString", "new", AS_IT_IS},
	{"edit_file", "new_str", "new", AS_IT_IS},
	{"edit_file", "replace_all", "all", AS_IT_IS},
	{"edit_file", "replaceAll", "all", AS_IT_IS},
	{"list_files", "path", "path", PATH},
	{"list_files", "dir_path", "path", PATH},
	{"search_files", "path", "path", PATH},
	{"search_files", "glob", "glob", AS_IT_IS},
	{"search_files", "-i", "ignore_case", AS_IT_IS},
};

/* ---- values ---- */

static json_t *path_value(const json_t *value, const json_t *paths)
{
	const char *path = json_string_value(value);
	auto_free char *inside = path ? tool_path_inside(paths, path) : NULL;

	return inside ? json_string(inside) : json_deep_copy(value);
}

static void add_quoted(struct buf *b, const char *text)
{
	buf_add(b, "'", 1);
	for (; *text; text++)
		if (*text == '\'')
			buf_add(b, "'\\''", 4);
		else
			buf_add(b, text, 1);
	buf_add(b, "'", 1);
}

/* Words and redirections of the line that are paths of the host; what is quoted deeper stays as it is. */
static json_t *line_value(const json_t *value, const json_t *paths)
{
	const char *text = json_string_value(value);
	struct shell_line l;
	auto_buf struct buf b = {0};
	size_t done = 0;
	struct err e;
	json_t *ret;

	if (!text || !json_object_size(paths) || shell_read(text, strlen(text), &l, &e) < 0)
		return json_deep_copy(value);
	for (size_t i = 0; i < l.place_count; i++) {
		const struct shell_place *p = &l.places[i];
		auto_free char *inside =
			p->text[0] == '/' ? tool_path_inside(paths, p->text) : NULL;

		if (!inside || p->at < done)
			continue;
		buf_add(&b, text + done, p->at - done);
		add_quoted(&b, inside);
		done = p->at + p->len;
	}
	buf_add(&b, text + done, strlen(text + done));
	ret = json_stringn(b.len ? buf_head(&b) : "", b.len);
	shell_line_done(&l);
	return ret;
}

static json_t *translate_value(enum argument_kind kind, const json_t *value, const json_t *paths)
{
	switch (kind) {
	case PATH:
		return path_value(value, paths);
	case LINE:
		return line_value(value, paths);
	case MILLISECONDS:
		return json_is_number(value) ? json_real(json_number_value(value) / 1000) : NULL;
	default:
		return json_deep_copy(value);
	}
}

/* ---- tools whose arguments need more than a row ---- */

/* Glob and Grep are both a search. */
static void add_pattern(const char *tool, const json_t *args, json_t *ret)
{
	const json_t *pattern = json_object_get(args, "pattern");
	bool is_name = strcasecmp(tool, "glob") == 0 || str_equal(tool, "file_search");

	if (!json_is_string(pattern))
		return;
	json_object_set_new(ret, is_name ? "glob" : "content", json_deep_copy(pattern));
	if (!is_name)
		json_object_set_new(ret, "regex", json_true());
}

/* Fetched from inside, so that the network of the sandbox holds. */
static int fetch(const json_t *args, json_t *ret, struct err *e)
{
	const char *url = json_string_value(json_object_get(args, "url"));
	auto_buf struct buf b = {0};

	if (!url)
		return err_field(e, ERR_INVALID, "arguments", "arguments: url is missing");
	buf_add(&b, "curl -sSfL --max-time 30 -- ", 28);
	add_quoted(&b, url);
	json_object_set_new(ret, "command", json_stringn(buf_head(&b), b.len));
	return 0;
}

/* A call by our own names: only its paths change. */
static json_t *own_arguments(const json_t *args, const json_t *paths)
{
	json_t *ret = args ? json_deep_copy(args) : json_object(), *v;

	for (size_t i = 0; i < 2; i++) {
		const char *name = i ? "cwd" : "path";

		if ((v = json_object_get(ret, name)))
			json_object_set_new(ret, name, path_value(v, paths));
	}
	if ((v = json_object_get(ret, "command")))
		json_object_set_new(ret, "command", line_value(v, paths));
	return ret;
}

int tool_call_translate(const char *tool, const json_t *args, const json_t *paths,
			const char **ret_tool, json_t **ret_args, struct err *e)
{
	const char *common = tool_common_name(tool);
	json_auto_t *out = NULL;

	if (common == tool || str_equal(common, tool + strlen(tool) - strlen(common))) {
		*ret_tool = common;
		*ret_args = own_arguments(args, paths);
		return 0;
	}
	out = json_object();
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const json_t *value = json_object_get(args, rows[i].theirs);

		if (value && str_equal(rows[i].tool, common))
			json_object_set_new(out, rows[i].ours,
					    translate_value(rows[i].kind, value, paths));
	}
	if (str_equal(common, "search_files"))
		add_pattern(tool, args, out);
	if (str_equal(common, "web_fetch")) {
		common = "run_command";
		if (fetch(args, out, e) < 0)
			return -1;
	} else if (str_equal(common, "run_command") &&
		   json_is_true(json_object_get(args, "run_in_background"))) {
		common = "process_start";
	}
	*ret_tool = common;
	*ret_args = json_incref(out);
	return 0;
}

void tool_result_outside(json_t *result, const json_t *paths)
{
	static const char *const lists[] = {"files", "matches"};
	json_t *path = json_object_get(result, "path"), *item;
	size_t i;

	if (!json_object_size(paths))
		return;
	if (json_is_string(path)) {
		auto_free char *outside = tool_path_outside(paths, json_string_value(path));

		if (outside)
			json_object_set_new(result, "path", json_string(outside));
	}
	for (size_t l = 0; l < ARRAY_LEN(lists); l++)
		json_array_foreach (json_object_get(result, lists[l]), i, item)
			tool_result_outside(item, paths);
}
