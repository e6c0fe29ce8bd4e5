/*
 * The filters, by really making the calls: a child loads a profile and serves its listener like
 * pid 1 does, a grandchild tries. Each refused call is also made without a filter (as root, where
 * the kernel itself would refuse little): if the answer is the same there, the try proves nothing.
 */
#include "base/auto.h"
#include "kern/cbpf.h"
#include "kern/seccomp.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/audit.h>
#include <linux/bpf.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cmocka.h>

#define HIGH (1L << 32)
#define DIRTY(x) ((long)(unsigned)(x) | HIGH * 0x5a5a5a5a)
#define FILE_HERE "cloche-test-seccomp" /* in a directory of this run */
#define S(path) ((long)(path))

enum {
	FREE = 1,
	SOLO = 2
}; /* answers of the kernel that are the same; not to be tried unfiltered */

struct
try {
	const char *what;
	long nr;
	long args[5];
	int errnum;	    /* what the filter answers; 0: it lets the call through */
	const char *report; /* a word of the reason, if it is reported */
	int how;
};

enum { MAX_HEARD = 64 };
struct stage {
	int errnum, done;
	unsigned heard;
	int nr[MAX_HEARD];
	char reason[MAX_HEARD][256];
};

static struct stage *stage;

/* ---- running something under a filter ---- */

static void serve(const struct seccomp_profile *p, int listener)
{
	struct seccomp_notif n;
	const struct seccomp_report *r;

	if (seccomp_notify_get(listener, &n) < 0)
		return;
	r = seccomp_report_match(p, &n.data);
	if (stage->heard < MAX_HEARD) {
		stage->nr[stage->heard] = n.data.nr;
		snprintf(stage->reason[stage->heard], 256, "%s", r ? r->reason : "");
		stage->heard++;
	}
	if (!seccomp_notify_alive(listener, n.id))
		return;
	seccomp_notify_answer(listener, n.id, r ? r->errnum : 0);
}

/* Loads, starts the trial, serves until it ends; exits 0, 1, or dies of the trial's signal. */
static void keep(const struct seccomp_profile *p, void (*trial)(const void *), const void *arg)
{
	int listener = -1, status = 0;
	struct err e;
	pid_t pid;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || (p && seccomp_load(p, &listener, &e) < 0))
		_exit(99);
	pid = fork();
	if (pid == 0) {
		trial(arg);
		_exit(0);
	}
	while (waitpid(pid, &status, p ? WNOHANG : 0) == 0) {
		struct pollfd f = {.fd = listener, .events = POLLIN};

		if (poll(&f, 1, 5) > 0 && f.revents & POLLIN)
			serve(p, listener);
	}
	_exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

static int run(const struct seccomp_profile *p, void (*trial)(const void *), const void *arg)
{
	int status;
	pid_t pid;

	memset(stage, 0, sizeof(*stage));
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		keep(p, trial, arg);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_not_equal(WEXITSTATUS(status), 99);
	return WEXITSTATUS(status);
}

static void make_call(const void *arg)
{
	const struct try *t = arg;
	pid_t me = getpid();
	long r;

	unlink(FILE_HERE);
	rmdir(FILE_HERE);
	if (t->nr == SYS_fchmod)
		r = syscall(t->nr, open(FILE_HERE, O_RDWR | O_CREAT, 0600), t->args[1]);
	else
		r = syscall(t->nr, t->args[0], t->args[1], t->args[2], t->args[3], t->args[4]);
	if (r == 0 && syscall(SYS_getpid) != me)
		_exit(0); /* a clone that should not have been */
	stage->errnum = r < 0 ? errno : 0;
	stage->done = 1;
	unlink(FILE_HERE);
	rmdir(FILE_HERE);
}

static void check_try(const struct seccomp_profile *p, const struct try *t)
{
	int unfiltered = -1, code;

	if (!(t->how & SOLO) && geteuid() == 0) {
		run(NULL, make_call, t);
		unfiltered = stage->errnum;
	}
	code = run(p, make_call, t);
	if (code || !stage->done || stage->errnum != t->errnum)
		fail_msg("%s: %s: exit %d, errno %d (%s), not %d", p->name, t->what, code,
			 stage->errnum, strerror(stage->errnum), t->errnum);
	if (t->errnum && !(t->how & FREE) && unfiltered == t->errnum)
		fail_msg("%s: the kernel alone says the same", t->what);
	if (t->report &&
	    (!stage->heard || stage->nr[0] != t->nr || !strstr(stage->reason[0], t->report)))
		fail_msg("%s: %s: reported %u times, as '%s'", p->name, t->what, stage->heard,
			 stage->reason[0]);
	if (!t->report && t->nr != SYS_connect && stage->heard)
		fail_msg("%s: %s: should be quiet", p->name, t->what);
}

static void check_tries(const struct seccomp_profile *p, const struct try *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		check_try(p, &list[i]);
}

/* ---- what is refused ---- */

static const struct try refused[] = {
	{"setns, the canary", SYS_setns, {-1, 0}, EPERM, NULL, 0},
	{"unshare user", SYS_unshare, {CLONE_NEWUSER}, EPERM, "namespaces", 0},
	{"unshare time", SYS_unshare, {0x80}, EPERM, "namespaces", 0},
	{"unshare net", SYS_unshare, {CLONE_NEWNET | CLONE_FS}, EPERM, "namespaces", 0},
	{"clone user", SYS_clone, {CLONE_NEWUSER | SIGCHLD}, EPERM, "namespaces", 0},
	{"clone mount", SYS_clone, {CLONE_NEWNS | SIGCHLD}, EPERM, "namespaces", 0},
	{"clone net", SYS_clone, {CLONE_NEWNET | SIGCHLD}, EPERM, "namespaces", 0},
	{"clone ipc", SYS_clone, {CLONE_NEWIPC | SIGCHLD}, EPERM, "namespaces", 0},
	{"clone uts", SYS_clone, {CLONE_NEWUTS | SIGCHLD}, EPERM, "namespaces", 0},
	{"clone cgroup", SYS_clone, {CLONE_NEWCGROUP | SIGCHLD}, EPERM, "namespaces", 0},
	{"clone with dirt", SYS_clone, {DIRTY(CLONE_NEWPID | SIGCHLD)}, EPERM, "namespaces", 0},
	{"clone3", SYS_clone3, {0, 0}, ENOSYS, NULL, 0},
	{"openat2", SYS_openat2, {-1, 0, 0, 0}, ENOSYS, NULL, 0},
	{"mount", SYS_mount, {0, 0, 0, 0, 0}, EPERM, "--mount", 0},
	{"umount2", SYS_umount2, {0, -1}, EPERM, "--mount", 0},
	{"pivot_root", SYS_pivot_root, {0, 0}, EPERM, "--mount", 0},
	{"open_tree", SYS_open_tree, {-1, 0, -1}, EPERM, "--mount", 0},
	{"move_mount", SYS_move_mount, {-1, 0, -1, 0, -1}, EPERM, "--mount", 0},
	{"fsopen", SYS_fsopen, {0, -1}, EPERM, "--mount", 0},
	{"fsconfig", SYS_fsconfig, {-1, -1}, EPERM, "--mount", 0},
	{"fsmount", SYS_fsmount, {-1, -1, -1}, EPERM, "--mount", 0},
	{"fspick", SYS_fspick, {-1, 0, -1}, EPERM, "--mount", 0},
	{"mount_setattr", SYS_mount_setattr, {-1, 0, -1}, EPERM, "--mount", 0},
	{"chroot", SYS_chroot, {0}, EPERM, "chroot", 0},
	{"ptrace", SYS_ptrace, {3, 0, 0, 0}, EPERM, "strace", FREE},
	{"process_vm_readv", SYS_process_vm_readv, {0, 0, 0, 0, 0}, EPERM, NULL, 0},
	{"process_vm_writev", SYS_process_vm_writev, {0, 0, 0, 0, 0}, EPERM, NULL, 0},
	{"kcmp", SYS_kcmp, {0, 0, -1}, EPERM, NULL, 0},
	{"pidfd_getfd", SYS_pidfd_getfd, {-1, -1, -1}, EPERM, NULL, 0},
	{"bpf", SYS_bpf, {-1, 0, 0}, EPERM, "BPF", 0},
	{"perf_event_open", SYS_perf_event_open, {0, 0, 0, 0}, EPERM, "counters", 0},
	{"io_uring_setup", SYS_io_uring_setup, {1, 0}, EPERM, "io_uring", 0},
	{"io_uring_enter", SYS_io_uring_enter, {-1, 0, 0, 0}, EPERM, "io_uring", 0},
	{"io_uring_register", SYS_io_uring_register, {-1, 0, 0, 0}, EPERM, "io_uring", 0},
	{"io_setup", SYS_io_setup, {0, 0}, ENOSYS, NULL, 0},
	{"add_key", SYS_add_key, {0, 0, 0, 0}, EPERM, "keyrings", 0},
	{"request_key", SYS_request_key, {0, 0, 0, 0}, EPERM, "keyrings", 0},
	{"keyctl", SYS_keyctl, {-1, 0, 0, 0}, EPERM, "keyrings", 0},
	{"userfaultfd", SYS_userfaultfd, {-1}, EPERM, "userfaultfd", 0},
	{"init_module", SYS_init_module, {0, 0, 0}, EPERM, "modules", 0},
	{"finit_module", SYS_finit_module, {-1, 0, 0}, EPERM, "modules", 0},
	{"kexec_load", SYS_kexec_load, {0, 0, 0, -1}, EPERM, "administer", 0},
	{"reboot", SYS_reboot, {0, 0, 0, 0}, EPERM, "administer", 0},
	{"swapon", SYS_swapon, {0, 0}, EPERM, "administer", 0},
	{"acct", SYS_acct, {1}, EPERM, "administer", 0},
	{"quotactl", SYS_quotactl, {-1, 0, 0, 0}, EPERM, "administer", 0},
	{"sethostname", SYS_sethostname, {0, -1}, EPERM, "administer", 0},
	{"vhangup", SYS_vhangup, {0}, EPERM, "administer", SOLO},
	{"clock_settime", SYS_clock_settime, {0, 0}, EPERM, "clock", 0},
	{"settimeofday", SYS_settimeofday, {0, 0}, EPERM, "clock", 0},
	{"adjtimex", SYS_adjtimex, {0}, EPERM, NULL, 0},
	{"syslog", SYS_syslog, {-1, 0, 0}, EPERM, NULL, 0},
	{"fanotify_init", SYS_fanotify_init, {-1, -1}, EPERM, "inotify", 0},
	{"open_by_handle_at", SYS_open_by_handle_at, {-1, 0, 0}, EPERM, NULL, 0},
	{"name_to_handle_at", SYS_name_to_handle_at, {-1, 0, 0, 0, 0}, EOPNOTSUPP, NULL, 0},
	{"move_pages of another", SYS_move_pages, {1, 0, 0, 0, 0}, EPERM, NULL, 0},
	{"vmsplice", SYS_vmsplice, {-1, 0, 0, 0}, ENOSYS, NULL, 0},
	{"memfd_secret", 447, {-1}, ENOSYS, NULL, FREE},
	{"personality", SYS_personality, {0x0020000}, EPERM, NULL, 0},
	{"no randomisation", SYS_personality, {DIRTY(0x0040000)}, EPERM, "setarch", 0},
	{"real time", SYS_sched_setscheduler, {0, SCHED_FIFO, 0}, EPERM, NULL, 0},
	{"real time, on fork",
	 SYS_sched_setscheduler,
	 {0, 0x40000000 | SCHED_RR, 0},
	 EPERM,
	 NULL,
	 0},
	{"sched_setattr", SYS_sched_setattr, {0, 0, 0}, EPERM, NULL, 0},
	{"huge pages", SYS_memfd_create, {S("x"), 4}, EINVAL, NULL, 0},
	{"all flags", SYS_memfd_create, {S("x"), 0xffffffff}, EINVAL, NULL, FREE},
	{"a call of the future", 600, {0}, ENOSYS, NULL, FREE},
	{"no call at all", -1, {0}, ENOSYS, NULL, FREE},
	/* prctl */
	{"PR_SET_MM", SYS_prctl, {35, 15, 0, 0, 0}, EPERM, NULL, 0},
	{"PR_SET_SECUREBITS", SYS_prctl, {DIRTY(28), 0, 0, 0, 0}, EPERM, NULL, 0},
	{"PR_SET_MEMORY_MERGE", SYS_prctl, {67, 1, 0, 0, 0}, EINVAL, NULL, FREE},
	{"syscall dispatch", SYS_prctl, {59, 0, 0, 0, 0}, EINVAL, NULL, 0},
	/* seccomp */
	{"a listener of its own", SYS_seccomp, {1, 8, 0}, EBUSY, NULL, 0},
	{"the same, with dirt", SYS_seccomp, {1, DIRTY(8), 0}, EBUSY, NULL, 0},
	/* ioctl: the kernel looks at 32 bits only */
	{"TIOCSTI", SYS_ioctl, {-1, TIOCSTI, 0}, EPERM, NULL, 0},
	{"TIOCSTI with dirt", SYS_ioctl, {-1, DIRTY(TIOCSTI), 0}, EPERM, NULL, 0},
	{"TIOCLINUX", SYS_ioctl, {-1, DIRTY(TIOCLINUX), 0}, EPERM, NULL, 0},
	{"TIOCSETD", SYS_ioctl, {-1, TIOCSETD, 0}, EPERM, NULL, 0},
	{"TIOCCONS", SYS_ioctl, {-1, TIOCCONS, 0}, EPERM, NULL, 0},
	{"keyboard map", SYS_ioctl, {-1, DIRTY(0x4b47), 0}, ENOTTY, NULL, 0},
	{"console switch", SYS_ioctl, {-1, 0x5606, 0}, ENOTTY, NULL, 0},
	/* signals by way of a terminal */
	{"O_ASYNC", SYS_fcntl, {-1, F_SETFL, O_NONBLOCK | O_ASYNC}, EPERM, NULL, 0},
	{"O_ASYNC with dirt", SYS_fcntl, {-1, DIRTY(F_SETFL), DIRTY(O_ASYNC)}, EPERM, NULL, 0},
	{"FIOASYNC", SYS_ioctl, {-1, DIRTY(FIOASYNC), 0}, 0, NULL, 0},
	/* set-id bits */
	{"fchmod 4755", SYS_fchmod, {-1, 04755}, EPERM, "Set-user-id", 0},
	{"fchmodat 2755",
	 SYS_fchmodat,
	 {AT_FDCWD, S(FILE_HERE), DIRTY(02755)},
	 EPERM,
	 "Set-user-id",
	 0},
	{"fchmodat2", 452, {AT_FDCWD, S(FILE_HERE), 06755, 0}, EPERM, "Set-user-id", 0},
	{"openat O_CREAT 4755",
	 SYS_openat,
	 {AT_FDCWD, S(FILE_HERE), O_CREAT, 04755},
	 EPERM,
	 "Set-user-id",
	 0},
	{"openat O_CREAT 2755",
	 SYS_openat,
	 {AT_FDCWD, S(FILE_HERE), O_CREAT, 02755},
	 EPERM,
	 "Set-user-id",
	 0},
	{"openat O_TMPFILE 4755",
	 SYS_openat,
	 {AT_FDCWD, S("/tmp"), DIRTY(O_TMPFILE | O_RDWR), 04755},
	 EPERM,
	 "Set-user-id",
	 0},
	{"mkdirat 2755", SYS_mkdirat, {AT_FDCWD, S(FILE_HERE), 02755}, EPERM, "Set-user-id", 0},
	{"mknodat 4755", SYS_mknodat, {AT_FDCWD, S(FILE_HERE), S_IFREG | 04755, 0}, EPERM, NULL, 0},
	{"a device", SYS_mknodat, {AT_FDCWD, S(FILE_HERE), S_IFCHR | 0600, 0}, EPERM, NULL, 0},
	{"a block device",
	 SYS_mknodat,
	 {AT_FDCWD, S(FILE_HERE), DIRTY(S_IFBLK | 0600), 0},
	 EPERM,
	 NULL,
	 0},
#ifdef SYS_open
	{"open O_CREAT 4755", SYS_open, {S(FILE_HERE), O_CREAT, 04755}, EPERM, "Set-user-id", 0},
	{"creat 2755", SYS_creat, {S(FILE_HERE), 02755}, EPERM, "Set-user-id", 0},
	{"chmod 4755", SYS_chmod, {S(FILE_HERE), 04755}, EPERM, "Set-user-id", 0},
	{"mkdir 2755", SYS_mkdir, {S(FILE_HERE), DIRTY(02755)}, EPERM, "Set-user-id", 0},
	{"mknod device", SYS_mknod, {S(FILE_HERE), S_IFCHR | 0600, 0}, EPERM, NULL, 0},
#endif
#ifdef __x86_64__
	{"iopl", SYS_iopl, {99}, EPERM, "ports", 0},
	{"ioperm", SYS_ioperm, {-1, 1, 1}, EPERM, "ports", 0},
	{"modify_ldt", SYS_modify_ldt, {-1, 0, 0}, EPERM, "16-bit", 0},
#endif
};

/* Level container only: level process is stricter there. */
static const struct try refused_default[] = {
	{"limits of pid 1", SYS_prlimit64, {1, 0, 0, 0}, EPERM, NULL, 0},
	{"AF_VSOCK", SYS_socket, {AF_VSOCK, SOCK_STREAM, 0}, EAFNOSUPPORT, "Only Unix", FREE},
	{"AF_ALG", SYS_socket, {38, SOCK_SEQPACKET, 0}, EAFNOSUPPORT, "Only Unix", FREE},
	{"AF_PACKET", SYS_socket, {DIRTY(AF_PACKET), SOCK_RAW, 0}, EAFNOSUPPORT, "Only Unix", FREE},
	{"AF_KEY", SYS_socket, {15, SOCK_RAW, 2}, EAFNOSUPPORT, "Only Unix", FREE},
	{"AF_RXRPC", SYS_socket, {33, SOCK_DGRAM, AF_INET}, EAFNOSUPPORT, "Only Unix", FREE},
	{"AF_TIPC", SYS_socket, {30, SOCK_RDM, 0}, EAFNOSUPPORT, "Only Unix", FREE},
	{"AF_CAN", SYS_socket, {29, SOCK_RAW, 1}, EAFNOSUPPORT, "Only Unix", FREE},
	{"AF_BLUETOOTH", SYS_socket, {31, SOCK_RAW, 1}, EAFNOSUPPORT, "Only Unix", FREE},
	{"AF_XDP", SYS_socket, {44, SOCK_RAW, 0}, EAFNOSUPPORT, "Only Unix", FREE},
	{"AF_SMC", SYS_socket, {43, SOCK_STREAM, 0}, EAFNOSUPPORT, "Only Unix", FREE},
	{"raw IPv4", SYS_socket, {AF_INET, SOCK_RAW | SOCK_CLOEXEC, 1}, EPERM, "Raw", 0},
	{"raw IPv6", SYS_socket, {AF_INET6, DIRTY(SOCK_RAW), 58}, EPERM, "Raw", 0},
	{"ICMP", SYS_socket, {AF_INET, SOCK_DGRAM, IPPROTO_ICMP}, EPROTONOSUPPORT, NULL, 0},
	{"MPTCP", SYS_socket, {AF_INET, SOCK_STREAM, 262}, EPROTONOSUPPORT, NULL, FREE},
	{"SMC by IPv4", SYS_socket, {AF_INET, SOCK_STREAM, 256}, EPROTONOSUPPORT, NULL, FREE},
	{"netlink netfilter", SYS_socket, {AF_NETLINK, SOCK_RAW, 12}, EPROTONOSUPPORT, NULL, FREE},
	{"netlink xfrm", SYS_socket, {AF_NETLINK, SOCK_RAW, DIRTY(6)}, EPROTONOSUPPORT, NULL, FREE},
	{"F_SETLEASE", SYS_fcntl, {-1, DIRTY(1024), 0}, EPERM, NULL, 0},
	{"RENAME_WHITEOUT",
	 SYS_renameat2,
	 {AT_FDCWD, (long)"/nowhere/a", AT_FDCWD, (long)"/nowhere/b", DIRTY(4)},
	 EINVAL,
	 NULL,
	 0},
	{"F_SETDELEG", SYS_fcntl, {-1, DIRTY(1040), 0}, EPERM, NULL, 0},
	{"SO_ATTACH_FILTER", SYS_setsockopt, {-1, DIRTY(1), DIRTY(26), 0, 0}, EPERM, NULL, 0},
	{"SO_LOCK_FILTER", SYS_setsockopt, {-1, 1, DIRTY(44), 0, 0}, EPERM, NULL, 0},
	{"SO_ATTACH_BPF", SYS_setsockopt, {-1, DIRTY(1), 50, 0, 0}, EPERM, NULL, 0},
	{"reuseport by cBPF", SYS_setsockopt, {-1, DIRTY(1), DIRTY(51), 0, 0}, EPERM, NULL, 0},
	{"reuseport by eBPF", SYS_setsockopt, {-1, DIRTY(1), DIRTY(52), 0, 0}, EPERM, NULL, 0},
	{"TCP_MD5SIG", SYS_setsockopt, {-1, IPPROTO_TCP, DIRTY(14), 0, 0}, ENOPROTOOPT, NULL, 0},
	{"TCP_MD5SIG_EXT", SYS_setsockopt, {-1, IPPROTO_TCP, 32, 0, 0}, ENOPROTOOPT, NULL, 0},
	{"TCP_AO_ADD_KEY", SYS_setsockopt, {-1, IPPROTO_TCP, 38, 0, 0}, ENOPROTOOPT, NULL, 0},
	{"TCP_ULP",
	 SYS_setsockopt,
	 {-1, DIRTY(IPPROTO_TCP), DIRTY(31), 0, 0},
	 ENOPROTOOPT,
	 NULL,
	 0},
};

static const struct try refused_process[] = {
	{"AF_INET", SYS_socket, {AF_INET, SOCK_STREAM, 0}, EACCES, "network", 0},
	{"AF_INET6", SYS_socket, {DIRTY(AF_INET6), SOCK_DGRAM, 0}, EACCES, "network", 0},
	{"AF_UNIX", SYS_socket, {AF_UNIX, SOCK_STREAM, 0}, EACCES, "Unix sockets", 0},
	{"AF_UNIX datagram", SYS_socket, {AF_UNIX, SOCK_DGRAM, 0}, EACCES, "Unix sockets", 0},
	{"name service",
	 SYS_socket,
	 {AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0},
	 EACCES,
	 NULL,
	 0},
	{"netlink", SYS_socket, {AF_NETLINK, SOCK_RAW, 0}, EAFNOSUPPORT, NULL, 0},
	{"AF_VSOCK", SYS_socket, {AF_VSOCK, SOCK_STREAM, 0}, EAFNOSUPPORT, "No sockets", FREE},
	{"datagram pair", SYS_socketpair, {AF_UNIX, SOCK_DGRAM, 0, 0}, EACCES, "Datagram", 0},
	{"raw pair", SYS_socketpair, {AF_UNIX, DIRTY(SOCK_RAW), 0, 0}, EACCES, "Datagram", 0},
	{"connect", SYS_connect, {-1, 0, 0}, EACCES, NULL, 0},
	{"bind", SYS_bind, {-1, 0, 0}, EACCES, NULL, 0},
	{"shmget", SYS_shmget, {1, 0, 0}, EACCES, "IPC", 0},
	{"msgget", SYS_msgget, {1, 0}, EACCES, "IPC", 0},
	{"semget", SYS_semget, {1, 0, 0}, EACCES, "IPC", 0},
	{"mq_open", SYS_mq_open, {0, 0, 0, 0}, EACCES, "IPC", 0},
	{"kill everybody", SYS_kill, {-1, 0}, EPERM, NULL, 0},
	{"kill everybody, dirty", SYS_kill, {DIRTY(-1), 0}, EPERM, NULL, 0},
	{"limits of another", SYS_prlimit64, {1, 0, 0, 0}, EPERM, NULL, 0},
	{"nice of a user", SYS_setpriority, {2, 0, 0}, EPERM, NULL, 0},
	{"affinity of another", SYS_sched_setaffinity, {1, 0, 0}, EPERM, NULL, 0},
	{"chown by name", SYS_fchownat, {AT_FDCWD, 0, 0, 0, 0}, EPERM, NULL, 0},
	{"setxattr by name", SYS_setxattr, {0, 0, 0, 0, 0}, EOPNOTSUPP, NULL, 0},
	{"project id", SYS_ioctl, {-1, 0x401c5820, 0}, EPERM, NULL, 0},
};

/* ---- what is allowed ---- */

static const struct try allowed[] = {
	{"getpid", SYS_getpid, {0}, 0, NULL, 0},
	{"openat O_CREAT 755",
	 SYS_openat,
	 {AT_FDCWD, S(FILE_HERE), O_CREAT | O_RDWR, 0755},
	 0,
	 NULL,
	 0},
	{"openat, odd mode unused", SYS_openat, {AT_FDCWD, S("/"), O_RDONLY, 07777}, 0, NULL, 0},
	{"mkdirat 1777", SYS_mkdirat, {AT_FDCWD, S(FILE_HERE), 01777}, 0, NULL, 0},
	{"fchmod 755", SYS_fchmod, {-1, 0755}, 0, NULL, 0},
	{"a pipe", SYS_mknodat, {AT_FDCWD, S(FILE_HERE), S_IFIFO | 0600, 0}, 0, NULL, 0},
	{"a file by mknod", SYS_mknodat, {AT_FDCWD, S(FILE_HERE), 0600, 0}, 0, NULL, 0},
	{"unshare files", SYS_unshare, {CLONE_FILES}, 0, NULL, 0},
	{"fork by clone", SYS_clone, {SIGCHLD, 0, 0, 0, 0}, 0, NULL, 0},
	{"PR_SET_NAME", SYS_prctl, {PR_SET_NAME, S("x"), 0, 0, 0}, 0, NULL, 0},
	{"personality?", SYS_personality, {0xffffffff}, 0, NULL, 0},
	{"SCHED_BATCH", SYS_sched_setscheduler, {0, SCHED_BATCH, 0}, EINVAL, NULL, FREE},
	{"own limits", SYS_prlimit64, {0, 0, 0, 0}, 0, NULL, 0},
	{"own priority", SYS_setpriority, {0, 0, 1}, 0, NULL, 0},
	{"memfd_create", SYS_memfd_create, {S("x"), 1}, 0, NULL, 0},
	{"signal oneself", SYS_kill, {0, 0}, 0, NULL, 0},
	{"landlock version", 444, {0, 0, 1}, 0, NULL, SOLO},
	{"seccomp action?", SYS_seccomp, {2, 0, 0}, EFAULT, NULL, FREE},
};

static const struct try allowed_default[] = {
	{"AF_UNIX", SYS_socket, {AF_UNIX, SOCK_DGRAM, 0}, 0, NULL, 0},
	{"TCP", SYS_socket, {AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0}, 0, NULL, 0},
	{"TCP by number", SYS_socket, {AF_INET, SOCK_STREAM, IPPROTO_TCP}, 0, NULL, 0},
	{"UDP", SYS_socket, {DIRTY(AF_INET), DIRTY(SOCK_DGRAM), DIRTY(IPPROTO_UDP)}, 0, NULL, 0},
	{"route netlink", SYS_socket, {AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0}, 0, NULL, 0},
	{"connect, looked at", SYS_connect, {-1, 0, 0}, EBADF, NULL, FREE},
	{"setsockopt", SYS_setsockopt, {-1, IPPROTO_TCP, 1, 0, 0}, EBADF, NULL, FREE},
	{"another's limits", SYS_prlimit64, {-2, 0, 0, 0}, ESRCH, NULL, SOLO | FREE},
};

static void test_refused(void **state)
{
	(void)state;
	check_tries(&seccomp_profile_default, refused, ARRAY_LEN(refused));
	check_tries(&seccomp_profile_default, refused_default, ARRAY_LEN(refused_default));
}

static void test_refused_process(void **state)
{
	(void)state;
	check_tries(&seccomp_profile_process, refused, ARRAY_LEN(refused));
	check_tries(&seccomp_profile_process, refused_process, ARRAY_LEN(refused_process));
}

static void test_allowed(void **state)
{
	(void)state;
	check_tries(&seccomp_profile_default, allowed, ARRAY_LEN(allowed));
	check_tries(&seccomp_profile_default, allowed_default, ARRAY_LEN(allowed_default));
	check_tries(&seccomp_profile_process, allowed, ARRAY_LEN(allowed));
}

/* ---- what programs are made of ---- */

static void *answer_thread(void *arg)
{
	return arg;
}

static void be_ordinary(const void *arg)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	int server = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
	struct ifaddrs *list;
	pthread_t t;
	void *back = NULL;

	(void)arg;
	if (pthread_create(&t, NULL, answer_thread, stage) || pthread_join(t, &back) ||
	    back != stage)
		_exit(2);
	if (bind(server, (struct sockaddr *)&a, len) || listen(server, 1) ||
	    getsockname(server, (struct sockaddr *)&a, &len) ||
	    connect(client, (struct sockaddr *)&a, len))
		_exit(3);
	if (getifaddrs(&list) || !list)
		_exit(4);
	freeifaddrs(list);
	if (system("exit 7") != 7 << 8)
		_exit(5);
	stage->done = 1;
}

static void test_ordinary(void **state)
{
	(void)state;
	assert_int_equal(run(&seccomp_profile_default, be_ordinary, NULL), 0);
	assert_int_equal(stage->done, 1);
	/* The connect was shown, without being a report. */
	assert_int_equal(stage->heard, 1);
	assert_int_equal(stage->nr[0], SYS_connect);
	assert_string_equal(stage->reason[0], "");
}

static void pair_up(const void *arg)
{
	int pair[2];
	char c = 0;

	(void)arg;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair))
		_exit(2);
	if (send(pair[0], "x", 1, 0) != 1 || recv(pair[1], &c, 1, 0) != 1 || c != 'x')
		_exit(3);
	stage->done = 1;
}

static void test_pairs(void **state)
{
	(void)state;
	assert_int_equal(run(&seccomp_profile_process, pair_up, NULL), 0);
	assert_int_equal(stage->done, 1);
	assert_int_equal(run(&seccomp_profile_default, pair_up, NULL), 0);
}

/* A further filter of the program's own is its business. */
static void warm_host(const void *arg)
{
	struct sock_filter all = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
	struct sock_fprog prog = {1, &all};

	(void)arg;
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		_exit(2);
	if (syscall(SYS_setns, -1, 0) == 0 || errno != EPERM)
		_exit(3);
	stage->done = 1;
}

/* Ours is loaded without a listener here: then the kernel would let a second one in. */
static void warm_host_listener(const void *arg)
{
	struct sock_filter all = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_USER_NOTIF};
	struct sock_fprog prog = {1, &all};
	struct err e;

	(void)arg;
	if (seccomp_load(&seccomp_profile_default, NULL, &e) < 0)
		_exit(2);
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
		    &prog) >= 0)
		_exit(3);
	stage->errnum = errno;
	/* Nobody hears the report: refused all the same. */
	if (syscall(SYS_unshare, CLONE_NEWUSER) == 0 || errno != ENOSYS)
		_exit(4);
	stage->done = 1;
}

static void test_nested(void **state)
{
	(void)state;
	assert_int_equal(run(&seccomp_profile_default, warm_host, NULL), 0);
	assert_int_equal(stage->done, 1);
	assert_int_equal(run(NULL, warm_host_listener, NULL), 0);
	assert_int_equal(stage->done, 1);
	assert_int_equal(stage->errnum, EBUSY);
}

static void load_twice(const void *arg)
{
	struct err e = {0};
	int fd = -1;

	(void)arg;
	if (seccomp_load(&seccomp_profile_default, &fd, &e) == 0 || fd != -1)
		_exit(2);
	stage->errnum = (int)e.kind;
}

static void test_second_listener(void **state)
{
	(void)state;
	assert_int_equal(run(&seccomp_profile_default, load_twice, NULL), 0);
	assert_int_equal(stage->errnum, ERR_UNSUPPORTED);
}

/* ---- foreign ABIs ---- */

static void call_x32(const void *arg)
{
	(void)arg;
	syscall(0x40000000 | 39);
	stage->done = 1;
}

static void call_x32_own(const void *arg)
{
	(void)arg;
	syscall(0x40000000 | 520, "/bin/true", NULL, NULL); /* x32's execve */
	stage->done = 1;
}

#ifdef __x86_64__
static void call_i386(const void *arg)
{
	long nr = 20; /* i386's getpid */

	(void)arg;
	__asm__ volatile("int $0x80" : "+a"(nr) : : "memory");
	stage->done = 1;
}
#endif

static void test_foreign(void **state)
{
	static void (*const calls[])(const void *) = {
		call_x32,
		call_x32_own,
#ifdef __x86_64__
		call_i386,
#endif
	};

	(void)state;
#ifndef __x86_64__
	skip();
#endif
	for (unsigned i = 0; i < ARRAY_LEN(calls); i++) {
		assert_int_equal(run(&seccomp_profile_default, calls[i], NULL), 128 + SIGSYS);
		assert_int_equal(stage->done, 0);
		assert_int_equal(run(&seccomp_profile_process, calls[i], NULL), 128 + SIGSYS);
	}
	run(NULL, call_x32, NULL);
	assert_int_equal(stage->done, 1);
}

/* ---- tables ---- */

static void check_reports(const struct seccomp_profile *p)
{
	assert_int_equal(strlen(p->digest), strlen("sha256:") + 64);
	for (unsigned i = 0; i < p->report_count; i++) {
		const struct seccomp_report *r = &p->reports[i];

		assert_true(r->errnum > 0 && r->rule > 0);
		assert_true(strlen(r->reason) > 20 && strlen(r->reason) < 250);
		assert_true(r->nr != SYS_getpid && r->nr != SYS_setns);
	}
}

static void test_reports(void **state)
{
	struct seccomp_data d = {.nr = SYS_socket, .arch = AUDIT_ARCH_X86_64};
	const struct seccomp_profile *p = &seccomp_profile_default;

	(void)state;
#ifdef __aarch64__
	d.arch = AUDIT_ARCH_AARCH64;
#endif
	check_reports(&seccomp_profile_default);
	check_reports(&seccomp_profile_process);
	assert_string_not_equal(seccomp_profile_default.digest, seccomp_profile_process.digest);
	d.args[0] = AF_VSOCK;
	assert_int_equal(seccomp_report_match(p, &d)->errnum, EAFNOSUPPORT);
	d.args[0] = AF_INET;
	d.args[1] = SOCK_RAW;
	assert_int_equal(seccomp_report_match(p, &d)->errnum, EPERM);
	d.args[1] = SOCK_STREAM;
	assert_null(seccomp_report_match(p, &d));
	d.nr = SYS_connect;
	assert_null(seccomp_report_match(p, &d));
	d.nr = SYS_mount;
	assert_string_equal(seccomp_report_match(p, &d)->name, "mount");
}

/* Programs that it cannot follow must not look like an allow. */
static void test_cbpf(void **state)
{
	static const struct sock_filter runs_out[] = {{BPF_LD | BPF_W | BPF_ABS, 0, 0, 0}};
	static const struct sock_filter far[] = {{BPF_JMP | BPF_JA, 0, 0, UINT32_MAX},
						 {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
	static const struct sock_filter outside[] = {{BPF_LD | BPF_W | BPF_ABS, 0, 0, 64},
						     {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
	static const struct sock_filter unknown[] = {{BPF_MISC | BPF_TAX, 0, 0, 0},
						     {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
	static const struct sock_filter greater[] = {{BPF_LD | BPF_W | BPF_ABS, 0, 0, 0},
						     {BPF_JMP | BPF_JGT | BPF_K, 0, 1, 7},
						     {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
						     {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_TRAP}};
	struct seccomp_data d = {.nr = 7};

	(void)state;
	assert_int_equal(cbpf_run(runs_out, 1, &d), SECCOMP_RET_KILL_PROCESS);
	assert_int_equal(cbpf_run(far, 2, &d), SECCOMP_RET_KILL_PROCESS);
	assert_int_equal(cbpf_run(outside, 2, &d), SECCOMP_RET_KILL_PROCESS);
	assert_int_equal(cbpf_run(unknown, 2, &d), SECCOMP_RET_KILL_PROCESS);
	assert_int_equal(cbpf_run(greater, 4, &d), SECCOMP_RET_TRAP);
	d.nr = 8;
	assert_int_equal(cbpf_run(greater, 4, &d), SECCOMP_RET_ALLOW);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused), cmocka_unit_test(test_refused_process),
		cmocka_unit_test(test_allowed), cmocka_unit_test(test_ordinary),
		cmocka_unit_test(test_pairs),	cmocka_unit_test(test_nested),
		cmocka_unit_test(test_foreign), cmocka_unit_test(test_second_listener),
		cmocka_unit_test(test_reports), cmocka_unit_test(test_cbpf),
	};

	char dir[] = "/tmp/cloche-seccomp-XXXXXX";
	int rc;

	stage = mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (stage == MAP_FAILED || !mkdtemp(dir) || chdir(dir) < 0)
		return 1;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	rmdir(dir);
	return rc;
}
