/*
 * Theory of operation. A coding agent starts the hook before each tool call and reads its verdict.
 * Agents take a hook that fails for a broken one and go on without it, and the command would run
 * outside. So every error here ends in a refusal that counts with all of them (model/refusal.h),
 * a crash of the hook included.
 *
 * The hook itself runs nothing. Its answer is a `cloche run` command, which checks everything
 * again when it starts; the checks here only make refusals clearer.
 */
#include "cli/operator/hook/hook.h"

#include "cli/cli.h"
#include "cli/operator/cloched.h"
#include "cli/verbs/client.h"
#include "model/refusal.h"

#include <signal.h>

#define EVENT_MAX (16u << 20)

/* ---- crashes ---- */

static char *crash_text;
static size_t crash_len;

static void refuse_after_crash(int sig)
{
	(void)!write(1, crash_text, crash_len);
	(void)!write(2, crash_text, crash_len);
	_exit(EXIT_REFUSED);
}

static void prepare_for_crashes(void)
{
	static const int signals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGTERM, SIGXCPU};
	FILE *f = open_memstream(&crash_text, &crash_len);

	if (!f)
		return;
	refusal_print(f, NULL, "cloche: the hook was killed. The command was not run.");
	fclose(f);
	for (size_t i = 0; i < ARRAY_LEN(signals); i++)
		signal(signals[i], refuse_after_crash);
}

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
		} else if (str_equal(argv[i], "--session")) {
			h->session = true;
		} else if (str_equal(argv[i], "--check")) {
			h->check = true;
		} else if (str_equal(argv[i], "--interceptor-time") && i + 1 < argc) {
			if (parse_time(argv[++i], &h->chain_ms, e) < 0)
				return -1;
		} else if (str_equal(argv[i], "--audit") && i + 1 < argc) {
			h->audit = argv[++i];
		} else if (str_equal(argv[i], "--tool") && i + 1 < argc) {
			list_add(&h->tools, argv[++i]);
		} else {
			list_add(&rest, argv[i]);
			list_add(&h->options, argv[i]);
		}
	}
	end = options_parse(&h->spec, (int)rest.count, rest.items, &o, e);
	if (end >= 0 && tool_rules_check(&h->spec.tool_rules, e) < 0)
		end = -1;
	for (size_t i = 0; end >= 0 && i < h->spec.tool_rules.count; i++)
		if (tool_rule_has_agent(h->spec.tool_rules.items[i]))
			end = err_set(
				e, ERR_UNSUPPORTED,
				"tool_rule: '%.100s': AGENT/TOOL is for the daemon, which knows "
				"its agents",
				h->spec.tool_rules.items[i]);
	if (end >= 0 && (size_t)end < rest.count)
		end = err_set(e, ERR_INVALID, "'%s' is no option; see `cloche help hook`",
			      rest.items[end]);
	if (end >= 0 && h->session && (h->spec.apply || h->spec.empty))
		end = err_set(e, ERR_INVALID, "--session cannot be combined with --%s",
			      h->spec.apply ? "apply" : "empty");
	if (end >= 0 && !h->session && !h->spec.empty && h->spec.level == LEVEL_PROCESS)
		end = err_set(e, ERR_UNSUPPORTED,
			      "level process has no copy-on-write view of the project; with "
			      "--session the command writes to it directly");
	return end < 0 ? -1 : 0;
}

/* ---- the pipeline ---- */

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
	h->event = json_loadb(b.len ? buf_head(&b) : "", b.len, JSON_REJECT_DUPLICATES, &at);
	return h->event ? 0 : err_set(e, ERR_INVALID, "the event is not JSON: %s", at.text);
}

/* By the user's rules and interceptors. -1: refused, or nobody can be asked. */
static int judge_call(struct hook *h, struct tool_judgement *j, struct err *e)
{
	const struct tool_question q = {
		.tool = h->call.tool, .args = h->call.input, .cwd = h->call.cwd};

	tool_rules_judge(&h->spec.tool_rules, &q, j);
	if (hook_intercept(h, j, e) < 0)
		return -1;
	h->by_rule = j->verdict != TOOL_ALLOW;
	if (j->verdict == TOOL_DENY)
		return err_set(e, ERR_DENIED, "%s", j->reason);
	if (j->verdict == TOOL_ASK && dialect_check_ask(h->dialect, j->reason, e) < 0)
		return -1;
	return 0;
}

/* 1: a shell; 0: another tool, left alone; -1: refused. */
static int judge_tool(const struct hook *h, struct err *e)
{
	const char *tool = h->call.tool;

	if (tool_is_shell(tool) ||
	    cli_is_one_of(tool, (const char *const *)h->tools.items, h->tools.count))
		return 1;
	if (!tool_has_command(tool, h->call.input))
		return 0;
	return err_set(e, ERR_DENIED,
		       "'%.64s' has a command, but is not known as a shell; if it is one: cloche "
		       "hook --tool %.64s; if not, take it out of the matcher",
		       tool, tool);
}

static int leave_alone(struct err *e)
{
	puts("{}");
	return fflush(stdout) == 0 ? 0 : err_set(e, ERR_SYSTEM, "stdout is closed");
}

/* What is not moved into a sandbox. */
static int answer_unmoved(struct hook *h, const struct tool_judgement *j, struct err *e)
{
	if (j->verdict == TOOL_ASK)
		return dialect_write_rewrite(h->dialect, true, j->reason, h->call.input, e);
	return leave_alone(e);
}

static int move_inside(struct hook *h, const struct tool_judgement *j, struct err *e)
{
	bool ask = h->ask || j->verdict == TOOL_ASK;

	if (dialect_check_rewrite(h->dialect, e) < 0 ||
	    (ask && dialect_check_ask(h->dialect, "leave out --ask and let its own settings ask",
				      e) < 0) ||
	    hook_find_places(h, e) < 0 || hook_rewrite(h, e) < 0)
		return -1;
	return dialect_write_rewrite(h->dialect, ask,
				     j->reason[0] ? j->reason : "runs in a cloche sandbox",
				     h->call.input, e);
}

/* 0: answered; -1: refused. */
static int run_hook(struct hook *h, int argc, char **argv, struct err *e)
{
	struct tool_judgement j;
	int rc;

	if (read_options(h, argc, argv, e) < 0 || read_event(h, e) < 0)
		return -1;
	h->dialect = dialect_find(h->event, e);
	if (!h->dialect || dialect_read(h->dialect, h->event, &h->call, e) < 0)
		return -1;
	if (judge_call(h, &j, e) < 0)
		return -1;
	rc = h->check ? 0 : judge_tool(h, e);
	h->by_rule = false;
	if (rc == 0)
		return answer_unmoved(h, &j, e);
	return rc < 0 ? -1 : move_inside(h, &j, e);
}

static const char usage[] =
	"usage: cloche hook [--ask] [--session] [--check] [--tool NAME] [--tool-rule RULE]\n"
	"                   [--interceptor FILE] [--audit FILE] [OPTIONS of cloche run]\n\n"
	"A hook for coding agents: reads the event before a tool call from standard input and\n"
	"answers with its command rewritten to run in a sandbox. Each command gets a fresh\n"
	"copy-on-write view of the project; its changes are written back, control files not.\n\n"
	"  --ask         let the agent ask before it runs the rewritten command\n"
	"  --session     commands write to the project directly, for servers in the background;\n"
	"                control files are put back when the command ends\n"
	"  --check       judge calls by rules only, and move nothing into a sandbox: for agents "
	"that\n"
	"                can be told no, and nothing else\n"
	"  --tool-rule R what a call may be, for any tool that the hook is set for: deny, ask or\n"
	"                allow; `deny Bash command=git ** push because people push`\n"
	"  --interceptor FILE   a program that judges each call, after the rules, in a sandbox of "
	"its\n"
	"                own: reads {\"tool\", \"arguments\", \"cwd\"}, prints {\"verdict\": "
	"\"allow\" |\n"
	"                \"ask\" | \"deny\", \"reason\"}. Several are asked in their order\n"
	"  --interceptor-time T   they have so long, all together (20s)\n"
	"  --audit FILE  note each verdict there (with interceptors: hook/audit.log in the state\n"
	"                directory)\n"
	"  --tool NAME   NAME is a shell too (known: Bash, Shell, run_in_terminal, ...)\n\n"
	"Whatever fails is refused, by exit status 2 and by JSON. Settings: docs/hook.md\n";

int cmd_hook(int argc, char **argv)
{
	struct hook h = {0};
	struct err e = {0};
	int status = 0;

	if (argc > 1 && (str_equal(argv[1], "--help") || str_equal(argv[1], "-h"))) {
		fputs(usage, stdout);
		return fflush(stdout) == 0 ? 0 : EXIT_REFUSED;
	}
	prepare_for_crashes();
	spec_init(&h.spec);
	if (run_hook(&h, argc, argv, &e) < 0)
		status = dialect_write_refusal(h.dialect, h.event, h.by_rule, &e);
	json_decref(h.call.input);
	json_decref(h.event);
	list_done(&h.options);
	list_done(&h.tools);
	spec_done(&h.spec);
	return status;
}
