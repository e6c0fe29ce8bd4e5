#include "sandbox/boot.h"

#include "base/auto.h"
#include "kern/caps.h"
#include "kern/seccomp.h"
#include "kern/sys.h"
#include "sandbox/keeper.h"
#include "sandbox/maker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define PATIENCE_MS 10000

/* ---- finding it again ---- */

static int read_start_time(pid_t pid, uint64_t *ret, struct err *e)
{
	char path[64], text[1024];
	const char *at;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);

	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return err_sys(e, "cannot read %s", path);
	text[n] = '\0';
	/* After the last ')' of the name, the third field follows; wanted is the 22nd. */
	at = strrchr(text, ')');
	for (int field = 2; at && field < 22; field++) {
		at = strchr(at, ' ');
		at = at ? at + 1 : NULL;
	}
	if (!at)
		return err_set(e, ERR_SYSTEM, "cannot read %s", path);
	*ret = strtoull(at, NULL, 10);
	return 0;
}

static int read_inode(pid_t pid, const char *name, ino_t *ret, struct err *e)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, name);
	if (stat(path, &st) < 0)
		return err_sys(e, "cannot look at %s", path);
	*ret = st.st_ino;
	return 0;
}

int boot_identify(pid_t pid, struct boot_identity *ret, struct err *e)
{
	if (read_start_time(pid, &ret->start_time, e) < 0 ||
	    read_inode(pid, "pid", &ret->pid_ns, e) < 0)
		return -1;
	return read_inode(pid, "mnt", &ret->mount_ns, e);
}

/* ---- booting ---- */

/* pid 1 lets go of its end of the socket when it executes the guest, or dies. */
static int await_exec(struct keeper *k, struct err *e)
{
	const struct board *b = k->plan.board;
	struct pollfd poll_control = {k->control, 0, 0};
	int n;

	do
		n = poll(&poll_control, 1, PATIENCE_MS);
	while (n < 0 && errno == EINTR);
	if (n == 0)
		return err_set(e, ERR_SYSTEM, "the sandbox does not get ready");
	if (b->err.kind != ERR_NONE) {
		*e = b->err;
		return -1;
	}
	if (b->exec_errno) {
		errno = b->exec_errno;
		return err_sys(e, "cannot execute the guest");
	}
	return b->stage == STAGE_RUNNING
		       ? 0
		       : err_set(e, ERR_SYSTEM, "the sandbox died while it was built");
}

static void describe(struct keeper *k, struct booted *ret)
{
	const struct seccomp_profile *profile = &seccomp_profile_default;
	const struct board *b = k->plan.board;

	ret->pid = k->pid;
	ret->proven = b->proven;
	ret->missing = ~b->proven & (LAYER_BIT(LAYER_COUNT) - 1);
	ret->landlock_abi = b->proven & LAYER_BIT(LAYER_LANDLOCK) ? b->landlock_abi : 0;
	ret->listening = b->listening;
	ret->rootless = k->plan.rootless;
	if (b->proven & LAYER_BIT(LAYER_SECCOMP))
		snprintf(ret->seccomp, sizeof(ret->seccomp), "%s@%s", profile->name,
			 profile->digest);
	if (b->workspace_unmapped)
		snprintf(ret->note, sizeof(ret->note),
			 "A volume's file system cannot map ids: files that only their owner may "
			 "read cannot be read inside.");
	ret->pidfd = take_fd(&k->pidfd);
	ret->cgroup = k->cgroup;
	for (int i = 0; i < CGROUP_CONTROLLERS; i++)
		k->cgroup.dirs[i] = k->cgroup.parents[i] = -1;
	k->cgroup.version = 0;
}

static int boot(struct keeper *k, struct booted *ret, struct err *e)
{
	struct inside_fds fds = {.control = -1,
				 .keeper_control = -1,
				 .in = -1,
				 .out = -1,
				 .err = -1,
				 .terminal = -1,
				 .scratch = -1,
				 .dns = -1};
	int rc;

	if (maker_start(k, &fds, e) < 0)
		return -1;
	rc = maker_send(k, e);
	maker_release(k);
	/* If it went away while we were sending, it knows better why. */
	if (rc < 0 && k->plan.board->err.kind != ERR_NONE)
		*e = k->plan.board->err;
	if (rc == 0 && await_exec(k, e) == 0 && boot_identify(k->pid, &ret->identity, e) == 0) {
		describe(k, ret);
		return 0;
	}
	sys_pidfd_send_signal(k->pidfd, SIGKILL);
	waitpid(k->pid, NULL, __WALL);
	return -1;
}

int boot_sandbox(const struct boot_request *r, struct booted *ret, struct err *e)
{
	const struct guest_start guest = {r->guest, r->listener, !r->dies_with_caller};
	struct keeper k = {.plan.guest = &guest,
			   .pidfd = -1,
			   .control = -1,
			   .signals = -1,
			   .scratch = -1,
			   .net = NET_MAKER_NONE};
	struct board *board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int rc = -1;

	if (board == MAP_FAILED)
		return err_sys(e, "cannot map memory");
	*ret = (struct booted){.pidfd = -1};
	cgroup_init_named(&k.cgroup, r->cgroup_name);
	/* First, because it takes longest; as an ordinary user only pid 1 can make it. */
	if ((!caps_can_administer() || net_start(&k.net, e) == 0) &&
	    plan_make_boot(&k.plan, r, board, e) == 0)
		rc = boot(&k, ret, e);
	maker_release(&k);
	cgroup_remove(&k.cgroup);
	close_fd(&k.control);
	close_fd(&k.pidfd);
	plan_done(&k.plan);
	munmap(board, sizeof(*board));
	return rc;
}
