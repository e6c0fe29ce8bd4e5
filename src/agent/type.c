/* From an agent type and a task to the request that runs it, and from its output to an answer. */
#include "agent/type.h"

#include "base/base64.h"
#include "model/spec.h"

#define ARGUMENT_MAX ((128u << 10) - 1) /* the kernel's bound on one argument */
#define VARIABLE_MAX (32u << 10)	/* all variables together have 48 KB (manager/create.c) */
#define LINES_MAX 100000
#define OUTPUT_MOST "4M"

enum task_way { BY_ARGUMENT, BY_STDIN, BY_FILE, BY_VARIABLE };

static const char *text_of(const json_t *o, const char *name)
{
	return json_string_value(json_object_get(o, name));
}

static enum task_way way_of(const json_t *type)
{
	static const char *const names[] = {[BY_ARGUMENT] = "argument",
					    [BY_STDIN] = "stdin",
					    [BY_FILE] = "file",
					    [BY_VARIABLE] = "variable"};
	const char *way = text_of(type, "task");

	for (size_t i = 0; way && i < ARRAY_LEN(names); i++)
		if (str_equal(way, names[i]))
			return (enum task_way)i;
	return BY_STDIN;
}

/* ---- the task ---- */

/* With the system prompt in front, where the program has no option for it. malloc'ed. */
static char *whole_task(const json_t *type, const json_t *call, size_t *ret_len)
{
	const json_t *task = json_object_get(call, "task");
	const char *prompt = text_of(call, "system_prompt");
	auto_buf struct buf b = {0};

	if (prompt && *prompt && !json_object_get(type, "system")) {
		buf_add(&b, prompt, strlen(prompt));
		buf_add(&b, "\n\n", 2);
	}
	buf_add(&b, json_string_value(task), json_string_length(task));
	buf_add(&b, "", 1);
	*ret_len = b.len - 1;
	return memcpy(must_alloc(malloc(b.len)), buf_head(&b), b.len);
}

/* Arguments and variables end at a NUL and have a bound. */
static int check_fits(const char *text, size_t len, const char *way, size_t most, struct err *e)
{
	if (memchr(text, '\0', len))
		return err_field(e, ERR_INVALID, "task",
				 "task: has a NUL, which this agent's %s cannot carry", way);
	if (len < most)
		return 0;
	err_field(e, ERR_LIMIT, "task", "task: has %zu bytes; this agent's %s carries %zu", len,
		  way, most);
	e->errnum = E2BIG;
	return -1;
}

static json_t *base64_json(const char *bytes, size_t len)
{
	auto_free char *text = must_alloc(malloc(BASE64_ROOM(len) + 1));

	return json_stringn(text, base64_encode(text, bytes, len));
}

/* The words of the type, with {task}, {system} and {name} replaced where they are whole words. */
static void add_words(json_t *to, const json_t *words, const char *task, const json_t *call)
{
	const char *name = text_of(call, "agent_name"), *prompt = text_of(call, "system_prompt");
	const json_t *item;
	size_t i;

	json_array_foreach ((json_t *)words, i, item) {
		const char *word = json_string_value(item);

		if (str_equal(word, "{task}"))
			word = task;
		else if (str_equal(word, "{system}"))
			word = prompt;
		else if (str_equal(word, "{name}"))
			word = name ? name : "agent";
		if (word)
			json_array_append_new(to, json_string(word));
	}
}

static bool has_word(const json_t *words, const char *wanted)
{
	const json_t *item;
	size_t i;

	json_array_foreach ((json_t *)words, i, item)
		if (str_equal(json_string_value(item), wanted))
			return true;
	return false;
}

/* The first word is the program; options for the system prompt stand behind it. */
static json_t *command_of(const json_t *type, const json_t *call, const char *task)
{
	const json_t *words = json_object_get(type, "command");
	const char *prompt = text_of(call, "system_prompt");
	json_t *ret = json_array(), *all = json_array();

	add_words(all, words, task, call);
	if (way_of(type) == BY_ARGUMENT && !has_word(words, "{task}"))
		json_array_append_new(all, json_string(task));
	json_array_append(ret, json_array_get(all, 0));
	if (prompt && *prompt)
		add_words(ret, json_object_get(type, "system"), task, call);
	for (size_t i = 1; i < json_array_size(all); i++)
		json_array_append(ret, json_array_get(all, i));
	json_decref(all);
	return ret;
}

static int put_task(const json_t *type, const json_t *call, json_t *body, struct err *e)
{
	enum task_way way = way_of(type);
	size_t len;
	auto_free char *task = whole_task(type, call, &len);

	if (way == BY_ARGUMENT && check_fits(task, len, "argument", ARGUMENT_MAX, e) < 0)
		return -1;
	if (way == BY_VARIABLE && check_fits(task, len, "variable", VARIABLE_MAX, e) < 0)
		return -1;
	if (way == BY_VARIABLE)
		json_object_set_new(json_object_get(body, "env"), "AGENT_TASK", json_string(task));
	if (way == BY_STDIN)
		json_object_set_new(body, "stdin_base64", base64_json(task, len));
	if (way == BY_FILE)
		json_array_append_new(json_object_get(body, "files"),
				      json_pack("{s:s, s:o}", "path", AGENT_TASK_FILE,
						"content_base64", base64_json(task, len)));
	json_object_set_new(body, "cmd",
			    command_of(type, call, way == BY_FILE ? AGENT_TASK_FILE : task));
	return 0;
}

/* ---- everything else ---- */

static json_t *joined(const json_t *type, const json_t *call, const char *name)
{
	json_t *ret = json_array(), *more;

	if ((more = json_object_get(type, name)))
		json_array_extend(ret, more);
	if ((more = json_object_get(call, name)))
		json_array_extend(ret, more);
	return ret;
}

/* The operator's variables win over the caller's. */
static json_t *environment(const char *name, const json_t *type, const json_t *call)
{
	json_t *ret = json_object(), *more;
	const char *agent = text_of(call, "agent_name"), *prompt = text_of(call, "system_prompt");

	if (json_is_object(more = json_object_get(call, "env")))
		json_object_update(ret, more);
	if (json_is_object(more = json_object_get(type, "env")))
		json_object_update(ret, more);
	json_object_set_new(ret, "AGENT_TYPE", json_string(name));
	if (agent)
		json_object_set_new(ret, "AGENT_NAME", json_string(agent));
	if (prompt)
		json_object_set_new(ret, "AGENT_SYSTEM", json_string(prompt));
	return ret;
}

static int set_limit(struct sandbox_spec *s, const char *name, const json_t *value, struct err *e)
{
	auto_free char *text = json_is_string(value) ? str_copy(json_string_value(value))
						     : json_dumps(value, JSON_ENCODE_ANY);

	return spec_set(s, name, text ? text : "", e);
}

/* A caller may have less than the type gives, not more. */
static int narrow(const json_t *type, const json_t *call, const char *name, json_t *body,
		  struct err *e)
{
	const struct field *f = spec_field_find(name);
	const json_t *most = json_object_get(type, name), *asked = json_object_get(call, name);
	struct sandbox_spec a, b;
	json_auto_t *bound = NULL;
	int rc = 0;

	/* What is printed is cleaned and parsed in one turn of the daemon's loop. */
	if (!most && str_equal(name, "output_limit"))
		most = bound = json_string(OUTPUT_MOST);
	if (!asked) {
		if (most)
			json_object_set(body, name, (json_t *)most);
		return 0;
	}
	spec_init(&a);
	spec_init(&b);
	if (set_limit(&b, name, asked, e) < 0 || (most && set_limit(&a, name, most, e) < 0))
		rc = -1;
	else if (most && *(uint64_t *)(void *)((char *)&b + f->offset) >
				 *(uint64_t *)(void *)((char *)&a + f->offset))
		rc = err_field(e, ERR_DENIED, name, "%s: is more than this agent type has", name);
	else
		json_object_set(body, name, (json_t *)asked);
	spec_done(&a);
	spec_done(&b);
	return rc;
}

static const char *const limits[] = {"memory",	   "cpus",	"pids",
				     "disk",	   "timeout",	"cpu_time",
				     "open_files", "file_size", "output_limit"};

static bool is_own(const char *name)
{
	static const char *const names[] = {"description", "command", "task",	 "system",
					    "env",	   "files",   "capture", "output",
					    "needs",	   "hint",    "trust"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (str_equal(name, names[i]))
			return true;
	for (size_t i = 0; i < ARRAY_LEN(limits); i++)
		if (str_equal(name, limits[i]))
			return true;
	return false;
}

json_t *agent_type_body(const char *name, const json_t *type, const json_t *call, struct err *e)
{
	json_auto_t *body = json_object();
	const char *key;
	json_t *value;

	if (!json_is_string(json_object_get(call, "task"))) {
		err_field(e, ERR_INVALID, "task", "task: is missing");
		return NULL;
	}
	json_object_foreach ((json_t *)type, key, value)
		if (!is_own(key))
			json_object_set(body, key, value);
	if (json_object_get(call, "agent"))
		json_object_set(body, "agent", json_object_get(call, "agent"));
	json_object_set_new(body, "env", environment(name, type, call));
	json_object_set_new(body, "files", joined(type, call, "files"));
	json_object_set_new(body, "capture", joined(type, call, "capture"));
	for (size_t i = 0; i < ARRAY_LEN(limits); i++)
		if (narrow(type, call, limits[i], body, e) < 0)
			return NULL;
	return put_task(type, call, body, e) < 0 ? NULL : json_incref(body);
}

/* ---- the answer ---- */

static bool is_blank(const char *text, size_t len)
{
	while (len && strchr(" \t\r\n", *text) && *text) {
		text++;
		len--;
	}
	return len == 0;
}

static json_t *read_lines(const char *text, size_t len, json_error_t *at)
{
	json_t *ret = json_array();

	while (len && json_array_size(ret) < LINES_MAX) {
		const char *eol = memchr(text, '\n', len);
		size_t n = eol ? (size_t)(eol - text) : len, used = n + (eol != NULL);
		bool blank = is_blank(text, n);
		json_t *value = blank ? NULL : json_loadb(text, n, JSON_DECODE_ANY, at);

		if (!blank && !value) {
			json_decref(ret);
			return NULL;
		}
		if (value)
			json_array_append_new(ret, value);
		text += used;
		len -= used;
	}
	return ret;
}

json_t *agent_type_answer(const json_t *type, const char *text, size_t len, struct err *e)
{
	const char *kind = text_of(type, "output");
	json_error_t at;
	json_t *ret;

	if (!kind || str_equal(kind, "text"))
		return json_stringn(text, len);
	ret = str_equal(kind, "jsonl") ? read_lines(text, len, &at)
				       : json_loadb(text, len, JSON_DECODE_ANY, &at);
	if (!ret)
		err_set(e, ERR_INVALID, "the agent's answer is not %s: %s", kind, at.text);
	return ret;
}
