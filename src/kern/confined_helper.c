/* Starts a guest process that handles foreign files, confined to those files. */
#include "kern/confined_helper.h"

#include "kern/caps.h"
#include "kern/landlock.h"
#include "kern/mount.h"
#include "kern/seccomp.h"
#include "kern/sys.h"
#include "kern/userns.h"

#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define MEMORY (512u << 20)

/* Keeps the capabilities over files of its own namespace that it needs, and drops all others. */
static int keep_file_rights(const struct confined_helper *t)
{
	const unsigned reads = 1u << CAP_DAC_READ_SEARCH | 1u << CAP_DAC_OVERRIDE;
	const unsigned bits = reads | (t->writes ? 1u << CAP_CHOWN | 1u << CAP_FOWNER : 0);
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{bits, bits, 0}, {0, 0, 0}};

	for (int cap = 0; cap < 64; cap++)
		if ((cap >= 32 || !(bits & 1u << cap)) &&
		    prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 && errno != EINVAL)
			return -1;
	return (int)syscall(SYS_capset, &header, data);
}

static int restrict_paths(const struct confined_helper *t)
{
	struct landlock l;
	struct err e;

	if (landlock_abi() < 1)
		return 0;
	if (landlock_open(&l, true, &e) < 0 ||
	    landlock_allow(&l, AT_FDCWD, "/", t->writes ? LANDLOCK_UNPACK : LANDLOCK_READ, &e) < 0)
		return -1;
	return landlock_apply(&l, &e);
}

static int attach_streams(const struct confined_helper *t, int program)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int in = fcntl(t->in < 0 ? null : t->in, F_DUPFD_CLOEXEC, 64);
	int out = fcntl(t->out < 0 ? null : t->out, F_DUPFD_CLOEXEC, 64);
	int err = fcntl(t->err > 0 ? t->err : null, F_DUPFD_CLOEXEC, 64);

	/* The program's fd is closed by the exec. */
	if (null < 0 || in < 0 || out < 0 || err < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 ||
	    dup2(err, 2) < 0 || dup3(program, 3, O_CLOEXEC) < 0)
		return -1;
	return sys_close_range(4, ~0u, 0);
}

static void run_helper(const struct confined_helper *t, uid_t uid, gid_t gid, int go)
{
	struct rlimit memory = {MEMORY, MEMORY}, core = {0, 0};
	char *argv[] = {"cloche-guest", (char *)t->verb, NULL}, *env[] = {NULL};
	int program = fcntl(t->guest, F_DUPFD_CLOEXEC, 64);
	struct err e;
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	/* The parent maps the ids first. */
	if (read(go, &byte, 1) != 1)
		_exit(125);
	if (t->rootless && userns_map_self(0, uid, 0, gid, &e) < 0)
		_exit(125);
	if (!t->rootless &&
	    (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0))
		_exit(125);
	/* Everything that is needed of the old root is opened before chroot. */
	if (program < 0 || fchdir(t->root) < 0 || attach_streams(t, program) < 0 || chroot(".") < 0)
		_exit(125);
	if (setrlimit(RLIMIT_AS, &memory) < 0 || setrlimit(RLIMIT_CORE, &core) < 0 ||
	    keep_file_rights(t) < 0)
		_exit(125);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || restrict_paths(t) < 0 ||
	    seccomp_load(t->writes ? &seccomp_profile_unpack : &seccomp_profile_default, NULL, &e) <
		    0)
		_exit(125);
	syscall(SYS_execveat, 3, "", argv, env, AT_EMPTY_PATH);
	_exit(126);
}

pid_t confined_helper_start(const struct confined_helper *t, struct err *e)
{
	struct clone_args args = {.flags = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS |
					   CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS,
				  .exit_signal = SIGCHLD};
	struct id_map ids;
	/* Read here, because the new namespace has no mapping for them yet. */
	uid_t uid = geteuid();
	gid_t gid = getegid();
	int go[2], userns = 0;
	pid_t pid;

	if (pipe2(go, O_CLOEXEC) < 0)
		return err_sys(e, "cannot create a pipe");
	pid = sys_clone3(&args);
	if (pid == 0) {
		close(go[1]);
		run_helper(t, uid, gid, go[0]);
	}
	close(go[0]);
	if (pid < 0) {
		close(go[1]);
		return err_sys(e, "cannot create a process");
	}
	if (!t->rootless) {
		id_map_range(&ids, t->id_base);
		userns = userns_adopt(pid, &ids, &ids, e);
		if (userns >= 0 && t->mapped && mount_idmap(t->root, userns) < 0) {
			err_sys(e, "the file system of the images cannot map ids");
			close_fd(&userns);
		}
		if (userns >= 0)
			close(userns);
	}
	/* Without the byte the child ends by itself. */
	if (userns >= 0)
		(void)!write(go[1], "g", 1);
	close(go[1]);
	if (userns >= 0)
		return pid;
	waitpid(pid, NULL, 0);
	return -1;
}
