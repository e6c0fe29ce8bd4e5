/*
 * cloched: the verbs that need libraries. The launcher executes `cloched VERB ARG...`; people can,
 * too.
 */
#include "cli/operator/cloched.h"

#include "cli/cli.h"
#include "cli/verbs/client_verb.h"

struct verb_row {
	const char *name, *help;
	const struct verb *verb; /* or: */
	int (*run)(int argc, char **argv);
};

static int cmd_version(int argc, char **argv)
{
	puts("cloche " CLOCHE_VERSION);
	return finish_stdout(0);
}

static const struct verb_row rows[] = {
	{"doctor", "what this host can enforce, what it cannot, what to change", NULL, cmd_doctor},
	{"selftest", "attack a sandbox on this host, and say what was refused", NULL, cmd_selftest},
	{"policy", "check and explain policy files", NULL, cmd_policy},
	{"mcp", "MCP server on stdin and stdout", NULL, cmd_mcp},
	{"hook", "PreToolUse hook: a coding agent's command, rewritten to run inside", NULL,
	 cmd_hook},
	{"create", "make a sandbox that lives on", NULL, cmd_create},
	{"ps", "sandboxes, or the commands in one", &verb_ps, NULL},
	{"exec", "run a command in a sandbox", &verb_exec, NULL},
	{"shell", "a shell in a sandbox", NULL, cmd_shell_in},
	{"ssh", "ssh, scp and editors in a sandbox, without a port", &verb_ssh, NULL},
	{"cp", "copy files in or out", &verb_cp, NULL},
	{"ls", "list files in a sandbox", &verb_ls, NULL},
	{"cat", "print files of a sandbox", &verb_cat, NULL},
	{"rm", "destroy sandboxes, remove files in them", &verb_rm, NULL},
	{"kill", "signal a command, or end a sandbox", &verb_kill, NULL},
	{"pause", "freeze sandboxes", &verb_pause, NULL},
	{"resume", "let them go on", &verb_resume, NULL},
	{"snapshot", "keep a sandbox's files; ls, rm", &verb_snapshot, NULL},
	{"fork", "more sandboxes with the same files", &verb_fork, NULL},
	{"diff", "what differs between the files of two sandboxes or snapshots", &verb_diff, NULL},
	{"export", "a sandbox as a file, for another daemon", &verb_export, NULL},
	{"import", "a sandbox from such a file", &verb_import, NULL},
	{"stats", "what sandboxes use, live", &verb_stats, NULL},
	{"logs", "what background commands wrote", &verb_logs, NULL},
	{"serve", "keep many sandboxes and serve them over HTTP", NULL, cmd_serve},
	{"image", "root file systems: import, pull, export, ls, rm, prune", &verb_image, NULL},
	{"secret", "secrets that sandboxes use and never see: set, ls, rm", &verb_secret, NULL},
	{"volume", "disks that outlive sandboxes: create, ls, rm", &verb_volume, NULL},
	{"agent", "registered agents: register, unregister, trust", &verb_agent, NULL},
	{"token", "API keys: create, ls, revoke", &verb_token, NULL},
	{"ca", "the CA of a daemon with --tls self: show, renew", &verb_ca, NULL},
	{"audit", "the decision log: verify, tail", &verb_audit, NULL},
	{"init", "a policy and agents' settings for a project", &verb_init, NULL},
	{"bench", "how long it takes here, beside what else is installed", &verb_bench, NULL},
	{"version", "the version", NULL, cmd_version},
};

static void list_verbs(FILE *to)
{
	fputs("usage: cloche VERB [ARG...], here:\n", to);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		fprintf(to, "  %-9s %s\n", rows[i].name, rows[i].help);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		list_verbs(stderr);
		return EXIT_CLOCHE;
	}
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (str_equal(argv[1], rows[i].name))
			return rows[i].verb ? verb_main(rows[i].verb, argc - 1, argv + 1)
					    : rows[i].run(argc - 1, argv + 1);
	/* Used by `serve` only: one process per role. */
	if (str_equal(argv[1], "role"))
		return cmd_role(argc - 1, argv + 1);
	if (str_equal(argv[1], "help") || str_equal(argv[1], "--help")) {
		list_verbs(stdout);
		return finish_stdout(0);
	}
	fprintf(stderr, "cloche: unknown verb '%s'; try: cloche help\n", argv[1]);
	return EXIT_CLOCHE;
}
