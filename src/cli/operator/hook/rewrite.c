/* Rewrites the commands of a tool call to `cloche run` of them. */
#include "cli/operator/hook/hook.h"

#include "cli/cli.h"

#define DEFAULT_TIMEOUT_MS (10u * 60 * 1000)
#define BACKGROUND_TIMEOUT_MS (24ULL * 3600 * 1000)

/*
 * Notes where the command ends, for the next one; `cloche run --cwd-file` reads it. HOME is the
 * sandbox's own. The command may prevent this, and then the next one starts where this one did.
 */
static const char note_cwd[] = "trap \"pwd -P >'$HOME/" SPEC_CWD_NAME "' 2>&-\" EXIT; "
			       "eval \"shift; $1\"";

/* Adds one word of a command line, quoted if it has characters that a shell interprets. */
static void add_quoted(struct buf *b, const char *word)
{
	static const char plain[] = STR_ALNUM "/._-=";

	if (b->len)
		buf_add(b, " ", 1);
	if (*word && strspn(word, plain) == strlen(word)) {
		buf_add(b, word, strlen(word));
		return;
	}
	buf_add(b, "'", 1);
	for (; *word; word++) {
		if (*word == '\'')
			buf_add(b, "'\\''", 4);
		else
			buf_add(b, word, 1);
	}
	buf_add(b, "'", 1);
}

/* The call's own timeout counts only if it is smaller: a model may narrow a limit, not widen it. */
static uint64_t choose_timeout(const struct hook *h)
{
	const json_t *input = h->call.input;
	bool background = json_is_true(json_object_get(input, "run_in_background")) ||
			  json_is_true(json_object_get(input, "is_background"));
	json_int_t asked = json_integer_value(json_object_get(input, "timeout"));
	uint64_t most = background ? BACKGROUND_TIMEOUT_MS : DEFAULT_TIMEOUT_MS;

	if (spec_is_set(&h->spec, "timeout"))
		most = h->spec.limits.timeout_ms;
	if (!background && asked > 0 && (uint64_t)asked < most && str_equal(h->call.tool, "Bash"))
		return (uint64_t)asked;
	return most;
}

/* How the command sees the project, unless the operator's options say it. */
static void add_workspace(const struct hook *h, struct list *words)
{
	if (hook_uses_project(h))
		list_add_all(words, (const char *const[]){"--workspace", h->project, NULL});
	if (hook_uses_project(h) && !spec_is_set(&h->spec, "workdir"))
		list_add_all(words, (const char *const[]){"--workdir", h->cwd, NULL});
	if (h->session)
		list_add(words, "--keep-control");
	else if (!h->spec.empty && !spec_is_set(&h->spec, "apply"))
		list_add(words, "--apply=always");
	if (h->cwd_file[0])
		list_add_all(words, (const char *const[]){"--cwd-file", h->cwd_file, NULL});
}

/* The command line that runs this one inside; NULL: e says why. */
static char *wrap_command(const struct hook *h, const char *command, struct err *e)
{
	auto_list struct list words = {0};
	auto_buf struct buf b = {0};
	char launcher[PATH_MAX];

	if (cli_find_helper("cloche", launcher, sizeof(launcher)) < 0) {
		err_set(e, ERR_SYSTEM, "cloche is not installed beside cloched");
		return NULL;
	}
	list_add_all(&words, (const char *const[]){launcher, "run", NULL});
	if (h->options.count)
		list_add_all(&words, (const char *const *)h->options.items);
	add_workspace(h, &words);
	list_add(&words, "--timeout");
	list_take(&words, str_format("%" PRIu64 "ms", choose_timeout(h)));
	list_add_all(&words, (const char *const[]){"--", "/bin/bash", "-c", NULL});
	if (h->cwd_file[0])
		list_add_all(&words, (const char *const[]){note_cwd, "/bin/bash", NULL});
	list_add(&words, command);
	for (size_t i = 0; i < words.count; i++)
		add_quoted(&b, words.items[i]);
	return must_alloc(strndup(buf_head(&b), b.len));
}

/* The JSON string of a wrapped command; NULL: e says why. Else the original would be answered. */
static json_t *wrap(const struct hook *h, const json_t *command, struct err *e)
{
	const char *text = json_string_value(command);
	auto_free char *line = NULL;
	json_t *ret;

	if (!text || !*text) {
		err_set(e, ERR_INVALID, "%.64s comes without a command in tool_input",
			h->call.tool);
		return NULL;
	}
	line = wrap_command(h, text, e);
	ret = line ? json_string(line) : NULL;
	if (line && !ret)
		err_set(e, ERR_INVALID, "a path or an option of the hook is not UTF-8");
	return ret;
}

static int rewrite_list(struct hook *h, json_t *commands, struct err *e)
{
	for (size_t i = 0; i < json_array_size(commands); i++) {
		json_t *line = wrap(h, json_array_get(commands, i), e);

		if (!line)
			return -1;
		json_array_set_new(commands, i, line);
	}
	return 0;
}

/* Most tools have one command, Cline's run_commands a list of them; a call with both is neither. */
int hook_rewrite(struct hook *h, struct err *e)
{
	json_t *commands = json_object_get(h->call.input, "commands");
	json_t *line;

	if (json_array_size(commands) > 0 && !json_object_get(h->call.input, "command"))
		return rewrite_list(h, commands, e);
	if (commands)
		return err_set(e, ERR_INVALID, "%.64s: 'commands' of tool_input is not understood",
			       h->call.tool);
	line = wrap(h, json_object_get(h->call.input, "command"), e);
	if (!line)
		return -1;
	json_object_set_new(h->call.input, "command", line);
	return 0;
}
