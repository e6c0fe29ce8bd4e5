/* Chooses what this process does, and confines it. */
#include "image/worker/worker.h"

#include "kern/caps.h"
#include "kern/landlock.h"
#include "image/worker/internal.h"

#include <grp.h>
#include <sys/prctl.h>

#define NOBODY 65534

static int change_ids(void)
{
	if (geteuid() != 0)
		return 0;
	return setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0
		       ? -1
		       : setresuid(NOBODY, NOBODY, NOBODY);
}

/* After the last library was loaded. */
int worker_shut_in(const struct seccomp_profile *profile, const char *const *readable,
		   struct err *e)
{
	struct landlock l;

	if (change_ids() < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return err_sys(e, "cannot give up privileges");
	if (caps_clear(e) < 0)
		return -1;
	if (landlock_abi() >= 1) {
		if (landlock_open(&l, !readable, e) < 0)
			return -1;
		for (; readable && *readable; readable++)
			if (landlock_allow(&l, AT_FDCWD, *readable, LANDLOCK_READ, e) < 0)
				return -1;
		if (landlock_apply(&l, e) < 0)
			return -1;
	}
	return seccomp_load(profile, NULL, e);
}

int main(int argc, char **argv)
{
	struct err e = {0};

	if (argc == 2 && str_equal(argv[1], "fetch"))
		return worker_fetch();
	if (argc < 2 || worker_shut_in(&seccomp_profile_parse, NULL, &e) < 0) {
		fprintf(stderr, "%s\n", argc < 2 ? "it is started by cloched only" : e.msg);
		return 125;
	}
	if (argc == 2 && str_equal(argv[1], "inflate"))
		return worker_inflate();
	if (argc == 4 && str_equal(argv[1], "parse"))
		return worker_parse(argv[2], argv[3]);
	return 125;
}
