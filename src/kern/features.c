/*
 * Finds out by trying what this kernel and this user can do. Each probe runs in a child of its own, so
 * that a probe that hangs or dies tells only about itself, and so that it may change namespaces, ids
 * and filters. A probe returns 0, or the errno of the step that failed; it may set the state to
 * FEATURE_LIMITED and write a detail.
 */
#include "kern/features.h"

#include "kern/caps.h"
#include "kern/cgroup.h"
#include "kern/landlock.h"
#include "kern/mount.h"
#include "kern/mountinfo.h"
#include "kern/sys.h"
#include "kern/userns.h"

#include <assert.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
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

/* Writes the detail and returns errnum: `return probe_says(f, ENODEV, "too slow")`. */
static int probe_says(struct feature *f, int errnum, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static int probe_says(struct feature *f, int errnum, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(f->detail, sizeof(f->detail), fmt, ap);
	va_end(ap);
	return errnum;
}

/* The same for the error of a function of ours. */
static int probe_error(struct feature *f, const struct err *e)
{
	return probe_says(f, e->errnum ? e->errnum : EINVAL, "%.200s", e->msg);
}

/* Notes what was being done, then returns errno: `return probe_failed(f, "unshare")`. */
static int probe_failed(struct feature *f, const char *doing)
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

/* Becomes able to mount: with our own privileges, or in a user namespace of our own. */
static int enter_mounts(struct feature *f)
{
	int errnum = enter_namespace(f, CLONE_NEWNS, "mnt");

	if (errnum)
		return errnum;
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return probe_failed(f, "making mounts private");
	return 0;
}

static const char *const small_tmpfs[] = {"size", "1m", NULL};

/* The same with a private, empty tmpfs as the current directory. */
static int enter_scratch(struct feature *f)
{
	int errnum = enter_mounts(f);
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
	errnum = enter_scratch(f);
	return errnum ? errnum : probe_says(f, 0, "with the caller's own id");
}

static int probe_rootless(struct feature *f)
{
	if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
			       setresuid(NOBODY, NOBODY, NOBODY) < 0))
		return probe_failed(f, "becoming an ordinary user");
	/* A change of ids makes /proc/self belong to root, and the maps unwritable. */
	prctl(PR_SET_DUMPABLE, 1);
	return enter_scratch(f);
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
	if (unshare(CLONE_NEWPID) < 0 || mkdir("proc", 0755) < 0)
		return probe_failed(f, "making a pid namespace");
	errno = try_in_child(f, mount_proc);
	return errno ? probe_failed(f, "mounting a new /proc") : 0;
}

/* ---- file systems and mounts ---- */

/* A new tmpfs, and a read-only copy of it that really is read-only. */
static int probe_mount_api(struct feature *f)
{
	int made, copy;
	struct err e;

	if (mkdir("a", 0755) < 0 || mkdir("b", 0755) < 0)
		return probe_failed(f, "mkdir");
	made = mount_new("tmpfs", 0, small_tmpfs, &e);
	if (made < 0 || mount_attach(made, AT_FDCWD, "a", &e) < 0)
		return probe_error(f, &e);
	/* Flags by a call of their own: newer kernels can set them while cloning. */
	copy = mount_clone(AT_FDCWD, "a", 0, &e);
	if (copy < 0 || mount_reflag(copy, MOUNT_READ_ONLY, &e) < 0 ||
	    mount_attach(copy, AT_FDCWD, "b", &e) < 0)
		return probe_error(f, &e);
	if (mkdir("a/x", 0755) < 0)
		return probe_failed(f, "writing to a new mount");
	return mkdir("b/y", 0755) < 0
		       ? 0
		       : probe_says(f, EINVAL, "a read-only mount can be written to");
}

/* Copy up, delete, and see both in the upper directory. */
static int probe_overlay(struct feature *f)
{
	/* The root of a user namespace that enter_scratch() made does not count: it lacks ids. */
	bool rootless = !caps_can_administer();
	struct stat st;

	if (mkdir("l", 0755) < 0 || mkdir("l/kept", 0755) < 0 || mkdir("l/gone", 0755) < 0 ||
	    mkdir("u", 0755) < 0 || mkdir("w", 0755) < 0 || mkdir("m", 0755) < 0)
		return probe_failed(f, "mkdir");
	if (mount("none", "m", "overlay", 0,
		  rootless ? "lowerdir=l,upperdir=u,workdir=w,userxattr"
			   : "lowerdir=l,upperdir=u,workdir=w") < 0)
		return probe_failed(f, "mounting an overlay");
	if (mkdir("m/kept/new", 0755) < 0 || rmdir("m/gone") < 0)
		return probe_failed(f, "writing to an overlay");
	if (stat("u/kept/new", &st) < 0 || lstat("u/gone", &st) < 0 || !S_ISCHR(st.st_mode) ||
	    stat("l/gone", &st) < 0)
		return probe_failed(f, "an overlay's upper directory");
	return 0;
}

/* Needed only by root: an ordinary user's sandbox has that user's own id. */
static int probe_idmap(struct feature *f)
{
	auto_close int userns = -1;
	auto_close int tmpfs = -1;
	auto_close int here = -1;
	struct id_map map;
	struct userns made;
	struct err e;
	int errnum;

	if (!caps_can_administer())
		return probe_says(f, 0, "not needed by an ordinary user");
	id_map_range(&map, 1 << 20);
	if (userns_create(&map, &map, &made, &e) == 0) {
		userns = made.fd;
		userns_release(&made);
	}
	here = userns < 0 ? -1 : mount_clone(AT_FDCWD, ".", 0, &e);
	if (userns < 0 || here < 0)
		return probe_error(f, &e);
	errnum = enter_mounts(f);
	if (errnum)
		return errnum;
	tmpfs = mount_new("tmpfs", 0, small_tmpfs, &e);
	if (tmpfs < 0)
		return probe_error(f, &e);
	if (mount_idmap(here, userns) == 0)
		return 0;
	f->state = FEATURE_LIMITED;
	snprintf(f->detail, sizeof(f->detail), "not on the current directory's file system: %s",
		 strerror(errno));
	if (mount_idmap(tmpfs, userns) == 0)
		return 0;
	return probe_failed(f, "mount_setattr");
}

/* ---- system calls, filters and limits ---- */

/* An errno that nobody else would give for getppid. */
enum { ANSWER = EXFULL };

/* Loads a filter that lets everything pass but getppid; returns seccomp's own answer. */
static int load_filter(uint32_t action, unsigned flags)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = ARRAY_LEN(code), .filter = code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -1;
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

static bool is_refused(void)
{
	errno = 0;
	return syscall(SYS_getppid) == -1 && errno == ANSWER;
}

static int no_effect(struct feature *f, const char *what)
{
	return probe_says(f, EINVAL, "%s, but has no effect", what);
}

static int probe_seccomp(struct feature *f)
{
	if (load_filter(SECCOMP_RET_ERRNO | ANSWER, 0) < 0)
		return probe_failed(f, "seccomp");
	return is_refused() ? 0 : no_effect(f, "a filter loads");
}

/* The caller is a child, so that we can answer it. */
static int probe_seccomp_notify(struct feature *f)
{
	auto_close int listener =
		load_filter(SECCOMP_RET_USER_NOTIF, SECCOMP_FILTER_FLAG_NEW_LISTENER);
	struct seccomp_notif request = {0};
	struct seccomp_notif_resp answer = {.error = -ANSWER};
	int status = 0;
	pid_t pid;

	if (listener < 0)
		return probe_failed(f, "seccomp");
	pid = fork();
	if (pid == 0)
		_exit(is_refused() ? 0 : 1);
	if (pid < 0)
		return probe_failed(f, "fork");
	if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &request) < 0)
		return probe_failed(f, "receiving a notification");
	answer.id = request.id;
	if (ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer) < 0)
		return probe_failed(f, "answering a notification");
	if (waitpid(pid, &status, 0) < 0)
		return probe_failed(f, "wait");
	return status == 0 ? 0 : no_effect(f, "notifications come");
}

static int probe_landlock(struct feature *f)
{
	int abi = landlock_abi();
	struct landlock l;
	struct err e;

	if (abi <= 0)
		return probe_says(f, ENOSYS, "not built in, or not in the lsm= list");
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (landlock_open(&l, false, &e) < 0 ||
	    landlock_allow(&l, AT_FDCWD, "/usr", LANDLOCK_READ, &e) < 0 ||
	    landlock_apply(&l, &e) < 0)
		return probe_error(f, &e);
	if (open("/proc/self/status", O_RDONLY | O_CLOEXEC) >= 0 || errno != EACCES)
		return no_effect(f, "a ruleset is taken");
	/* ABI 3 is the first that stops truncation; below it there are gaps in the second wall. */
	if (abi < 3)
		f->state = FEATURE_LIMITED;
	return probe_says(f, 0, "ABI %d", abi);
}

static int probe_clone3(struct feature *f)
{
	int pidfd = -1, status = 0;
	struct clone_args args = {
		.flags = CLONE_PIDFD, .pidfd = (uintptr_t)&pidfd, .exit_signal = SIGCHLD};
	pid_t pid = sys_clone3(&args);

	if (pid == 0)
		_exit(0);
	if (pid < 0)
		return probe_failed(f, "clone3");
	waitpid(pid, &status, 0);
	return pidfd >= 0 ? 0 : no_effect(f, "CLONE_PIDFD is taken");
}

static int probe_pidfd(struct feature *f)
{
	siginfo_t info = {0};
	pid_t pid = fork();
	int fd;

	if (pid == 0) {
		pause();
		_exit(1);
	}
	if (pid < 0)
		return probe_failed(f, "fork");
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0 || sys_pidfd_send_signal(fd, SIGKILL) < 0) {
		kill(pid, SIGKILL);
		return probe_failed(f, "pidfd_open");
	}
	if (waitid(P_PIDFD, (id_t)fd, &info, WEXITED) < 0)
		return probe_failed(f, "waitid on a pidfd");
	return info.si_pid == pid && info.si_status == SIGKILL ? 0
							       : no_effect(f, "a signal is sent");
}

static int probe_close_range(struct feature *f)
{
	int fd = dup(2);

	if (sys_close_range((unsigned)fd, (unsigned)fd, 0) < 0)
		return probe_failed(f, "close_range");
	return fcntl(fd, F_GETFD) < 0 ? 0 : no_effect(f, "close_range succeeds");
}

static int probe_openat2(struct feature *f)
{
	int usr = sys_openat2(AT_FDCWD, "/usr", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);

	if (usr < 0)
		return probe_failed(f, "openat2");
	if (sys_openat2(usr, "..", O_PATH | O_CLOEXEC, RESOLVE_BENEATH) >= 0 || errno != EXDEV)
		return no_effect(f, "RESOLVE_BENEATH is taken");
	return 0;
}

/* Makes a cgroup as a run would, with limits, and looks at what it then has. */
static int probe_cgroup(struct feature *f)
{
	static const struct {
		enum layer layer;
		const char *name;
	} parts[] = {{LAYER_MEMORY, "memory"}, {LAYER_CPU, "cpu"}, {LAYER_PIDS, "pids"}};
	struct limits limits = {.memory_bytes = 1 << 26, .cpus_milli = 1000, .pids = 64};
	char has[64] = "", lacks[64] = "";
	struct cgroup c;
	int version;

	cgroup_init(&c, 0);
	cgroup_create(&c, &limits);
	version = c.version;
	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		char *list = c.layers & LAYER_BIT(parts[i].layer) ? has : lacks;

		strcat(strcat(list, " "), parts[i].name);
	}
	if (version)
		cgroup_remove(&c);
	if (!version || !has[0])
		return probe_says(f, EACCES, "this user can have no cgroup here");
	if (lacks[0])
		f->state = FEATURE_LIMITED;
	return probe_says(f, 0, "v%d:%s%s%s", version, has, lacks[0] ? "; not" : "", lacks);
}

/* ---- running a probe ---- */

struct probe {
	int (*run)(struct feature *f);
	bool scratch; /* in an empty tmpfs of its own */
	int flag;     /* no probe: the namespace to make */
	const char *name;
};

static const struct probe probes[] = {
	[FEATURE_KERNEL] = {.run = probe_kernel},
	[FEATURE_USER_NS] = {.run = probe_user_ns},
	[FEATURE_PID_NS] = {.flag = CLONE_NEWPID, .name = "pid"},
	[FEATURE_MOUNT_NS] = {.flag = CLONE_NEWNS, .name = "mnt"},
	[FEATURE_NET_NS] = {.flag = CLONE_NEWNET, .name = "net"},
	[FEATURE_IPC_NS] = {.flag = CLONE_NEWIPC, .name = "ipc"},
	[FEATURE_UTS_NS] = {.flag = CLONE_NEWUTS, .name = "uts"},
	[FEATURE_CGROUP_NS] = {.flag = CLONE_NEWCGROUP, .name = "cgroup"},
	[FEATURE_TIME_NS] = {.flag = CLONE_NEWTIME, .name = "time_for_children"},
	[FEATURE_MOUNT_API] = {.run = probe_mount_api, .scratch = true},
	[FEATURE_PROC] = {.run = probe_proc, .scratch = true},
	[FEATURE_OVERLAY] = {.run = probe_overlay, .scratch = true},
	[FEATURE_IDMAP] = {.run = probe_idmap},
	[FEATURE_CGROUP] = {.run = probe_cgroup},
	[FEATURE_SECCOMP] = {.run = probe_seccomp},
	[FEATURE_SECCOMP_NOTIFY] = {.run = probe_seccomp_notify},
	[FEATURE_LANDLOCK] = {.run = probe_landlock},
	[FEATURE_CLONE3] = {.run = probe_clone3},
	[FEATURE_PIDFD] = {.run = probe_pidfd},
	[FEATURE_CLOSE_RANGE] = {.run = probe_close_range},
	[FEATURE_OPENAT2] = {.run = probe_openat2},
	[FEATURE_ROOTLESS] = {.run = probe_rootless},
};
static_assert(ARRAY_LEN(probes) == FEATURE_COUNT, "a probe per feature");

static void run_in_child(const struct probe *p, struct feature *f)
{
	int errnum;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGALRM, SIG_DFL);
	errnum = p->scratch ? enter_scratch(f) : 0;
	if (!errnum)
		errnum = p->run ? p->run(f) : probe_namespace(f, p->flag, p->name);
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

static void set_missing(struct feature *f, const char *detail)
{
	*f = (struct feature){.state = FEATURE_MISSING, .errnum = errno};
	snprintf(f->detail, sizeof(f->detail), "%s", detail);
}

/* Waits for the child's end of the pipe to close, then for the child. */
static void await_probe(pid_t pid, int alive, struct feature *f)
{
	struct pollfd p = {.fd = alive, .events = POLLIN};
	int status = 0, n;

	do
		n = poll(&p, 1, PROBE_TIMEOUT_MS);
	while (n < 0 && errno == EINTR);
	if (n == 0) {
		kill_and_wait(pid);
		errno = ETIMEDOUT;
		set_missing(f, "it hangs");
		return;
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (status != 0) {
		errno = 0;
		set_missing(f, "the probe was killed");
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
		set_missing(ret, "cannot probe");
		return;
	}
	read_end = ends[0];
	pid = fork();
	if (pid == 0) {
		close(read_end);
		run_in_child(&probes[id], shared);
	}
	close(ends[1]);
	if (pid < 0)
		set_missing(shared, "cannot fork");
	else
		await_probe(pid, read_end, shared);
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
