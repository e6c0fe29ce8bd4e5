/*
 * Finds out by trying what this kernel and this user can do. Each probe runs in a child, so that one
 * that hangs or dies tells only about itself.
 */
#include "kern/features.h"

#include "kern/caps.h"
#include "kern/mountinfo.h"
#include "kern/probe.h"
#include "kern/sys.h"
#include "kern/userns.h"

#include <assert.h>
#include <grp.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <sys/wait.h>

enum { PROBE_TIMEOUT_MS = 3000, KILL_TIMEOUT_MS = 2000, NOBODY = 65534 };

int probe_says(struct feature *f, int errnum, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(f->detail, sizeof(f->detail), fmt, ap);
	va_end(ap);
	return errnum;
}

int probe_error(struct feature *f, const struct err *e)
{
	return probe_says(f, e->errnum ? e->errnum : EINVAL, "%.200s", e->msg);
}

int probe_failed(struct feature *f, const char *doing)
{
	int errnum = errno ? errno : EINVAL;

	return probe_says(f, errnum, "%s: %s", doing, strerror(errnum));
}

/* ---- kernel ---- */

static int probe_kernel(struct feature *f)
{
	struct utsname u;
	int major = 0, minor = 0;

	uname(&u);
	snprintf(f->detail, sizeof(f->detail), "Linux %.60s %.30s", u.release, u.machine);
	/* 5.13 is the first with all that is used: mount_setattr, Landlock, overlay in a userns. */
	if (sscanf(u.release, "%d.%d", &major, &minor) == 2 && (major << 8 | minor) < (5 << 8 | 13))
		f->state = FEATURE_LIMITED;
	return 0;
}

/* ---- namespaces ---- */

static int enter_user_ns(struct feature *f)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	struct err e;

	if (unshare(CLONE_NEWUSER) < 0)
		return probe_failed(f, "unshare");
	return userns_map_self(0, uid, 0, gid, &e) < 0 ? probe_error(f, &e) : 0;
}

static ino_t ns_inode(const char *name)
{
	struct stat st;
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/ns/%s", name);
	return stat(path, &st) == 0 ? st.st_ino : 0;
}

/* The new namespace must also be another one than before: what follows changes things in it. */
static int enter_namespace(struct feature *f, int flag, const char *name)
{
	int errnum = caps_can_administer() ? 0 : enter_user_ns(f);
	ino_t before = ns_inode(name);

	if (errnum)
		return errnum;
	if (unshare(flag) < 0)
		return probe_failed(f, "unshare");
	/* pid_for_children of an empty namespace cannot be looked at: it needs its first process. */
	if (flag != CLONE_NEWPID && (before == 0 || ns_inode(name) == before))
		return probe_says(f, EINVAL, "unshare succeeds, but changes nothing");
	return 0;
}

int probe_enter_mounts(struct feature *f)
{
	int errnum = enter_namespace(f, CLONE_NEWNS, "mnt");

	if (errnum)
		return errnum;
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return probe_failed(f, "making mounts private");
	return 0;
}

int probe_enter_scratch(struct feature *f)
{
	int errnum = probe_enter_mounts(f);
	struct stat before, after;

	if (errnum)
		return errnum;
	if (stat("/tmp", &before) < 0)
		return probe_failed(f, "/tmp");
	if (mount("none", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=1m") < 0)
		return probe_failed(f, "mounting a tmpfs");
	if (chdir("/tmp") < 0 || stat(".", &after) < 0)
		return probe_failed(f, "entering a tmpfs");
	/* What follows writes here: it must not be the host's. */
	if (before.st_dev == after.st_dev)
		return probe_says(f, EINVAL, "mount succeeds, but mounts nothing");
	return 0;
}

/* Ubuntu lets the namespace come up and refuses what it is for: so mount something in it. */
static int probe_user_ns(struct feature *f)
{
	struct id_map map;
	struct userns made;
	struct err e;
	int errnum;

	if (caps_can_administer()) {
		id_map_range(&map, 1 << 20);
		if (userns_create(&map, &map, &made, &e) < 0)
			return probe_error(f, &e);
		userns_release(&made);
		close(made.fd);
		return probe_says(f, 0, "a range of ids of its own for each sandbox");
	}
	errnum = probe_enter_scratch(f);
	if (!errnum)
		return probe_says(f, 0, "with the caller's own id");
	return errnum;
}

static int probe_rootless(struct feature *f)
{
	if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
			       setresuid(NOBODY, NOBODY, NOBODY) < 0))
		return probe_failed(f, "becoming an ordinary user");
	/* A change of ids makes /proc/self belong to root, and the maps unwritable. */
	prctl(PR_SET_DUMPABLE, 1);
	return probe_enter_scratch(f);
}

static int loopback_up(struct feature *f)
{
	struct ifreq r = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	auto_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &r) < 0)
		return probe_failed(f, "bringing loopback up");
	return 0;
}

/* Runs `call` in a child and returns its exit status, which is an errno. */
static int try_in_child(struct feature *f, int (*call)(void))
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(call());
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return probe_failed(f, "fork");
	return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}

static int be_first(void)
{
	return getpid() == 1 ? 0 : EINVAL;
}

static int probe_namespace(struct feature *f, int flag, const char *name)
{
	int errnum = enter_namespace(f, flag, name);

	if (errnum)
		return errnum;
	if (flag == CLONE_NEWPID)
		return try_in_child(f, be_first);
	return flag == CLONE_NEWNET ? loopback_up(f) : 0;
}

static int mount_proc(void)
{
	struct stat st;

	if (mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		return errno;
	return stat("proc/1", &st) < 0 ? ENOENT : 0;
}

/* An ordinary user may have one only where nothing covers a part of the host's, as containers do. */
static int probe_proc(struct feature *f)
{
	int errnum = probe_enter_scratch(f);

	if (errnum)
		return errnum;
	if (unshare(CLONE_NEWPID) < 0 || mkdir("proc", 0755) < 0)
		return probe_failed(f, "making a pid namespace");
	errno = try_in_child(f, mount_proc);
	return errno ? probe_failed(f, "mounting a new /proc") : 0;
}

/* ---- running a probe ---- */

struct row {
	int (*probe)(struct feature *f);
	int flag; /* no probe: the namespace to make */
	const char *name;
};

static const struct row rows[] = {
	[FEATURE_KERNEL] = {.probe = probe_kernel},
	[FEATURE_USER_NS] = {.probe = probe_user_ns},
	[FEATURE_PID_NS] = {.flag = CLONE_NEWPID, .name = "pid"},
	[FEATURE_MOUNT_NS] = {.flag = CLONE_NEWNS, .name = "mnt"},
	[FEATURE_NET_NS] = {.flag = CLONE_NEWNET, .name = "net"},
	[FEATURE_IPC_NS] = {.flag = CLONE_NEWIPC, .name = "ipc"},
	[FEATURE_UTS_NS] = {.flag = CLONE_NEWUTS, .name = "uts"},
	[FEATURE_CGROUP_NS] = {.flag = CLONE_NEWCGROUP, .name = "cgroup"},
	[FEATURE_TIME_NS] = {.flag = CLONE_NEWTIME, .name = "time_for_children"},
	[FEATURE_MOUNT_API] = {.probe = probe_mount_api},
	[FEATURE_PROC] = {.probe = probe_proc},
	[FEATURE_OVERLAY] = {.probe = probe_overlay},
	[FEATURE_IDMAP] = {.probe = probe_idmap},
	[FEATURE_CGROUP] = {.probe = probe_cgroup},
	[FEATURE_SECCOMP] = {.probe = probe_seccomp},
	[FEATURE_SECCOMP_NOTIFY] = {.probe = probe_seccomp_notify},
	[FEATURE_LANDLOCK] = {.probe = probe_landlock},
	[FEATURE_CLONE3] = {.probe = probe_clone3},
	[FEATURE_PIDFD] = {.probe = probe_pidfd},
	[FEATURE_CLOSE_RANGE] = {.probe = probe_close_range},
	[FEATURE_OPENAT2] = {.probe = probe_openat2},
	[FEATURE_ROOTLESS] = {.probe = probe_rootless},
};
static_assert(ARRAY_LEN(rows) == FEATURE_COUNT, "a probe per feature");

static void run_in_child(const struct row *row, struct feature *f)
{
	int errnum;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGALRM, SIG_DFL);
	errnum = row->probe ? row->probe(f) : probe_namespace(f, row->flag, row->name);
	f->errnum = errnum;
	if (errnum)
		f->state = FEATURE_MISSING;
	if (errnum && !f->detail[0])
		snprintf(f->detail, sizeof(f->detail), "%s", strerror(errnum));
	_exit(0);
}

/* Ends a probe that hangs. One that not even SIGKILL ends (in the kernel) is left behind. */
static void kill_and_wait(pid_t pid)
{
	const struct timespec step = {.tv_nsec = 20000000};

	kill(pid, SIGKILL);
	for (int waited = 0; waited < KILL_TIMEOUT_MS; waited += 20) {
		if (waitpid(pid, NULL, WNOHANG) != 0)
			return;
		nanosleep(&step, NULL);
	}
}

static void fail(struct feature *f, const char *detail)
{
	*f = (struct feature){.state = FEATURE_MISSING, .errnum = errno};
	snprintf(f->detail, sizeof(f->detail), "%s", detail);
}

/* Waits for the child's end of the pipe to close, then for the child. */
static void await(pid_t pid, int alive, struct feature *f)
{
	struct pollfd p = {.fd = alive, .events = POLLIN};
	int status = 0, n;

	do
		n = poll(&p, 1, PROBE_TIMEOUT_MS);
	while (n < 0 && errno == EINTR);
	if (n == 0) {
		kill_and_wait(pid);
		errno = ETIMEDOUT;
		fail(f, "it hangs");
		return;
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (status != 0) {
		errno = 0;
		fail(f, "the probe was killed");
	}
}

void features_probe(enum feature_id id, struct feature *ret)
{
	struct feature *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	auto_close int read_end = -1;
	int ends[2];
	pid_t pid;

	if (shared == MAP_FAILED || pipe2(ends, O_CLOEXEC) < 0) {
		fail(ret, "cannot probe");
		return;
	}
	read_end = ends[0];
	pid = fork();
	if (pid == 0) {
		close(read_end);
		run_in_child(&rows[id], shared);
	}
	close(ends[1]);
	if (pid < 0)
		fail(shared, "cannot fork");
	else
		await(pid, read_end, shared);
	*ret = *shared;
	munmap(shared, sizeof(*shared));
}

/* ---- who blocks user namespaces ---- */

static int read_sysctl(const char *path)
{
	char text[16];

	return io_read_at(AT_FDCWD, path, text, sizeof(text)) > 0 ? atoi(text) : -1;
}

/* No mount is at "/": a chroot, where the kernel has only EPERM (user_namespaces(7)). */
static bool is_chroot(void)
{
	struct mountinfo m;
	struct err e = {0};
	bool found = false;

	if (mountinfo_read(&m, &e) < 0)
		return false;
	for (size_t i = 0; i < m.count; i++)
		found = found || str_equal(m.entries[i].point, "/");
	mountinfo_done(&m);
	return !found;
}

enum userns_block features_userns_block(void)
{
	if (is_chroot())
		return USERNS_CHROOT;
	if (read_sysctl("/proc/sys/kernel/unprivileged_userns_clone") == 0)
		return USERNS_CLONE_SYSCTL;
	if (read_sysctl("/proc/sys/user/max_user_namespaces") == 0)
		return USERNS_MAX_ZERO;
	if (read_sysctl("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1)
		return USERNS_APPARMOR;
	return USERNS_NOT_BLOCKED;
}
