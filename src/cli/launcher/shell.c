/* `cloche shell`: an interactive shell in a new sandbox, or in a sandbox of the daemon. */
#include "cli/cli.h"

#include "model/guard.h"
#include "sandbox/sandbox.h"

/* An interactive shell in a new sandbox, or in one of the daemon's. */
int cmd_shell(int argc, char **argv)
{
	struct sandbox_request request = {0};
	struct options o = {.verb = "shell"};
	struct sandbox_spec s;
	struct err e = {0};
	struct stat st;
	bool has_bash;
	int first, status;

	spec_init(&s);
	has_bash = stat("/bin/bash", &st) == 0;
	/* The sandbox has no bashrc that would set a prompt. A later --env wins. */
	first = has_bash ? spec_set(&s, "env", "PS1=\\u@\\h:\\w\\$ ", &e) : 0;
	if (first == 0)
		first = options_parse(&s, argc, argv, &o, &e);
	if (o.help)
		return cmd_help(2, (char *[]){"help", "shell", NULL});
	if (first >= 0 && first < argc) {
		/* An ID: a shell in a sandbox that exists already. */
		if (argc == 2)
			return cli_run_helper(argv - 1);
		first = err_set(
			&e, ERR_INVALID,
			"options are for new sandboxes; usage: cloche shell [OPTIONS] | ID");
	}
	if (first < 0 || spec_set(&s, "tty", "true", &e) < 0 || run_take_image(&s, false, &e) < 0 ||
	    spec_finish(&s, &e) < 0 || guard_refuse(&s, &e) < 0)
		return cli_fail(&e);
	list_add(&s.argv, has_bash ? "/bin/bash" : "/bin/sh");
	request.spec = &s;
	request.own_argv = argv - 1; /* begins with the program's name */
	status = run_and_report(&request, NULL, true);
	spec_done(&s);
	return status;
}
