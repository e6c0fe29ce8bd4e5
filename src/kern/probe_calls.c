/* Probes of system calls, filters and limits. */
#include "kern/cgroup.h"
#include "kern/landlock.h"
#include "kern/probe.h"
#include "kern/sys.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

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

int probe_seccomp(struct feature *f)
{
	if (load_filter(SECCOMP_RET_ERRNO | ANSWER, 0) < 0)
		return probe_failed(f, "seccomp");
	return is_refused() ? 0 : no_effect(f, "a filter loads");
}

/* The caller is a child, so that we can answer it. */
int probe_seccomp_notify(struct feature *f)
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

int probe_landlock(struct feature *f)
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

int probe_clone3(struct feature *f)
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

int probe_pidfd(struct feature *f)
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

int probe_close_range(struct feature *f)
{
	int fd = dup(2);

	if (sys_close_range((unsigned)fd, (unsigned)fd, 0) < 0)
		return probe_failed(f, "close_range");
	return fcntl(fd, F_GETFD) < 0 ? 0 : no_effect(f, "close_range succeeds");
}

int probe_openat2(struct feature *f)
{
	int usr = sys_openat2(AT_FDCWD, "/usr", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);

	if (usr < 0)
		return probe_failed(f, "openat2");
	if (sys_openat2(usr, "..", O_PATH | O_CLOEXEC, RESOLVE_BENEATH) >= 0 || errno != EXDEV)
		return no_effect(f, "RESOLVE_BENEATH is taken");
	return 0;
}

/* Makes a cgroup as a run would, with limits, and looks at what it then has. */
int probe_cgroup(struct feature *f)
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
