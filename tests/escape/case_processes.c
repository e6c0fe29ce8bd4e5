/* Other processes: the supervisor above us, the host's, the terminal, and what we may become. */
#include "probe.h"

#include "base/auto.h"
#include "numbers.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a process of someone else may answer. */
#define OTHERS ERRS(EPERM, EACCES, ESRCH, ENOENT)

/* pid 1 and whoever started us; in a container these are one and the same. */
static int above(struct probe *p, pid_t ret[2])
{
	int n = 0;

	/* Outside there is nothing to prove by touching the host's init: a child stands in. */
	if (!p->control)
		ret[n++] = 1;
	if (p->boss > 1)
		ret[n++] = p->boss;
	if (getpid() == 1 || (n == 1 && ret[0] == 1 && p->boss == 0 && !p->control)) {
		refused(p, "no other process is in reach");
		return 0;
	}
	return n;
}

static void ptrace_boss(struct probe *p)
{
	pid_t pids[2];
	int n = above(p, pids);

	for (int i = 0; i < n; i++) {
		/* SEIZE does not stop it. */
		judge(p, "PTRACE_SEIZE", ptrace(PTRACE_SEIZE, pids[i], 0, 0), OTHERS);
		ptrace(PTRACE_DETACH, pids[i], 0, 0);
	}
}

static void ptrace_child(struct probe *p)
{
	pid_t pid = fork();

	if (pid == 0) {
		pause();
		_exit(0);
	}
	judge(p, "PTRACE_ATTACH to an own child", ptrace(PTRACE_SEIZE, pid, 0, 0), ERRS(EPERM));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void vm_boss(struct probe *p)
{
	static char mine[16];
	pid_t pids[2];
	int n = above(p, pids);

	for (int i = 0; i < n; i++) {
		struct iovec local = {mine, sizeof(mine)}, remote = {mine, sizeof(mine)};

		/* A wrong address is found out only after the permission. */
		if (process_vm_readv(pids[i], &local, 1, &remote, 1, 0) >= 0 || errno == EFAULT)
			got_through(p, "process_vm_readv was let in");
		else
			judge(p, "process_vm_readv", -1, OTHERS);
		/* No bytes: the permission is asked for before anything is copied. */
		local.iov_len = 0;
		if (!p->control)
			judge(p, "process_vm_writev",
			      process_vm_writev(pids[i], &local, 1, &remote, 1, 0), OTHERS);
	}
}

/* Reading does the same checks as writing, but leaves the process alone. */
static void proc_files_of_boss(struct probe *p)
{
	const char *name = p->c->arg;
	pid_t pids[2];
	int n = above(p, pids);
	char buf[64];

	for (int i = 0; i < n; i++) {
		const char *path = fmt_path("/proc/%d/%s", (int)pids[i], name);
		auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
		ssize_t got = fd < 0 ? -1 : read(fd, buf, sizeof(buf));

		if (fd < 0)
			judge(p, path, -1, OTHERS);
		else if (!strcmp(name, "mem") || got > 0)
			got_through(p, "%s can be read", path);
		else if (got == 0)
			refused(p, "%s is empty", path);
		else
			judge(p, path, -1, ERRS(EPERM, EACCES, ESRCH, EIO));
	}
}

static void links_of_boss(struct probe *p)
{
	static const char *const names[] = {"exe",  "cwd",  "root", "fd/0",   "fd/1",
					    "fd/3", "fd/4", "fd/5", "ns/mnt", "ns/user"};
	pid_t pids[2];
	int n = above(p, pids);
	char buf[256];

	for (int i = 0; i < n; i++) {
		for (size_t j = 0; j < ARRAY_LEN(names); j++) {
			const char *path = fmt_path("/proc/%d/%s", (int)pids[i], names[j]);

			judge(p, path, readlink(path, buf, sizeof(buf)), OTHERS);
		}
	}
}

/* The overwritten runtime binary of 2019: ours is the launcher, if pid 1 is a fork of it. */
static void exe_write(struct probe *p)
{
	static const char *const names[] = {"/proc/1/exe", "/proc/self/exe"};

	for (size_t i = p->control ? 1 : 0; i < ARRAY_LEN(names); i++) {
		/* The control writes to a copy, and not to a running program. */
		auto_close int path = open(names[i], O_PATH | O_CLOEXEC);
		auto_close int fd = open(names[i], O_RDWR | O_CLOEXEC);

		judge(p, names[i], fd, ERRS(EACCES, EPERM, EROFS, ETXTBSY, ENOENT));
		if (path >= 0) {
			auto_close int again =
				open(fmt_path("/proc/self/fd/%d", path), O_RDWR | O_CLOEXEC);

			judge(p, "reopening the program", again,
			      ERRS(EACCES, EPERM, EROFS, ETXTBSY, ENOENT));
		}
	}
}

static void kcmp_boss(struct probe *p)
{
	pid_t pids[2];
	int n = above(p, pids);

	for (int i = 0; i < n; i++)
		judge(p, "kcmp", syscall(SYS_kcmp, getpid(), pids[i], 1, 0, 0), OTHERS);
}

static void pidfd_getfd_boss(struct probe *p)
{
	pid_t pids[2];
	int n = above(p, pids);

	for (int i = 0; i < n; i++) {
		auto_close int fd = (int)syscall(SYS_pidfd_open, pids[i], 0);

		if (fd < 0) {
			judge(p, "pidfd_open", -1, ERRS(EPERM, EACCES, ESRCH, ENOSYS));
			continue;
		}
		for (int n2 = 0; n2 < 16; n2++) {
			auto_close int got = (int)syscall(SYS_pidfd_getfd, fd, n2, 0);

			judge(p, "pidfd_getfd", got, ERRS(EPERM, EACCES, ESRCH, ENOSYS));
		}
	}
}

static char state_of(pid_t pid)
{
	char buf[512], *paren;

	if (read_text(fmt_path("/proc/%d/stat", (int)pid), buf, sizeof(buf)) <= 0)
		return '?';
	paren = strrchr(buf, ')');
	return paren && paren[1] == ' ' ? paren[2] : '?';
}

/*
 * Stopping the supervisor would stop timeouts and reaping. For a pid 1 the call succeeds and does
 * nothing, so its state is what counts. It is woken at once, should it have worked.
 */
static void stop_boss(struct probe *p)
{
	pid_t boss = p->boss;
	char state;

	if (boss == 0) {
		refused(p, "no other process is in reach");
		return;
	}
	if (kill(boss, SIGSTOP) < 0) {
		judge(p, "SIGSTOP", -1, OTHERS);
		return;
	}
	msleep(20);
	state = state_of(boss);
	kill(boss, SIGCONT);
	if (state == 'T')
		got_through(p, "stopped the supervisor");
	else if (boss == 1)
		refused(p, "pid 1 takes no SIGSTOP");
	else
		got_through(p, "may send signals to the supervisor");
}

static void tune_boss(struct probe *p)
{
	struct rlimit64 {
		unsigned long long cur, max;
	} old;
	unsigned long mask[16] = {0};
	pid_t boss = p->boss;
	long rc;

	if (boss == 0) {
		refused(p, "no other process is in reach");
		return;
	}
	rc = syscall(SYS_prlimit64, boss, RLIMIT_NOFILE, NULL, &old);
	judge(p, "prlimit64", rc, OTHERS);
	/* Slowing one's own pid 1 down harms nobody else. */
	if (boss == 1)
		return;
	if (syscall(SYS_sched_getaffinity, boss, sizeof(mask), mask) > 0)
		judge(p, "sched_setaffinity",
		      syscall(SYS_sched_setaffinity, boss, sizeof(mask), mask), OTHERS);
	errno = 0;
	rc = getpriority(PRIO_PROCESS, (id_t)boss);
	if (errno == 0)
		judge(p, "setpriority", setpriority(PRIO_PROCESS, (id_t)boss, (int)rc), OTHERS);
}

static void signal_host(struct probe *p)
{
	const char *pid = need(p, "pid");

	if (!pid)
		return;
	judge(p, "kill", kill(atoi(pid), SIGUSR1), ERRS(ESRCH, EPERM));
	judge(p, "sigqueue", sigqueue(atoi(pid), SIGUSR1, (union sigval){0}), ERRS(ESRCH, EPERM));
	judge(p, "tgkill", syscall(SYS_tgkill, atoi(pid), atoi(pid), SIGUSR1), ERRS(ESRCH, EPERM));
}

/* Let the kernel send the signal for us: the owner of a pipe is told when something happens. */
static void sigio_host(struct probe *p)
{
	const char *pid = need(p, "pid");
	int pipes[2];

	if (!pid || pipe(pipes) < 0)
		return;
	if (fcntl(pipes[0], F_SETSIG, SIGUSR2) < 0 || fcntl(pipes[0], F_SETOWN, atoi(pid)) < 0) {
		judge(p, "F_SETOWN", -1, ERRS(ESRCH, EPERM));
		return;
	}
	if (fcntl(pipes[0], F_SETFL, O_ASYNC | O_NONBLOCK) < 0) {
		judge(p, "O_ASYNC", -1, ERRS(EPERM));
		return;
	}
	if (write(pipes[1], "x", 1) != 1)
		cannot_tell(p, "write: %s", errno_name(errno));
	msleep(50);
	refused(p, "nothing arrived");
}

/* A process group may reach beyond the pid namespace: the caller's pipeline is in it. */
static void kill_group(struct probe *p)
{
	signal(SIGURG, SIG_IGN);
	if (kill(0, SIGURG) < 0)
		judge(p, "kill(0)", -1, ERRS(EPERM, ESRCH));
	msleep(50);
	refused(p, "nobody outside was hit");
}

static void kill_all(struct probe *p)
{
	/* Ignored by default and expected by those who handle it: it harms nobody it should reach.
	 */
	if (kill(-1, SIGCHLD) < 0)
		judge(p, "kill(-1)", -1, ERRS(EPERM, ESRCH));
	msleep(50);
	refused(p, "nobody outside was hit");
}

static void realtime(struct probe *p)
{
	struct sched_param sp = {.sched_priority = 1};
	struct {
		unsigned size, policy;
		unsigned long long flags;
		int nice;
		unsigned priority;
		unsigned long long runtime, deadline, period;
	} attr = {48, 6 /* SCHED_DEADLINE */, 0, 0, 0, 1000000, 10000000, 10000000};

	/* Whoever gets it gives it back at once. */
	judge(p, "SCHED_FIFO", syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &sp), ERRS(EPERM));
	judge(p, "SCHED_RR", syscall(SYS_sched_setscheduler, 0, SCHED_RR, &sp), ERRS(EPERM));
	judge(p, "SCHED_DEADLINE", syscall(SYS_sched_setattr, 0, &attr, 0), ERRS(EPERM));
	sp.sched_priority = 0;
	syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &sp);
}

static void nicer(struct probe *p)
{
	int before = getpriority(PRIO_PROCESS, 0);

	judge(p, "setpriority", setpriority(PRIO_PROCESS, 0, before - 5), ERRS(EACCES, EPERM));
	/* class 1: real time */
	judge(p, "ioprio_set", syscall(SYS_ioprio_set, 1, 0, 1 << 13), ERRS(EPERM, EACCES));
}

static void raise_limits(struct probe *p)
{
	static const struct {
		int resource;
		const char *name;
	} rows[] = {
		{RLIMIT_NOFILE, "RLIMIT_NOFILE"},   {RLIMIT_CORE, "RLIMIT_CORE"},
		{RLIMIT_MEMLOCK, "RLIMIT_MEMLOCK"}, {RLIMIT_FSIZE, "RLIMIT_FSIZE"},
		{RLIMIT_NPROC, "RLIMIT_NPROC"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct rlimit r;

		if (getrlimit(rows[i].resource, &r) < 0 || r.rlim_max == RLIM_INFINITY)
			continue;
		r.rlim_max++;
		judge(p, rows[i].name, setrlimit(rows[i].resource, &r), ERRS(EPERM));
	}
	refused(p, "no hard limit can be raised");
}

static void core_dump(struct probe *p)
{
	const char *dir = scratch_dir(p);
	struct rlimit r;
	pid_t pid;
	int status;

	if (!dir)
		return;
	pid = fork();
	if (pid == 0) {
		if (chdir(dir) < 0 || getrlimit(RLIMIT_CORE, &r) < 0)
			_exit(1);
		r.rlim_cur = r.rlim_max;
		setrlimit(RLIMIT_CORE, &r);
		signal(SIGABRT, SIG_DFL);
		raise(SIGABRT);
		_exit(1);
	}
	if (waitpid(pid, &status, 0) < 0 || !WIFSIGNALED(status))
		cannot_tell(p, "the child did not crash");
	else if (WCOREDUMP(status))
		got_through(p, "the host's core handler was started");
	else
		refused(p, "no core was dumped");
	remove_tree(dir);
}

/* Typing into the terminal that we share with the user. */
static void tiocsti(struct probe *p)
{
	unsigned long code = (unsigned long)TIOCSTI | (unsigned long)(size_t)p->c->arg;
	auto_close int tty = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	const int fds[] = {0, tty};
	bool any = false;

	for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
		if (fds[i] < 0 || !isatty(fds[i]))
			continue;
		any = true;
		judge(p, "TIOCSTI", syscall(SYS_ioctl, fds[i], code, ""), ERRS(EPERM, EACCES));
	}
	if (!any)
		not_here(p, "no terminal");
}

static void tty_other(struct probe *p)
{
	int ldisc = 13; /* N_HDLC */
	char mode = 2;	/* of TIOCLINUX: selection */

	if (!isatty(0)) {
		not_here(p, "no terminal");
		return;
	}
	judge(p, "TIOCLINUX", ioctl(0, TIOCLINUX, &mode), ERRS(EPERM, EACCES, ENOTTY));
	judge(p, "TIOCCONS", ioctl(0, TIOCCONS, 0), ERRS(EPERM, EACCES));
	if (ioctl(0, TIOCSETD, &ldisc) < 0 && errno == EINVAL)
		got_through(p, "TIOCSETD was let in, and the kernel has no such discipline");
	else
		judge(p, "TIOCSETD", ioctl(0, TIOCSETD, &ldisc), ERRS(EPERM, EACCES));
	ldisc = 0;
	ioctl(0, TIOCSETD, &ldisc);
}

/* Each key typed would signal the processes in front of the terminal, which are not ours. */
static void tty_signals(struct probe *p)
{
	int flags = fcntl(0, F_GETFL), on = 1, off = 0;

	if (!isatty(0)) {
		not_here(p, "no terminal");
		return;
	}
	/* Nobody dies of this one. */
	fcntl(0, F_SETSIG, SIGURG);
	judge(p, "O_ASYNC", fcntl(0, F_SETFL, flags | O_ASYNC), ERRS(EPERM, EACCES));
	ioctl(0, FIOASYNC, &on);
	if (fcntl(0, F_GETFL) & O_ASYNC)
		got_through(p, "FIOASYNC");
	ioctl(0, FIOASYNC, &off);
	fcntl(0, F_SETSIG, 0);
}

static const struct probe_case cases[] = {
	{"ptrace-supervisor", 21, "trace the supervisor", SAFE, L(SECCOMP) | L(PID_NS), 0,
	 ptrace_boss, 0},
	{"ptrace-child", 21, "trace an own child", SAFE, L(SECCOMP), 0, ptrace_child, 0},
	{"vm-supervisor", 21, "read and write the supervisor's memory", SAFE, L(SECCOMP), 0,
	 vm_boss, 0},
	{"mem-supervisor", 21, "open /proc/PID/mem of the supervisor", SAFE,
	 L(PID_NS) | L(LANDLOCK), 0, proc_files_of_boss, "mem"},
	{"environ-supervisor", 36, "read the supervisor's environment", SAFE,
	 L(PID_NS) | L(LANDLOCK), 0, proc_files_of_boss, "environ"},
	{"maps-supervisor", 36, "read the supervisor's memory map", SAFE, L(PID_NS) | L(LANDLOCK),
	 0, proc_files_of_boss, "maps"},
	{"links-supervisor", 9, "follow the supervisor's links in /proc", SAFE,
	 L(PID_NS) | L(LANDLOCK), 0, links_of_boss, 0},
	{"exe-write", 15, "overwrite the program that is running", NO_CONTROL,
	 L(MOUNT_NS) | L(LANDLOCK), 0, exe_write, 0},
	{"kcmp-supervisor", 21, "compare kernel objects with the supervisor", SAFE, L(SECCOMP), 0,
	 kcmp_boss, 0},
	{"pidfd-getfd", 13, "take descriptors out of the supervisor", SAFE, L(SECCOMP) | L(PID_NS),
	 0, pidfd_getfd_boss, 0},
	{"stop-supervisor", 32, "stop the supervisor", NO_CONTROL, L(PID_NS) | L(LANDLOCK), 0,
	 stop_boss, 0},
	{"tune-supervisor", 32, "change the supervisor's limits and priority", SAFE | WEAK,
	 L(PID_NS) | L(USER_NS), 0, tune_boss, 0},
	{"signal-host", 43, "signal a process of the host", SAFE, L(PID_NS) | L(LANDLOCK), 0,
	 signal_host, 0},
	{"sigio-host", 43, "let the kernel signal a process of the host", SAFE | BY_HIT,
	 L(PID_NS) | L(LANDLOCK) | L(SECCOMP), 0, sigio_host, 0},
	{"kill-group", 43, "signal the caller's process group", SAFE | BY_HIT,
	 L(LANDLOCK) | L(USER_NS), "group", kill_group, 0},
	{"kill-all", 43, "signal everybody", NO_CONTROL | BY_HIT, L(PID_NS) | L(LANDLOCK), 0,
	 kill_all, 0},
	{"realtime", 33, "take real-time priority", SAFE, L(CAPS) | L(SECCOMP), 0, realtime, 0},
	{"nice", 33, "take a better priority", SAFE, L(CAPS) | L(SECCOMP), 0, nicer, 0},
	{"raise-limits", 33, "raise a hard limit", SAFE, L(CAPS), 0, raise_limits, 0},
	{"core-dump", 37, "crash, so that the host's core handler runs", 0, L(IDS), 0, core_dump,
	 0},
	{"tiocsti", 0, "type into the terminal", SAFE, L(SECCOMP), 0, tiocsti, 0},
	{"tty-signals", 0, "have the terminal signal its foreground processes", 0, L(SECCOMP), 0,
	 tty_signals, 0},
	{"tiocsti-high-bits", 0, "the same with bits above the code set", SAFE, L(SECCOMP), 0,
	 tiocsti, (const void *)(1ul << 32)},
	{"tty-other", 0, "console, line discipline and selection of the terminal", NO_CONTROL,
	 L(SECCOMP), 0, tty_other, 0},
};
const struct case_group group_processes = {cases, ARRAY_LEN(cases)};
