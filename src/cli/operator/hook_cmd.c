/*
 * Theory of operation. A coding agent starts the hook before each tool call and reads its verdict:
 * JSON on stdout with exit status 0, or a refusal. All known agents take status 2 as "refused, the
 * reason is on stderr". They take any other failure as "the hook is broken, go on without it", and
 * the command would run outside. So every error here ends in status 2.
 *
 * The hook itself runs nothing. Its answer is a `cloche run` command, which checks everything
 * again when it starts; the checks here only make refusals clearer.
 */
#include "cli/operator/cloched.h"

#include "cli/cli.h"
#include "cli/verbs/client.h"
#include "policy/paths/source.h"

#include <jansson.h>

#define EVENT_MAX (16u << 20)
#define EXIT_REFUSED 2
#define DEFAULT_TIMEOUT_MS (10u * 60 * 1000)
#define BACKGROUND_TIMEOUT_MS (24ULL * 3600 * 1000)

/* The name of an agent's event, and the form of the answer to it. */
enum style { STYLE_CLAUDE, STYLE_CURSOR };

struct hook_event {
	const char *name;
	enum style style;
	bool can_rewrite;
};

static const struct hook_event events[] = {
	{"PreToolUse", STYLE_CLAUDE, true}, /* Claude Code, Codex, VS Code */
	{"preToolUse", STYLE_CURSOR, true},
	{"beforeShellExecution", STYLE_CURSOR, false},
};

/* Tools that pass a line to a shell. */
static const char *const shells[] = {
	"Bash",		"Shell",	  "shell",	     "local_shell",   "shell_command",
	"exec_command", "container.exec", "run_in_terminal", "runInTerminal", "runTerminalCommand",
};
/* Tools with a member "command" that is not for a shell. */
static const char *const not_shells[] = {"apply_patch"};

struct hook {
	const struct hook_event *event;
	struct sandbox_spec spec;
	struct list options; /* for `cloche run`, as given */
	struct list tools;   /* --tool: further shells */
	bool ask;
	json_t *input;	     /* the whole event */
	json_t *call;	     /* its tool_input; borrowed */
	const char *tool;    /* borrowed */
	const char *command; /* borrowed */
	char cwd[PATH_MAX];  /* where the command is to start */
	char project[PATH_MAX];
};

/* ---- options ---- */

/* Takes our own options. The rest is for `cloche run`, and checked as there. */
static int read_options(struct hook *h, int argc, char **argv, struct err *e)
{
	struct options o = {.verb = "hook"};
	auto_list struct list rest = {0};
	int end;

	list_add(&rest, "run");
	for (int i = 1; i < argc; i++) {
		if (str_equal(argv[i], "--ask")) {
			h->ask = true;
		} else if (str_equal(argv[i], "--tool") && i + 1 < argc) {
			list_add(&h->tools, argv[++i]);
		} else {
			list_add(&rest, argv[i]);
			list_add(&h->options, argv[i]);
		}
	}
	end = options_parse(&h->spec, (int)rest.count, rest.items, &o, e);
	if (end >= 0 && (size_t)end < rest.count)
		end = err_set(e, ERR_INVALID, "'%s' is no option; see `cloche help hook`",
			      rest.items[end]);
	return end < 0 ? -1 : 0;
}

/* ---- the event ---- */

static int read_event(struct hook *h, struct err *e)
{
	auto_buf struct buf b = {0};
	json_error_t at;
	size_t n = 1;

	while (n > 0 && b.len <= EVENT_MAX) {
		n = fread(buf_reserve(&b, 65536), 1, 65536, stdin);
		buf_added(&b, n);
	}
	if (b.len > EVENT_MAX || ferror(stdin))
		return err_set(e, ERR_INVALID, "the event cannot be read, or has more than 16M");
	h->input = json_loadb(b.len ? buf_head(&b) : "", b.len, JSON_REJECT_DUPLICATES, &at);
	return h->input ? 0 : err_set(e, ERR_INVALID, "the event is not JSON: %s", at.text);
}

static int find_event(struct hook *h, struct err *e)
{
	const char *name = text_at(h->input, "hook_event_name");

	if (!name)
		return err_set(e, ERR_INVALID, "the event has no hook_event_name");
	for (size_t i = 0; i < ARRAY_LEN(events); i++)
		if (str_equal(name, events[i].name))
			h->event = &events[i];
	if (!h->event)
		return err_set(
			e, ERR_UNSUPPORTED,
			"'%s' is no event before a tool is used; set this hook for PreToolUse",
			name);
	return 0;
}

/* 1: a command for a shell; 0: another tool, left alone; -1: refused. */
static int find_command(struct hook *h, struct err *e)
{
	h->call = json_object_get(h->input, "tool_input");
	h->tool = text_at(h->input, "tool_name");
	if (!h->event->can_rewrite)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s cannot rewrite a command; set this hook for preToolUse instead",
			       h->event->name);
	if (!h->tool || !json_is_object(h->call))
		return err_set(e, ERR_INVALID, "the event has no tool_name or no tool_input");
	h->command = text_at(h->call, "command");
	if (!cli_is_one_of(h->tool, shells, ARRAY_LEN(shells)) &&
	    !cli_is_one_of(h->tool, (const char *const *)h->tools.items, h->tools.count)) {
		if (!h->command || cli_is_one_of(h->tool, not_shells, ARRAY_LEN(not_shells)))
			return 0;
		return err_set(
			e, ERR_DENIED,
			"'%.64s' has a command, but is not known as a shell; if it is one: cloche "
			"hook --tool %.64s; if not, take it out of the matcher",
			h->tool, h->tool);
	}
	if (!h->command || !*h->command)
		return err_set(e, ERR_INVALID, "%.64s comes without a command in tool_input",
			       h->tool);
	return 1;
}

/* The project directory that the agent names in its environment or in the event, or NULL. */
static const char *named_project(const struct hook *h)
{
	static const char *const variables[] = {"CLAUDE_PROJECT_DIR", "CURSOR_PROJECT_DIR"};
	const char *root;

	for (size_t i = 0; i < ARRAY_LEN(variables); i++)
		if ((root = getenv(variables[i])) && *root)
			return root;
	return json_string_value(json_array_get(json_object_get(h->input, "workspace_roots"), 0));
}

/* Does the sandbox show the project? The operator's options may choose another workspace, or none. */
static bool uses_project(const struct hook *h)
{
	return !spec_is_set(&h->spec, "workspace") && !spec_is_set(&h->spec, "empty");
}

/* Finds the agent's working directory, and the project that it belongs to. */
static int find_project(struct hook *h, struct err *e)
{
	const char *cwd = text_at(h->input, "cwd");
	const char *root = named_project(h);
	char own[PATH_MAX];

	if (!cwd || !*cwd)
		cwd = getcwd(own, sizeof(own));
	if (!cwd || !realpath(cwd, h->cwd))
		return err_set(e, ERR_NOT_FOUND,
			       "the current directory '%.200s' cannot be used: %s", cwd ? cwd : "",
			       strerror(errno));
	if (!root || !realpath(root, h->project) || !path_below(h->cwd, h->project))
		memcpy(h->project, h->cwd, sizeof(h->project));
	return 0;
}

/*
 * Another root of the workspace may become the project: the agent lists the roots, not its model.
 */
static bool is_in_a_root(struct hook *h)
{
	const json_t *roots = json_object_get(h->input, "workspace_roots");
	char place[PATH_MAX];

	for (size_t i = 0; i < json_array_size(roots); i++) {
		const char *root = json_string_value(json_array_get(roots, i));

		if (!root || !realpath(root, place) || !path_below(h->cwd, place))
			continue;
		memcpy(h->project, place, sizeof(h->project));
		return true;
	}
	return false;
}

/*
 * The call may choose a directory in the project. What can be written is not the model's choice
 * (rule 5).
 */
static int find_places(struct hook *h, struct err *e)
{
	const char *asked = text_at(h->call, "working_directory");
	char path[2 * PATH_MAX];

	if (find_project(h, e) < 0)
		return -1;
	if (!asked || !*asked)
		return 0;
	snprintf(path, sizeof(path), "%s%s%s", *asked == '/' ? "" : h->cwd,
		 *asked == '/' ? "" : "/", asked);
	if (!realpath(path, h->cwd))
		return err_set(e, ERR_NOT_FOUND, "working_directory '%.200s' cannot be used: %s",
			       asked, strerror(errno));
	if (path_below(h->cwd, h->project) || is_in_a_root(h) || !uses_project(h))
		return 0;
	return err_set(e, ERR_DENIED, "working_directory '%.200s' is not in the project, '%.200s'",
		       h->cwd, h->project);
}

/*
 * `cloche run` checks the same, but only the shell would see its message; this one reaches the
 * agent.
 */
static int judge_project(const struct hook *h, struct err *e)
{
	struct source s;

	if (!uses_project(h))
		return 0;
	if (source_open(&h->spec, "workspace", h->project, SOURCE_WRITE, &s, e) < 0)
		return err_wrap(e, "the project directory cannot be a workspace");
	close(s.fd);
	return 0;
}

/* ---- the answer ---- */

/* Adds one word of a command line, quoted if it has characters that a shell interprets. */
static void add_quoted(struct buf *b, const char *word)
{
	static const char plain[] = STR_ALNUM "/._-";

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
	bool background = json_is_true(json_object_get(h->call, "run_in_background"));
	json_int_t asked = json_integer_value(json_object_get(h->call, "timeout"));
	uint64_t most = background ? BACKGROUND_TIMEOUT_MS : DEFAULT_TIMEOUT_MS;

	if (spec_is_set(&h->spec, "timeout"))
		most = h->spec.limits.timeout_ms;
	if (!background && asked > 0 && (uint64_t)asked < most && str_equal(h->tool, "Bash"))
		return (uint64_t)asked;
	return most;
}

static int rewrite_command(const struct hook *h, struct buf *b, struct err *e)
{
	auto_list struct list words = {0};
	char launcher[PATH_MAX];

	if (cli_find_helper("cloche", launcher, sizeof(launcher)) < 0)
		return err_set(e, ERR_SYSTEM, "cloche is not installed beside cloched");
	list_add_all(&words, (const char *const[]){launcher, "run", NULL});
	if (h->options.count)
		list_add_all(&words, (const char *const *)h->options.items);
	if (uses_project(h))
		list_add_all(&words, (const char *const[]){"--workspace", h->project, NULL});
	if (uses_project(h) && !spec_is_set(&h->spec, "workdir"))
		list_add_all(&words, (const char *const[]){"--workdir", h->cwd, NULL});
	list_add(&words, "--timeout");
	list_take(&words, str_format("%" PRIu64 "ms", choose_timeout(h)));
	list_add_all(&words, (const char *const[]){"--", "/bin/bash", "-c", h->command, NULL});
	for (size_t i = 0; i < words.count; i++)
		add_quoted(b, words.items[i]);
	buf_add(b, "", 1);
	return 0;
}

/* The reason is for a refusal; Claude Code shows it with any decision. */
static int print_answer(const struct hook *h, const char *decision, const char *reason,
			json_t *input)
{
	const char *refusal = str_equal(decision, "deny") ? reason : NULL;
	json_auto_t *answer =
		h->event && h->event->style == STYLE_CURSOR
			? json_pack("{s:s, s:s*, s:s*, s:O*}", "permission", decision,
				    "user_message", refusal, "agent_message", refusal,
				    "updated_input", input)
			: json_pack("{s:{s:s, s:s, s:s, s:O*}}", "hookSpecificOutput",
				    "hookEventName", "PreToolUse", "permissionDecision", decision,
				    "permissionDecisionReason", reason, "updatedInput", input);
	int rc = json_dumpf(answer, stdout, JSON_COMPACT);

	putchar('\n');
	return rc == 0 && fflush(stdout) == 0 ? 0 : -1;
}

static int refuse_event(const struct hook *h, const struct err *e)
{
	char text[sizeof(e->msg)], reason[sizeof(e->msg) + 128];

	str_sanitise(text, sizeof(text), e->msg, strlen(e->msg));
	snprintf(reason, sizeof(reason),
		 "cloche: %s. The command was not run: without cloche it would run outside of a "
		 "sandbox.",
		 text);
	print_answer(h, "deny", reason, NULL);
	fprintf(stderr, "%s\n", reason);
	return EXIT_REFUSED;
}

static int answer_event(struct hook *h, struct err *e)
{
	auto_buf struct buf b = {0};
	json_auto_t *input = json_deep_copy(h->call);

	if (rewrite_command(h, &b, e) < 0)
		return -1;
	/* Otherwise the original command would stay in the answer, and run outside. */
	if (json_object_set_new(input, "command", json_string(buf_head(&b))) < 0)
		return err_set(e, ERR_INVALID, "a path or an option of the hook is not UTF-8");
	if (print_answer(h, h->ask ? "ask" : "allow", "runs in a cloche sandbox", input) < 0)
		return err_set(e, ERR_SYSTEM, "the answer cannot be written");
	return 0;
}

/* 0: answered; -1: refused. */
static int run_hook(struct hook *h, int argc, char **argv, struct err *e)
{
	int rc;

	if (read_options(h, argc, argv, e) < 0 || read_event(h, e) < 0 || find_event(h, e) < 0)
		return -1;
	rc = find_command(h, e);
	if (rc == 0) {
		puts("{}");
		return fflush(stdout) == 0 ? 0 : err_set(e, ERR_SYSTEM, "stdout is closed");
	}
	if (rc < 0 || find_places(h, e) < 0 || judge_project(h, e) < 0)
		return -1;
	return answer_event(h, e);
}

static const char usage[] =
	"usage: cloche hook [--ask] [--tool NAME] [OPTIONS of cloche run]\n\n"
	"A PreToolUse hook for coding agents: reads the event from standard input and answers "
	"with\n"
	"its command rewritten to run in a sandbox. The project is the workspace; no network.\n\n"
	"  --ask         let the agent ask before it runs the rewritten command\n"
	"  --tool NAME   NAME is a shell too (known: Bash, Shell, run_in_terminal, ...)\n\n"
	"Exit status 2: refused, with the reason on stderr. Settings: docs/hook.md\n";

int cmd_hook(int argc, char **argv)
{
	struct hook h = {0};
	struct err e = {0};
	int status = 0;

	if (argc > 1 && (str_equal(argv[1], "--help") || str_equal(argv[1], "-h"))) {
		fputs(usage, stdout);
		return fflush(stdout) == 0 ? 0 : EXIT_REFUSED;
	}
	spec_init(&h.spec);
	if (run_hook(&h, argc, argv, &e) < 0)
		status = refuse_event(&h, &e);
	json_decref(h.input);
	list_done(&h.options);
	list_done(&h.tools);
	spec_done(&h.spec);
	return status;
}
