/* Chooses what this process does, and confines it. */
#include "image/worker/worker.h"

#include "kern/caps.h"
#include "kern/landlock.h"
#include "kern/seccomp.h"

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

/* After the last library was loaded. No file can be opened any more, nothing be connected to or executed. */
static int shut_in(struct err *e)
{
	struct landlock l;

	if (change_ids() < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return err_sys(e, "cannot give up privileges");
	if (caps_clear(e) < 0)
		return -1;
	if (landlock_abi() >= 1 && (landlock_open(&l, true, e) < 0 || landlock_apply(&l, e) < 0))
		return -1;
	return seccomp_load(&seccomp_profile_parse, NULL, e);
}

int main(int argc, char **argv)
{
	struct err e = {0};

	if (argc == 2 && str_equal(argv[1], "fetch"))
		return worker_fetch();
	if (argc < 2 || shut_in(&e) < 0) {
		fprintf(stderr, "%s\n", argc < 2 ? "it is started by cloched only" : e.msg);
		return 125;
	}
	if (argc == 2 && str_equal(argv[1], "inflate"))
		return worker_inflate();
	if (argc == 4 && str_equal(argv[1], "parse"))
		return worker_parse(argv[2], argv[3]);
	return 125;
}
