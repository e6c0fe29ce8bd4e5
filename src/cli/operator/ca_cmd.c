/* `cloche ca`: the CA of a daemon with `--tls self`. Its files are in the state directory; cloche-tls makes them. */
#include "cli/operator/cloched.h"

#include "cli/cli.h"
#include "cli/verbs/client_verb.h"
#include "policy/config.h"

#include <spawn.h>
#include <sys/wait.h>

#define PEM_MAX (1 << 20)

static int find_state(struct verb_call *v, char ret[CONFIG_PATH], struct err *e)
{
	auto_free struct config *c = must_alloc(malloc(sizeof(*c)));

	if (client_config(c, verb_text(v, "config"), e) < 0)
		return -1;
	memcpy(ret, c->state_dir, CONFIG_PATH);
	return 0;
}

static int print_ca(struct verb_call *v, struct err *e)
{
	char state[CONFIG_PATH], path[CONFIG_PATH + 16];
	auto_close int fd = -1;
	auto_free char *text = NULL;
	size_t len;

	if (find_state(v, state, e) < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/ca.pem", state);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return err_set(e, ERR_NOT_FOUND,
			       "there is no %s; `cloche serve --tls self` makes it", path);
	if (fd < 0 || io_read_whole(fd, PEM_MAX, &text, &len) < 0)
		return err_sys(e, "cannot read %s", path);
	fwrite(text, 1, len, stdout);
	return finish_stdout(0);
}

/* A running daemon sees the new file and makes itself a new certificate at once. */
static int renew_ca(struct verb_call *v, struct err *e)
{
	char program[PATH_MAX], state[CONFIG_PATH];
	char *argv[] = {"cloche-tls", "renew", state, NULL};
	int status = -1;
	pid_t pid;

	if (find_state(v, state, e) < 0)
		return -1;
	if (cli_find_helper("cloche-tls", program, sizeof(program)) < 0)
		return err_set(e, ERR_UNSUPPORTED, "cloche-tls is not installed beside cloche");
	if (posix_spawn(&pid, program, NULL, NULL, argv, environ) != 0 ||
	    waitpid(pid, &status, 0) < 0)
		return err_set(e, ERR_SYSTEM, "cannot run %s", program);
	return status ? 125 : print_ca(v, e);
}

static const struct verb_option options[] = {
	{"config", 0, "FILE", "the daemon's configuration", NULL},
};

static const struct verb parts[] = {
	{.name = "show",
	 .line = "cloche ca show [--config FILE]",
	 .about = "Prints the certificate of the CA that `cloche serve --tls self` uses.",
	 .run = print_ca,
	 OPTIONS(options),
	 .is_local = true},
	{.name = "renew",
	 .line = "cloche ca renew [--config FILE]",
	 .about = "Makes a new CA and prints its certificate. Clients that trust the old one must "
		  "be\n"
		  "given the new one. A running daemon uses it at once.",
	 .run = renew_ca,
	 OPTIONS(options),
	 .is_local = true},
};

const struct verb verb_ca = {
	.about = "usage: cloche ca show     the CA certificate of a daemon with --tls self, for "
		 "clients\n"
		 "       cloche ca renew    a new CA\n",
	PARTS(parts),
};
