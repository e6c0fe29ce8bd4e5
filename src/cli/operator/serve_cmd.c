/* `cloche serve`: the command line of the daemon. */
#include "cli/operator/cloched.h"

#include "daemon/daemon.h"

#include <getopt.h>

static const char usage[] =
	"usage: cloche serve [--config FILE] [--listen ADDRESS]... [--tls CERT,KEY|self]\n"
	"                    [--docker] [--check-config]\n"
	"\n"
	"Keeps many sandboxes and serves them over HTTP.\n"
	"  --config FILE     settings, see cloche.conf(5); without it /etc/cloche or\n"
	"                    ~/.config/cloche is looked at, and without that the defaults hold\n"
	"  --listen ADDRESS  127.0.0.1:7070, [::1]:7070 or unix:/PATH, in place of the file's\n"
	"  --tls CERT,KEY    TLS on TCP addresses, with this certificate and key (PEM files)\n"
	"  --tls self        the same with a CA of the daemon's own, which `cloche ca` prints\n"
	"  --docker          speak Docker's Engine API, too: docker.sock in the runtime directory\n"
	"  --check-config    read the settings, say what is wrong with them, and end\n";

int cmd_serve(int argc, char **argv)
{
	static const struct option longs[] = {{"config", required_argument, NULL, 'c'},
					      {"listen", required_argument, NULL, 'l'},
					      {"tls", required_argument, NULL, 's'},
					      {"docker", no_argument, NULL, 'd'},
					      {"check-config", no_argument, NULL, 'n'},
					      {"private", required_argument, NULL, 'p'},
					      {"test-front", required_argument, NULL, 't'},
					      {"help", no_argument, NULL, 'h'},
					      {0}};
	struct serve_options o = {0};
	int opt;

	optind = 1;
	argv[0] = "cloche"; /* the prefix of getopt's messages */
	while ((opt = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (opt) {
		case 'c':
			o.config = optarg;
			break;
		case 'l':
			list_add(&o.listen, optarg);
			break;
		case 's':
			o.tls = optarg;
			break;
		case 'd':
			o.docker = true;
			break;
		case 'n':
			o.check_only = true;
			break;
		case 'p':
			o.ephemeral_dir = optarg;
			break;
		case 't':
			o.test_front = optarg;
			break;
		case 'h':
			fputs(usage, stdout);
			return fflush(stdout) == 0 ? 0 : 125;
		default:
			fputs(usage, stderr);
			return 125;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "cloche: serve takes no '%s'\n", argv[optind]);
		return 125;
	}
	return daemon_serve(&o);
}

int cmd_role(int argc, char **argv)
{
	return daemon_role(argc, argv);
}
