/*
 * The launcher: static and without libraries, because start-up time matters most here. cloched has
 * the verbs that need libraries; the launcher executes it in its own place.
 */
#include "cli/cli.h"

#include "model/refusal.h"

struct launcher_verb {
	const char *name;
	int (*run)(int argc, char **argv);
};

static int cmd_version(int argc, char **argv)
{
	printf("cloche " CLOCHE_VERSION "\n");
	return 0;
}

/* A coding agent would go on without a hook that fails in another way. */
static int fail_helper(const char *verb, const struct err *e)
{
	int status = cli_fail(e);

	if (!str_equal(verb, "hook"))
		return status;
	refusal_print(stdout, NULL, "cloche: the hook cannot run. The command was not run.");
	return EXIT_REFUSED;
}

int cli_run_helper(char **argv)
{
	static const char *const verbs[] = {
		"serve",  "policy", "doctor", "selftest", "bench", "hook",   "mcp",
		"audit",  "token",  "create", "ps",	  "exec",  "cp",     "ls",
		"cat",	  "rm",	    "stats",  "logs",	  "pause", "resume", "snapshot",
		"fork",	  "kill",   "shell",  "secret",	  "ca",	   "image",  "agent",
		"volume", "ssh",    "init",   "export",	  "diff",  "import"};
	char path[PATH_MAX];
	struct err e;

	if (!cli_is_one_of(argv[1], verbs, ARRAY_LEN(verbs))) {
		err_set(&e, ERR_INVALID, "unknown command '%s'; see `cloche help`", argv[1]);
		return cli_fail(&e);
	}
	if (cli_find_helper("cloched", path, sizeof(path)) < 0) {
		err_set(&e, ERR_UNSUPPORTED, "%s: cloched is not installed beside cloche", argv[1]);
		return fail_helper(argv[1], &e);
	}
	argv[0] = path;
	execv(path, argv);
	err_sys(&e, "cannot execute %s", path);
	return fail_helper(argv[1], &e);
}

/*
 * If a standard stream is closed, the next file that we open would get its number. Writing to a
 * closed stdout must still fail: a record that nobody can read is not a success.
 */
static void fill_streams(void)
{
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 1 ? O_RDONLY : O_RDWR) < 0)
			return;
}

int main(int argc, char **argv)
{
	static const struct launcher_verb verbs[] = {
		{"run", cmd_run},	    {"code", cmd_code},
		{"shell", cmd_shell},	    {"image-step", cmd_image_step},
		{"help", cmd_help},	    {"--help", cmd_help},
		{"-h", cmd_help},	    {"version", cmd_version},
		{"--version", cmd_version},
	};

	fill_streams();
	if (argc < 2) {
		cli_print_overview(stderr);
		return EXIT_CLOCHE;
	}
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		if (str_equal(argv[1], verbs[i].name))
			return verbs[i].run(argc - 1, argv + 1);
	return cli_run_helper(argv);
}
