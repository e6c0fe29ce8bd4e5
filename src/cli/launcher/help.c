/* `cloche help`: the overview, and the options of the verbs that the launcher runs by itself. */
#include "cli/cli.h"

static const char overview[] =
	"cloche - run what an agent wrote, isolated, limited, watched and explained\n"
	"\n"
	"  cloche run [OPTIONS] [--] CMD [ARG...]     one sandbox, one command, then gone\n"
	"  cloche code [OPTIONS] [--lang L] [FILE|-|-e CODE] [ARG...]\n"
	"                                             run a snippet: python, bash, node, ...\n"
	"  cloche shell [OPTIONS] | ID                a shell in a new sandbox, or in the daemon's "
	"ID\n"
	"  cloche serve [--config FILE] [--listen ADDR]   the daemon: sandboxes that live on\n"
	"  cloche create | ps | exec | cp | ls | cat | rm | kill | stats | logs\n"
	"  cloche ssh [--config] ID [CMD...]          ssh, scp and editors reach a sandbox, "
	"without a port\n"
	"  cloche pause | resume | snapshot | fork    sandboxes of the daemon; each has --help\n"
	"  cloche diff FROM TO                        what differs in two sandboxes or snapshots\n"
	"  cloche export ID FILE | import FILE        a whole sandbox, from one daemon to another\n"
	"  cloche image pull|import|ls|...            root file systems for `run --image NAME`\n"
	"  cloche secret set|ls|rm                    secrets that sandboxes use and never see\n"
	"  cloche volume create|ls|rm                 disks that outlive sandboxes\n"
	"  cloche agent register|unregister|trust     agents and their trust levels\n"
	"  cloche token create|ls|revoke              API keys of the daemon\n"
	"  cloche ca show|renew                       the CA of a daemon with --tls self\n"
	"  cloche audit verify|tail                   its decision log\n"
	"  cloche policy check|explain FILE           validate a policy; say what it does\n"
	"  cloche doctor [--state] [--json]           what this host can enforce; its state\n"
	"  cloche selftest [--level L] [--json]       attack a sandbox on this host\n"
	"  cloche bench                               how long it takes on this machine\n"
	"  cloche mcp [OPTIONS]                       MCP server on stdin and stdout\n"
	"  cloche init [--client NAME] [DIR]          a policy and agents' settings for a project\n"
	"  cloche hook [OPTIONS]                      PreToolUse hook: puts a coding agent's shell "
	"in here\n"
	"  cloche help [VERB]                         this, or all options of a verb\n"
	"  cloche version\n"
	"\n"
	"`run` and `code` with --empty, and Python that only computes, use the daemon's prepared "
	"sandboxes\n"
	"if it is there (not with --no-daemon or CLOCHE_DAEMON=off).\n"
	"\n"
	"Exit status: the command's own; 128+N if it died of signal N; 124 timed out; 137 out of\n"
	"memory; 126 not executable; 127 not found; 125 cloche itself could not.\n"
	"Where the daemon is: CLOCHE_URL with CLOCHE_TOKEN, else the socket of this user's or of\n"
	"root's `cloche serve`. Manuals: cloche(1), cloche-policy(5), cloche-serve(8), "
	"cloche.conf(5).\n"
	"\n"
	"Try:  cloche code -e 'print(6 * 7)'\n";

static const char options_intro[] =
	"The command sees the current directory at its own path, copy-on-write; it has no network "
	"but\n"
	"its own loopback, an empty HOME, and nothing of the host but its programs.\n"
	"\n"
	"Options (a policy file has the same names with _ for -):\n";

static void print_options(void)
{
	for (size_t i = 0; i < spec_field_count; i++) {
		const struct field *f = &spec_fields[i];
		char name[32];

		if (f->flags & FIELD_NOT_BUILT)
			continue;
		cli_option_name(f->name, name, sizeof(name));
		cli_print_option(&(struct option_help){f->letter, name, f->metavar, f->help}, 26);
	}
	printf("\nSizes: 512M, 1G, or bytes. Times: 500ms, 60s, 5m, or seconds.\nLayers: %s\n",
	       layer_names());
}

static void print_code_help(void)
{
	printf("usage: cloche code [OPTIONS] [--lang L] [FILE|-|-e CODE] [ARG...]\n\n"
	       "Runs a snippet: from FILE, from standard input (-, the default), or from -e.\n"
	       "The language is --lang, or told by FILE's ending, or Python.\n\n");
}

void cli_print_overview(FILE *to)
{
	fputs(overview, to);
}

int cmd_help(int argc, char **argv)
{
	const char *topic = argc > 1 ? argv[1] : "";

	if (str_equal(topic, "run"))
		printf("usage: cloche run [OPTIONS] [--] CMD [ARG...]\n\n");
	else if (str_equal(topic, "code"))
		print_code_help();
	else if (str_equal(topic, "shell"))
		printf("usage: cloche shell [OPTIONS]    a new sandbox\n"
		       "       cloche shell ID           one of the daemon's\n\n");
	else if (*topic && !str_equal(topic, "help") && !str_equal(topic, "version")) {
		return cli_run_helper((char *[]){argv[0], argv[1], "--help", NULL});
	} else {
		cli_print_overview(stdout);
		return 0;
	}
	fputs(options_intro, stdout);
	print_options();
	return 0;
}
