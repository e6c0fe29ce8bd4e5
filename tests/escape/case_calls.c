/*
 * System calls that code in a sandbox has no business with, a row each. The arguments are such that
 * the call does nothing, or nothing that outlives the case, when it is not refused: "reached" lists
 * the errors that the kernel gives only after it has let the caller in.
 */
#include "probe.h"

#include "base/auto.h"
#include "numbers.h"

#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

struct call {
	long nr;
	unsigned long args[6];
	const int *refuse, *reached;
};

#define PTR(x) ((unsigned long)(x))
#define AT_CWD ((unsigned long)AT_FDCWD)
#define NOT_A_FILE "/cloche/does/not/exist"

static const int no_perm[] = {EPERM, 0};
static const int no_perm_or_call[] = {EPERM, ENOSYS, 0};
static const int no_call[] = {ENOSYS, 0};
static const int none[] = {0};
static const int reached_args[] = {EINVAL,  EFAULT,	EBADF,	ENOENT,	 ENOTDIR,
				   ENOEXEC, EBUSY,	ENODEV, ENOTBLK, E2BIG,
				   ENXIO,   EOPNOTSUPP, ENOTTY, ESRCH,	 0};

static void one_call(struct probe *p)
{
	const struct call *c = p->c->arg;
	long rc = syscall(c->nr, c->args[0], c->args[1], c->args[2], c->args[3], c->args[4],
			  c->args[5]);
	int err = errno;

	if (rc >= 0)
		got_through(p, "the call succeeded");
	else if (among(err, c->refuse))
		refused(p, "%s", errno_name(err));
	else if (among(err, c->reached))
		got_through(p, "the kernel let it in and only then found %s", errno_name(err));
	else
		cannot_tell(p, "unexpected %s", errno_name(err));
}

/* Tables for arguments, zeroed where the contents do not matter. */
static char zeros[4096];
static const struct perf_event_attr perf_attr = {
	.type = PERF_TYPE_SOFTWARE,
	.size = sizeof(struct perf_event_attr),
	.config = PERF_COUNT_SW_DUMMY,
	.exclude_kernel = 1,
};
static const union bpf_attr bpf_map = {
	{.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1},
};
static unsigned char uring_params[120];
static const unsigned long long clone_args[11] = {0, 0, 0, 0, 17 /* SIGCHLD */};

#define CALL(id, n, refuse_, reached_, ...)                                                        \
	static const struct call id = {n, {__VA_ARGS__}, refuse_, reached_}

CALL(c_perf, SYS_perf_event_open, no_perm, none, PTR(&perf_attr), 0, -1ul, -1ul, 0);
CALL(c_userfaultfd, SYS_userfaultfd, no_perm, none, 0);
CALL(c_userfaultfd_user, SYS_userfaultfd, no_perm, none, 1);
CALL(c_bpf_map, SYS_bpf, no_perm, none, BPF_MAP_CREATE, PTR(&bpf_map), sizeof(bpf_map));
CALL(c_bpf_size, SYS_bpf, no_perm, reached_args, BPF_MAP_CREATE, PTR(&bpf_map), 1ul << 31);
CALL(c_kexec, SYS_kexec_load, no_perm, reached_args, 0, 1000, 0, 0);
CALL(c_kexec_file, SYS_kexec_file_load, no_perm, reached_args, -1ul, -1ul, 0, 0, 0x80);
CALL(c_init_module, SYS_init_module, no_perm, reached_args, PTR(zeros), 0, PTR(""));
CALL(c_finit_module, SYS_finit_module, no_perm, reached_args, -1ul, PTR(""), 0);
CALL(c_delete_module, SYS_delete_module, no_perm, reached_args, PTR("cloche_no_such"), O_NONBLOCK);
CALL(c_open_tree, SYS_open_tree, no_perm, reached_args, AT_CWD, PTR("/"), 0);
CALL(c_open_tree_clone, SYS_open_tree, no_perm, reached_args, AT_CWD, PTR("/"), 1);
CALL(c_open_tree_attr, SYS_open_tree_attr, no_perm_or_call, reached_args, AT_CWD, PTR("/"), 1, 0,
     0);
CALL(c_move_mount, SYS_move_mount, no_perm, reached_args, -1ul, PTR(""), -1ul, PTR(""), 0);
CALL(c_fsopen, SYS_fsopen, no_perm, reached_args, PTR("tmpfs"), 0);
CALL(c_fsconfig, SYS_fsconfig, no_perm, reached_args, -1ul, 0, 0, 0, 0);
CALL(c_fsmount, SYS_fsmount, no_perm, reached_args, -1ul, 0, 0);
CALL(c_fspick, SYS_fspick, no_perm, reached_args, AT_CWD, PTR("/"), 0);
CALL(c_mount_setattr, SYS_mount_setattr, no_perm, reached_args, AT_CWD, PTR(NOT_A_FILE), 0,
     PTR(zeros), 32);
CALL(c_mount, SYS_mount, no_perm, reached_args, PTR("none"), PTR(NOT_A_FILE), PTR("tmpfs"), 0, 0);
CALL(c_umount, SYS_umount2, no_perm, reached_args, PTR(NOT_A_FILE), 0);
CALL(c_pivot_root, SYS_pivot_root, no_perm, reached_args, PTR("."), PTR("."));
CALL(c_chroot, SYS_chroot, no_perm, reached_args, PTR("/"));
CALL(c_statmount, SYS_statmount, no_perm_or_call, reached_args, 0, 0, 0, 0);
CALL(c_listmount, SYS_listmount, no_perm_or_call, reached_args, 0, 0, 0, 0);
CALL(c_io_uring_setup, SYS_io_uring_setup, no_perm, none, 1, PTR(uring_params));
CALL(c_io_uring_enter, SYS_io_uring_enter, no_perm, reached_args, -1ul, 0, 0, 0, 0, 0);
CALL(c_io_uring_register, SYS_io_uring_register, no_perm, reached_args, -1ul, 0, 0, 0);
CALL(c_add_key, SYS_add_key, no_perm, none, PTR("user"), PTR("cloche-probe"), PTR("x"), 1,
     -2ul /* the process keyring */);
CALL(c_request_key, SYS_request_key, no_perm, ((const int[]){ENOKEY, 0}), PTR("user"),
     PTR("cloche-probe"), 0, 0);
CALL(c_keyctl_id, SYS_keyctl, no_perm, ((const int[]){ENOKEY, 0}), 0, -3ul /* session */, 0);
CALL(c_keyctl_read, SYS_keyctl, no_perm, ((const int[]){ENOKEY, EACCES, 0}), 11, -3ul, PTR(zeros),
     64);
CALL(c_keyctl_join, SYS_keyctl, no_perm, none, 1, 0);
CALL(c_clone3, SYS_clone3, no_call, reached_args, PTR(clone_args), 1);
CALL(c_clone3_lying, SYS_clone3, no_call, reached_args, PTR(clone_args), 1ul << 40);
CALL(c_swapon, SYS_swapon, no_perm, reached_args, PTR(NOT_A_FILE), 0);
CALL(c_swapoff, SYS_swapoff, no_perm, reached_args, PTR(NOT_A_FILE));
CALL(c_reboot, SYS_reboot, no_perm, reached_args, 0, 0, 0, 0);
CALL(c_acct, SYS_acct, no_perm, reached_args, PTR(NOT_A_FILE));
CALL(c_quotactl, SYS_quotactl, no_perm, reached_args, 0x80000400 /* Q_GETFMT */, PTR(NOT_A_FILE), 0,
     0);
CALL(c_quotactl_fd, SYS_quotactl_fd, no_perm_or_call, reached_args, -1ul, 0x80000400, 0, 0);
CALL(c_syslog_read, SYS_syslog, no_perm, none, 3, PTR(zeros), 16);
CALL(c_syslog_size, SYS_syslog, no_perm, none, 10, 0, 0);
CALL(c_fanotify, SYS_fanotify_init, no_perm, reached_args, 0, 0);
CALL(c_migrate_pages, SYS_migrate_pages, no_perm, reached_args, 0, 64, PTR(zeros), PTR(zeros));
CALL(c_personality, SYS_personality, no_perm, none, 0x0400000 /* READ_IMPLIES_EXEC */);
CALL(c_set_mm, SYS_prctl, no_perm, reached_args, PR_SET_MM, 1, 0, 0, 0);
CALL(c_ambient, SYS_prctl, no_perm, none, 47, 2, 21 /* CAP_SYS_ADMIN */, 0, 0);
CALL(c_securebits, SYS_prctl, no_perm, none, PR_SET_SECUREBITS, 0, 0, 0, 0);
CALL(c_madvise_other, SYS_process_madvise, no_perm_or_call, reached_args, -1ul, 0, 0, 4, 0);
CALL(c_mrelease, SYS_process_mrelease, no_perm_or_call, reached_args, -1ul, 0);
CALL(c_memfd_secret, SYS_memfd_secret, no_perm_or_call, none, 0);
#ifdef __x86_64__
CALL(c_iopl, SYS_iopl, no_perm, none, 3);
CALL(c_ioperm, SYS_ioperm, no_perm, none, 0x80, 1, 1);
CALL(c_modify_ldt, SYS_modify_ldt, no_perm_or_call, reached_args, 1, PTR(zeros), 16);
#endif

static void set_namespace(struct probe *p)
{
	static const char *const names[] = {"net", "mnt", "user", "uts", "ipc", "pid", "cgroup"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		auto_close int fd =
			open(fmt_path("/proc/self/ns/%s", names[i]), O_RDONLY | O_CLOEXEC);

		errno = 0;
		/* One's own user namespace is EINVAL once the call is let in. */
		if (syscall(SYS_setns, fd, 0) == 0 || errno == EINVAL || errno == EBADF)
			got_through(p, "setns(%s) was let in", names[i]);
		else
			judge(p, "setns", -1, ERRS(EPERM));
	}
}

static const struct {
	unsigned long flag;
	const char *name;
} namespaces[] = {
	{CLONE_NEWUSER, "user"}, {CLONE_NEWNS, "mount"}, {CLONE_NEWPID, "pid"},
	{CLONE_NEWNET, "net"},	 {CLONE_NEWIPC, "ipc"},	 {CLONE_NEWUTS, "uts"},
	{0x02000000, "cgroup"},	 {0x00000080, "time"},
};

static void unshare_each(struct probe *p)
{
	for (size_t i = 0; i < ARRAY_LEN(namespaces); i++)
		judge(p, fmt_path("unshare(%s)", namespaces[i].name),
		      syscall(SYS_unshare, namespaces[i].flag), ERRS(EPERM));
	judge(p, "unshare(user, mount, net)",
	      syscall(SYS_unshare, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET), ERRS(EPERM));
}

/* Flags with bits above 32 set: the kernel drops them, a filter may not see through. */
static void clone_each(struct probe *p)
{
	for (size_t i = 0; i < ARRAY_LEN(namespaces) * 2; i++) {
		unsigned long flag = namespaces[i / 2].flag;
		long pid;

		if (flag == 0x80) /* is part of the exit signal here */
			continue;
		flag |= SIGCHLD | (i % 2 ? 1ul << 33 : 0);
		pid = syscall(SYS_clone, flag, 0, 0, 0, 0);
		if (pid == 0)
			_exit(0);
		judge(p, fmt_path("clone(%s)", namespaces[i / 2].name), pid, ERRS(EPERM));
		if (pid > 0)
			waitpid((pid_t)pid, NULL, 0);
	}
}

/* All the way: power in a user namespace of our own, and what it is good for. */
static void nested_userns(struct probe *p)
{
	if (unshare(CLONE_NEWUSER) < 0) {
		judge(p, "unshare(user)", -1, ERRS(EPERM));
		return;
	}
	got_through(p, "made a user namespace");
	if (unshare(CLONE_NEWNS) == 0 && mount("none", "/tmp", "tmpfs", 0, NULL) == 0)
		got_through(p, "made a user namespace and mounted a file system in it");
}

static void real_mount(struct probe *p)
{
	static const char *const types[] = {"tmpfs",   "proc",	 "sysfs",  "overlay", "cgroup",
					    "cgroup2", "devpts", "mqueue", "bpf",     "debugfs"};
	const char *dir = scratch_dir(p);

	if (!dir)
		return;
	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		judge(p, types[i], mount("none", dir, types[i], 0, NULL), ERRS(EPERM));
	judge(p, "bind", mount("/", dir, NULL, MS_BIND | MS_REC, NULL), ERRS(EPERM));
	for (size_t i = 0; i <= ARRAY_LEN(types) && umount2(dir, MNT_DETACH) == 0; i++)
		;
	rmdir(dir);
}

static void host_name(struct probe *p)
{
	struct utsname u;

	uname(&u);
	judge(p, "sethostname", sethostname(u.nodename, strlen(u.nodename)), ERRS(EPERM));
	judge(p, "setdomainname", setdomainname(u.domainname, strlen(u.domainname)), ERRS(EPERM));
}

/* Puts back what is there: a clock that lets itself be set is bad enough. */
static void set_clock(struct probe *p)
{
	struct timex t = {.modes = 0};

	if (adjtimex(&t) < 0) {
		judge(p, "adjtimex", -1, ERRS(EPERM));
		return;
	}
	t.modes = ADJ_STATUS;
	judge(p, "adjtimex", adjtimex(&t), ERRS(EPERM));
}

#define ROW(name, title, layers, arg)                                                              \
	{                                                                                          \
		name, 21, title, SAFE, layers, 0, one_call, arg                                    \
	}
/* A user namespace of one's own has this power, too, so that the control works without root. */
#define NS_ROW(name, title, layers, arg)                                                           \
	{                                                                                          \
		name, 21, title, SAFE | CONTROL_NS, layers, 0, one_call, arg                       \
	}
#define S L(SECCOMP)
#define SC (L(SECCOMP) | L(CAPS))

static const struct probe_case cases[] = {
	ROW("perf", "perf_event_open", S, &c_perf),
	ROW("userfaultfd", "userfaultfd", S, &c_userfaultfd),
	ROW("userfaultfd-user", "userfaultfd, user mode only", S, &c_userfaultfd_user),
	ROW("bpf-map", "bpf: make a map", S, &c_bpf_map),
	ROW("bpf-size", "bpf with a size that lies", S, &c_bpf_size),
	ROW("kexec", "kexec_load", SC, &c_kexec),
	ROW("kexec-file", "kexec_file_load", SC, &c_kexec_file),
	ROW("init-module", "init_module", SC, &c_init_module),
	ROW("finit-module", "finit_module", SC, &c_finit_module),
	ROW("delete-module", "delete_module", SC, &c_delete_module),
	ROW("open-tree", "open_tree", S, &c_open_tree),
	NS_ROW("open-tree-clone", "open_tree, cloning", SC, &c_open_tree_clone),
	NS_ROW("open-tree-attr", "open_tree_attr", SC, &c_open_tree_attr),
	NS_ROW("move-mount", "move_mount", SC, &c_move_mount),
	NS_ROW("fsopen", "fsopen", SC, &c_fsopen),
	ROW("fsconfig", "fsconfig", S, &c_fsconfig),
	NS_ROW("fsmount", "fsmount", SC, &c_fsmount),
	NS_ROW("fspick", "fspick", SC, &c_fspick),
	NS_ROW("mount-setattr", "mount_setattr", SC, &c_mount_setattr),
	NS_ROW("mount", "mount", SC, &c_mount),
	NS_ROW("umount", "umount2", SC, &c_umount),
	NS_ROW("pivot-root", "pivot_root", SC, &c_pivot_root),
	NS_ROW("chroot", "chroot", SC, &c_chroot),
	ROW("statmount", "statmount", S, &c_statmount),
	ROW("listmount", "listmount", S, &c_listmount),
	{"io-uring-setup", 24, "io_uring_setup", SAFE, S, 0, one_call, &c_io_uring_setup},
	{"io-uring-enter", 24, "io_uring_enter", SAFE, S, 0, one_call, &c_io_uring_enter},
	{"io-uring-register", 24, "io_uring_register", SAFE, S, 0, one_call, &c_io_uring_register},
	{"add-key", 26, "add a key", SAFE, S, 0, one_call, &c_add_key},
	{"request-key", 26, "ask for a key", SAFE, S, 0, one_call, &c_request_key},
	{"keyring-id", 26, "find the session keyring", SAFE, S, 0, one_call, &c_keyctl_id},
	{"keyring-read", 26, "read the session keyring", SAFE, S, 0, one_call, &c_keyctl_read},
	{"keyring-join", 26, "join a session keyring", SAFE, S, 0, one_call, &c_keyctl_join},
	ROW("clone3", "clone3, whose flags a filter cannot see", S, &c_clone3),
	ROW("clone3-lying", "clone3 with a size that lies", S, &c_clone3_lying),
	ROW("swapon", "swapon", SC, &c_swapon),
	ROW("swapoff", "swapoff", SC, &c_swapoff),
	ROW("reboot", "reboot, with a wrong magic number", SC, &c_reboot),
	ROW("acct", "acct", SC, &c_acct),
	ROW("quotactl", "quotactl", S, &c_quotactl),
	ROW("quotactl-fd", "quotactl_fd", S, &c_quotactl_fd),
	{"dmesg", 36, "read the kernel's log", SAFE, SC, 0, one_call, &c_syslog_read},
	{"dmesg-size", 36, "ask for the size of the kernel's log", SAFE, S, 0, one_call,
	 &c_syslog_size},
	ROW("fanotify", "fanotify_init", SC, &c_fanotify),
	ROW("migrate-pages", "migrate_pages", S, &c_migrate_pages),
	ROW("personality", "personality: everything readable is executable", S, &c_personality),
	ROW("prctl-set-mm", "prctl: rewrite the memory map", SC, &c_set_mm),
	ROW("prctl-ambient", "prctl: raise an ambient capability", SC, &c_ambient),
	NS_ROW("prctl-securebits", "prctl: set the secure bits", SC, &c_securebits),
	ROW("process-madvise", "process_madvise", S, &c_madvise_other),
	ROW("process-mrelease", "process_mrelease", S, &c_mrelease),
	ROW("memfd-secret", "memfd_secret: memory that the kernel itself cannot see", S,
	    &c_memfd_secret),
#ifdef __x86_64__
	ROW("iopl", "iopl", SC, &c_iopl),
	ROW("ioperm", "ioperm", SC, &c_ioperm),
	ROW("modify-ldt", "modify_ldt", S, &c_modify_ldt),
#endif
	{"setns", 21, "setns to each kind of namespace", SAFE, SC, 0, set_namespace, 0},
	{"unshare", 21, "unshare each kind of namespace", SAFE, S, 0, unshare_each, 0},
	{"clone-namespaces", 21, "clone into each kind of namespace", SAFE, S, 0, clone_each, 0},
	{"nested-userns", 29, "power in a nested user namespace", SAFE | CONTROL_NS, S, 0,
	 nested_userns, 0},
	{"mount-types", 29, "mount each kind of file system", SAFE | CONTROL_NS, SC, 0, real_mount,
	 0},
	{"set-hostname", 21, "set the host name", SAFE | CONTROL_NS, SC, 0, host_name, 0},
	{"set-clock", 21, "set the clock", SAFE, SC, 0, set_clock, 0},
};
const struct case_group group_calls = {cases, ARRAY_LEN(cases)};
