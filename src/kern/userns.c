#include "kern/userns.h"

#include "kern/caps.h"
#include "kern/sys.h"

#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define RANGE 65536u

void id_map_range(struct id_map *ret, uint32_t base)
{
	snprintf(ret->text, sizeof(ret->text), "0 %u %u\n", base, RANGE);
}

void id_map_disk(struct id_map *ret, uint32_t base)
{
	snprintf(ret->text, sizeof(ret->text), "0 %u %u\n%u 0 1\n", base, RANGE, USERNS_DISK_OUTER);
}

void id_map_one(struct id_map *ret, uint32_t id, uint32_t owner)
{
	snprintf(ret->text, sizeof(ret->text), "%u %u 1\n", owner, id);
}

void id_map_below(struct id_map *ret)
{
	snprintf(ret->text, sizeof(ret->text), "0 0 %u\n", RANGE - 1);
}

static int add_line(struct id_map *m, int len, uint32_t inside, uint32_t outside, uint32_t count)
{
	if (count == 0)
		return len;
	return len + snprintf(m->text + len, sizeof(m->text) - (size_t)len, "%u %u %u\n", inside,
			      outside, count);
}

void id_map_owner(struct id_map *ret, uint32_t base, uint32_t owner, uint32_t user)
{
	uint32_t a = owner < user ? owner : user, b = owner < user ? user : owner;
	int len = 0;

	if (owner == user) {
		id_map_range(ret, base);
		return;
	}
	len = add_line(ret, len, 0, base, a);
	len = add_line(ret, len, owner, base + user, 1);
	if (owner >= RANGE) {
		/* user is a, the whole rest of the range follows it */
		add_line(ret, len, user + 1, base + user + 1, RANGE - user - 1);
		return;
	}
	len = add_line(ret, len, user, base + owner, 1);
	len = add_line(ret, len, a + 1, base + a + 1, b - a - 1);
	add_line(ret, len, b + 1, base + b + 1, RANGE - b - 1);
}

static int write_proc(pid_t pid, const char *name, const char *text)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	return io_write_at(AT_FDCWD, path, text);
}

/* The holder keeps the namespace alive until the fd is open. */
static int wait_to_be_killed(void *maker)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != (pid_t)(intptr_t)maker)
		_exit(1);
	for (;;)
		pause();
	return 0;
}

/* By a system call: the C library would change the ids of all threads. */
static int set_effective_id(uid_t id)
{
	return (int)syscall(SYS_setresuid, -1, id, -1);
}

struct as_owner {
	uid_t self;
	int dumpable, death_signal;
};

/* Acts as the owner until as_owner_end. */
static int as_owner_begin(struct as_owner *a, uid_t owner)
{
	*a = (struct as_owner){geteuid(), prctl(PR_GET_DUMPABLE, 0, 0, 0, 0), 0};
	prctl(PR_GET_PDEATHSIG, &a->death_signal, 0, 0, 0);
	if (set_effective_id(owner) < 0)
		return -1;
	/* Some hosts let nobody else make user namespaces. If it fails, the next call will say so. */
	(void)caps_raise_permitted();
	return 0;
}

static void as_owner_end(const struct as_owner *a)
{
	int errnum = errno;

	/* Brings the capabilities back, too. A change of ids resets the two settings below. */
	if (set_effective_id(a->self) < 0)
		_exit(125);
	prctl(PR_SET_DUMPABLE, a->dumpable, 0, 0, 0);
	prctl(PR_SET_PDEATHSIG, a->death_signal, 0, 0, 0);
	errno = errnum;
}

pid_t userns_clone(int (*run)(void *), void *stack_end, int flags, void *arg, uid_t owner)
{
	struct as_owner a;
	pid_t pid;

	if (as_owner_begin(&a, owner) < 0)
		return -1;
	pid = clone(run, stack_end, flags | CLONE_NEWUSER, arg);
	as_owner_end(&a);
	return pid;
}

int userns_prlimit(pid_t pid, int resource, const struct rlimit *limit, uid_t owner)
{
	struct as_owner a;
	int rc = prlimit(pid, resource, limit, NULL);

	if (rc == 0 || errno != EPERM || !owner || as_owner_begin(&a, owner) < 0)
		return rc;
	rc = prlimit(pid, resource, limit, NULL);
	as_owner_end(&a);
	return rc;
}

int userns_adopt(pid_t pid, const struct id_map *uids, const struct id_map *gids, struct err *e)
{
	auto_close int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	char path[64];
	int fd;

	if (write_proc(pid, "uid_map", uids->text) < 0 ||
	    write_proc(pid, "gid_map", gids->text) < 0)
		return err_sys(e, "cannot write id maps");
	/* Linux 6.11: needs no file of /proc. */
	fd = pidfd < 0 ? -1 : ioctl(pidfd, PIDFD_GET_USER_NAMESPACE, 0);
	if (fd > 2)
		return fd;
	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? err_sys(e, "cannot open %s", path) : fd;
}

/* The holder shares our memory, so that nothing has to be copied, and has a stack of its own. */
int userns_create(const struct id_map *uids, const struct id_map *gids, struct userns *u,
		  struct err *e)
{
	u->fd = -1;
	u->holder = clone(wait_to_be_killed, u->stack + sizeof(u->stack),
			  CLONE_VM | CLONE_FILES | CLONE_NEWUSER, (void *)(intptr_t)getpid());
	if (u->holder < 0)
		return err_sys(e, "cannot create a user namespace");
	u->fd = userns_adopt(u->holder, uids, gids, e);
	/* The fd keeps the namespace from now on. It is cheapest to kill a holder that has not run yet. */
	kill(u->holder, SIGKILL);
	if (u->fd >= 0)
		return 0;
	userns_release(u);
	return -1;
}

void userns_release(struct userns *u)
{
	if (u->holder > 0)
		waitpid(u->holder, NULL, __WALL);
	u->holder = 0;
}

int userns_map_self(uid_t inside_uid, uid_t uid, gid_t inside_gid, gid_t gid, struct err *e)
{
	char line[64];

	/* Without this an ordinary user may not write gid_map (user_namespaces(7)). */
	if (io_write_at(AT_FDCWD, "/proc/self/setgroups", "deny") < 0 && errno != ENOENT)
		return err_sys(e, "cannot write /proc/self/setgroups");
	snprintf(line, sizeof(line), "%u %u 1\n", inside_uid, uid);
	if (io_write_at(AT_FDCWD, "/proc/self/uid_map", line) < 0)
		return err_sys(e, "cannot write /proc/self/uid_map");
	snprintf(line, sizeof(line), "%u %u 1\n", inside_gid, gid);
	if (io_write_at(AT_FDCWD, "/proc/self/gid_map", line) < 0)
		return err_sys(e, "cannot write /proc/self/gid_map");
	return 0;
}
