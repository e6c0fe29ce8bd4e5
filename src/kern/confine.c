/* A role of the daemon gives up root, files, ids, capabilities and system calls, in this order. */
#include "kern/confine.h"

#include "base/log.h"
#include "kern/caps.h"
#include "kern/landlock.h"
#include "kern/mount.h"
#include "kern/sched.h"
#include "kern/sys.h"

#include <grp.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>

int confine_to_broker(int broker_socket, struct err *e)
{
	struct pollfd broker = {broker_socket, POLLRDHUP, 0};

	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return err_sys(e, "cannot set the parent-death signal");
	if (poll(&broker, 1, 0) > 0 && (broker.revents & (POLLHUP | POLLRDHUP)))
		return err_set(e, ERR_SYSTEM, "the broker is gone already");
	return 0;
}

/* The directory takes the place of the root; nothing of the old one is left (rule 6). */
static int change_root(const char *dir, struct err *e)
{
	auto_close int root = -1;

	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return err_sys(e, "cannot make mounts private");
	if (mount_bind(AT_FDCWD, dir, AT_FDCWD, dir, MOUNT_NO_EXEC, e) < 0)
		return -1;
	root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root < 0 || fchdir(root) < 0 || sys_pivot_root(".", ".") < 0 ||
	    umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return err_sys(e, "cannot make %s the root", dir);
	return 0;
}

static int set_limit(int which, uint64_t most, struct err *e)
{
	struct rlimit now, want = {most, most};

	if (getrlimit(which, &now) == 0 && now.rlim_max < most)
		want = (struct rlimit){now.rlim_max, now.rlim_max};
	return setrlimit(which, &want) < 0 ? err_sys(e, "cannot set a resource limit") : 0;
}

static int change_ids(const struct role_confinement *c, struct err *e)
{
	if (c->rootless)
		return 0;
	if (setgroups(0, NULL) < 0 || setresgid(c->gid, c->gid, c->gid) < 0 ||
	    setresuid(c->uid, c->uid, c->uid) < 0)
		return err_sys(e, "cannot become an unprivileged user");
	return 0;
}

static int restrict_paths(const char *const *readable, struct err *e)
{
	struct landlock l;

	if (landlock_abi() < 1)
		return 0;
	/* A role that reads the host's files also connects out; the others never do. */
	if (landlock_open(&l, !readable, e) < 0)
		return -1;
	if (!readable && landlock_allow(&l, AT_FDCWD, "/", LANDLOCK_WRITE, e) < 0)
		return -1;
	for (; readable && *readable; readable++)
		if (landlock_allow(&l, AT_FDCWD, *readable, LANDLOCK_READ, e) < 0)
			return -1;
	return landlock_apply(&l, e);
}

int confine(const struct role_confinement *c, struct err *e)
{
	sched_lead();
	if ((c->root && change_root(c->root, e) < 0) ||
	    set_limit(RLIMIT_NOFILE, c->open_files, e) < 0 || set_limit(RLIMIT_CORE, 0, e) < 0)
		return -1;
	/* Dropping the bounding set needs a capability that goes with the ids. */
	if ((!c->is_callers && caps_drop_bounding(e) < 0) || change_ids(c, e) < 0 ||
	    caps_clear(e) < 0)
		return -1;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return err_sys(e, "cannot give up privileges");
	/* A change of ids has cleared the signal. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return err_sys(e, "cannot set the parent-death signal");
	/* Tried, not believed (rule 1). */
	if (!caps_none(!c->is_callers))
		return err_set(e, ERR_SYSTEM, "a capability is left");
	return restrict_paths(c->readable, e) < 0 ? -1 : seccomp_load(c->profile, NULL, e);
}
