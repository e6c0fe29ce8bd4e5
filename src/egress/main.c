/*
 * cloche-egress: the only way out of sandboxes. The broker starts it as a role, `cloche run` for one run:
 *
 *   cloche-egress role egress DIR UID GID ROOTLESS
 *   cloche-egress run
 *
 * Fd 3 is the socket to whoever started it. Runs as: its own uid (role), or the caller's (run). Holds: listeners of
 * sandboxes, their rules, secrets in use, CA keys. May: resolve names, dial out by rule, read certificates and the
 * resolver's files. Must not: open any other file, start a process, dial what no rule allows.
 */
#include "base/log.h"
#include "egress/egress_internal.h"
#include "kern/confine.h"
#include "wire/role_fds.h"

#include <sys/prctl.h>
#include <sys/socket.h>

#define NOBODY 65534

/* Files that name resolution and the check of certificates need. */
static const char *const readable[] = {
	"/etc/resolv.conf",
	"/run/systemd/resolve",
	"/run/resolvconf",
	"/run/NetworkManager",
	"/etc/hosts",
	"/etc/nsswitch.conf",
	"/etc/host.conf",
	"/etc/ssl",
	"/etc/pki/tls",
	"/etc/pki/ca-trust",
	"/etc/ca-certificates",
	"/usr/share/ca-certificates",
	"/usr/local/share/ca-certificates",
	"/usr/lib/ssl",
	"/etc/localtime",
	"/dev/urandom",
	NULL,
};

static bool read_arguments(int argc, char **argv, struct role *r, struct role_confinement *ret)
{
	*ret = (struct role_confinement){.readable = readable,
					 .rootless = true,
					 .open_files = 65536,
					 .profile = &seccomp_profile_egress};
	if (argc == 2 && str_equal(argv[1], "run")) {
		r->one_run = true;
		/* Of root only the number would be left, but files believe in it. */
		if (geteuid() == 0) {
			ret->rootless = false;
			ret->uid = ret->gid = NOBODY;
		}
		ret->is_callers = ret->rootless;
		return true;
	}
	if (argc != 7 || !str_equal(argv[1], "role") || !str_equal(argv[2], "egress"))
		return false;
	ret->uid = (uid_t)strtoul(argv[4], NULL, 10);
	ret->gid = (gid_t)strtoul(argv[5], NULL, 10);
	ret->rootless = argv[6][0] == '1';
	return true;
}

int main(int argc, char **argv)
{
	static struct role role;
	struct role_confinement c;
	struct err e = {0};

	if (!read_arguments(argc, argv, &role, &c)) {
		fputs("cloche-egress: it is started by `cloche serve` and `cloche run` only\n",
		      stderr);
		return 125;
	}
	log_init("egress");
	prctl(PR_SET_NAME, "cloche-egress", 0, 0, 0);
	signal(SIGPIPE, SIG_IGN);
	if (confine_to_broker(ROLE_FD_BROKER, &e) < 0 ||
	    role_start(&role, ROLE_FD_BROKER, &e) < 0 || confine(&c, &e) < 0) {
		log_error("role cannot start", "role", "egress", "error", e.msg);
		return 125;
	}
	return role_run(&role);
}
