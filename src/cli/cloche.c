/*
 * The launcher: static, without libraries, because start-up time is the product. Verbs that need
 * libraries are cloched's; it is executed in our place.
 */
#include "cli/cli.h"

#include "base/auto.h"
#include "base/jsonw.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct verb {
	const char *name;
	int (*run)(int argc, char **argv);
};

static int cmd_version(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	printf("cloche " CLOCHE_VERSION "\n");
	return 0;
}

int cli_fail(const struct err *e)
{
	char text[sizeof(e->msg)];

	/* It may quote what somebody else wrote: nothing of that may drive the terminal. */
	str_sanitise(text, sizeof(text), e->msg, strlen(e->msg));
	fprintf(stderr, "cloche: %s\n", text);
	return EXIT_CLOCHE;
}

int cli_fail_spec(const struct sandbox_spec *s, const struct err *e)
{
	struct jsonw j;

	if (s->json) {
		jsonw_begin(&j, stdout);
		jsonw_open(&j, NULL, '{');
		jsonw_open(&j, "error", '{');
		jsonw_string(&j, "kind", err_kind_name(e->kind));
		jsonw_string(&j, "message", e->msg);
		jsonw_string(&j, "field", e->field[0] ? e->field : NULL);
		jsonw_close(&j, '}');
		jsonw_close(&j, '}');
		jsonw_raw(&j, "\n", 1);
		jsonw_finish(&j);
	}
	return cli_fail(e);
}

int cli_find_helper(const char *name, char *ret, size_t size)
{
	static const char *const places[] = {"", "../libexec/cloche/"};
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (n < 0)
		return -1;
	self[n] = '\0';
	slash = strrchr(self, '/');
	if (slash)
		slash[1] = '\0';
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		if ((size_t)snprintf(ret, size, "%s%s%s", self, places[i], name) < size &&
		    access(ret, X_OK) == 0)
			return 0;
	}
	return -1;
}

/* Not built yet: refused by name, never treated as another verb. */
static bool is_planned(const char *verb)
{
	static const char *const planned[] = {
		"serve", "mcp",	  "create", "ps",    "exec",   "cp",	   "ls",   "cat",
		"rm",	 "stats", "logs",   "pause", "resume", "snapshot", "fork", "kill",
		"agent", "image", "audit",  "token", "hook",   "bench"};

	for (size_t i = 0; i < ARRAY_LEN(planned); i++)
		if (str_equal(verb, planned[i]))
			return true;
	return false;
}

static int run_helper(char **argv)
{
	static const char *const verbs[] = {"policy", "doctor", "selftest"};
	char path[PATH_MAX];
	bool known = false;
	struct err e;

	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		known = known || str_equal(argv[1], verbs[i]);
	if (is_planned(argv[1])) {
		err_set(&e, ERR_UNSUPPORTED, "%s: not built yet", argv[1]);
		return cli_fail(&e);
	}
	if (!known) {
		err_set(&e, ERR_INVALID, "unknown command '%s'; see `cloche help`", argv[1]);
		return cli_fail(&e);
	}
	if (cli_find_helper("cloched", path, sizeof(path)) < 0) {
		err_set(&e, ERR_UNSUPPORTED, "%s: cloched is not installed beside cloche", argv[1]);
		return cli_fail(&e);
	}
	argv[0] = path;
	execv(path, argv);
	err_sys(&e, "cannot execute %s", path);
	return cli_fail(&e);
}

/* A closed standard stream would be handed out as the number of some file of ours. */
static void fill_streams(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd < 3);
	if (fd >= 3)
		close(fd);
}

int main(int argc, char **argv)
{
	static const struct verb verbs[] = {
		{"run", cmd_run},	  {"code", cmd_code},	      {"shell", cmd_shell},
		{"help", cmd_help},	  {"--help", cmd_help},	      {"-h", cmd_help},
		{"version", cmd_version}, {"--version", cmd_version},
	};

	fill_streams();
	if (argc < 2) {
		cmd_help(1, argv);
		return EXIT_CLOCHE;
	}
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		if (str_equal(argv[1], verbs[i].name))
			return verbs[i].run(argc - 1, argv + 1);
	return run_helper(argv);
}
