/*
 * cloched: the verbs that need libraries. The launcher execs it as `cloched VERB ARG...`; it can be
 * called by hand as well.
 */
#include "base/auto.h"
#include "base/str.h"
#include "cli/audit_cmd.h"
#include "cli/bench_cmd.h"
#include "cli/doctor.h"
#include "cli/hook_cmd.h"
#include "cli/mcp_cmd.h"
#include "cli/selftest.h"
#include "cli/policy_cmd.h"
#include "cli/exec_cmd.h"
#include "cli/files_cmd.h"
#include "cli/sandbox_cmd.h"
#include "cli/stats_cmd.h"
#include "cli/serve_cmd.h"
#include "cli/token_cmd.h"

#include <stdio.h>

struct verb {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
};

static int cmd_version(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	puts("cloche " CLOCHE_VERSION);
	return fflush(stdout) == 0 ? 0 : 125;
}

static const struct verb verbs[] = {
	{"doctor", cmd_doctor, "what this host can enforce, what it cannot, what to change"},
	{"selftest", cmd_selftest, "attack a sandbox on this host, and say what was refused"},
	{"policy", cmd_policy, "check and explain policy files"},
	{"mcp", cmd_mcp, "MCP server on stdin and stdout"},
	{"hook", cmd_hook, "PreToolUse hook: a coding agent's command, rewritten to run inside"},
	{"create", cmd_create, "make a sandbox that lives on"},
	{"ps", cmd_ps, "sandboxes, or the commands in one"},
	{"exec", cmd_exec, "run a command in a sandbox"},
	{"shell", cmd_shell_in, "a shell in a sandbox"},
	{"cp", cmd_cp, "copy files in or out"},
	{"ls", cmd_ls, "list files in a sandbox"},
	{"cat", cmd_cat, "print files of a sandbox"},
	{"rm", cmd_rm, "destroy sandboxes, remove files in them"},
	{"kill", cmd_kill, "signal a command, or end a sandbox"},
	{"pause", cmd_pause, "freeze sandboxes"},
	{"resume", cmd_resume, "let them go on"},
	{"snapshot", cmd_snapshot, "keep a sandbox's files; ls, rm"},
	{"fork", cmd_fork, "more sandboxes with the same files"},
	{"stats", cmd_stats, "what sandboxes use, live"},
	{"logs", cmd_logs, "what background commands wrote"},
	{"serve", cmd_serve, "keep many sandboxes and serve them over HTTP"},
	{"token", cmd_token, "API keys: create, ls, revoke"},
	{"audit", cmd_audit, "the decision log: verify, tail"},
	{"bench", cmd_bench, "how long it takes here, beside what else is installed"},
	{"version", cmd_version, "the version"},
};

static void list_verbs(FILE *to)
{
	fputs("usage: cloche VERB [ARG...], here:\n", to);
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		fprintf(to, "  %-9s %s\n", verbs[i].name, verbs[i].help);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		list_verbs(stderr);
		return 125;
	}
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		if (str_equal(argv[1], verbs[i].name))
			return verbs[i].run(argc - 1, argv + 1);
	/* Not for people: parts of `serve`. */
	if (str_equal(argv[1], "role"))
		return cmd_role(argc - 1, argv + 1);
	if (str_equal(argv[1], "help") || str_equal(argv[1], "--help")) {
		list_verbs(stdout);
		return fflush(stdout) == 0 ? 0 : 125;
	}
	fprintf(stderr, "cloche: unknown verb '%s'; try: cloche help\n", argv[1]);
	return 125;
}
