/* A lane, and the pid 1 of each warm sandbox that the lane makes. warm.h has the overview. */
#include "warm/warm_internal.h"

#include "kern/caps.h"
#include "kern/mount.h"
#include "kern/sys.h"
#include "kern/userns.h"
#include "sandbox/inside/message.h"
#include "sandbox/inside/net.h"
#include "sandbox/inside/privileges.h"
#include "sandbox/inside/procfs.h"
#include "sandbox/inside/skeleton.h"
#include "sandbox/inside/watch.h"

#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define WARM_USELESS 1 /* exit code of a warm sandbox that did not get ready */

/* ---- the warm sandbox: pid 1 of its namespaces ---- */

/* Directories for one task, on a tmpfs of its own, which becomes the working directory. */
static int make_places(const struct warm_settings *t, struct err *e)
{
	if (skeleton_mount_scratch(NULL, t->limits.disk_bytes, e) < 0)
		return -1;
	for (size_t i = 0; i < WRITABLE_PLACES; i++)
		if (mkdir(writable_places[i].scratch, writable_places[i].mode) < 0)
			return err_sys(e, "cannot create %s", writable_places[i].scratch);
	return skeleton_file(AT_FDCWD, "canary", "", 0, 0666, e);
}

static int show_places(struct err *e)
{
	for (size_t i = 0; i < WRITABLE_PLACES; i++)
		if (mount_bind(AT_FDCWD, writable_places[i].scratch, AT_FDCWD,
			       writable_places[i].shown, 0, e) < 0)
			return -1;
	return mount_terminals(AT_FDCWD, "/dev/pts", e);
}

static int build(const struct warm_settings *t, unsigned masks, int *ret_scratch, struct err *e)
{
	auto_close int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	const struct procfs_covers covers = {WARM_ROOT, .by_fd = true};

	umask(0);
	if (getpid() != 1)
		return err_set(e, ERR_UNSUPPORTED, "no new pid namespace was made");
	if (make_places(t, e) < 0 || show_places(e) < 0)
		return -1;
	*ret_scratch = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (procfs_show(root, &covers,
			&(struct procfs_masks){.state = PROCFS_KNOWN, .files = masks}, e) < 0)
		return -1;
	return chdir("/") < 0 ? err_sys(e, "cannot leave the scratch") : 0;
}

/* A process may open its own /proc files only while it is dumpable. */
static int open_by_name(const char *path)
{
	int fd;

	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	return fd;
}

/* The fds by which others find this sandbox, and a spawner enters it; `count` of them. */
static int open_self(int fds[WARM_FDS_ALL], int count, struct err *e)
{
	static const struct {
		unsigned ask;
		const char *path;
	} rows[WARM_FDS_ALL] = {
		[WARM_MOUNTS] = {PIDFD_GET_MNT_NAMESPACE, "/proc/self/ns/mnt"},
		[WARM_PIDS] = {PIDFD_GET_PID_NAMESPACE, "/proc/self/ns/pid"},
		[WARM_IPC] = {PIDFD_GET_IPC_NAMESPACE, "/proc/self/ns/ipc"},
		[WARM_NET] = {PIDFD_GET_NET_NAMESPACE, "/proc/self/ns/net"},
	};

	fds[WARM_PIDFD] = (int)syscall(SYS_pidfd_open, 1, 0);
	if (fds[WARM_PIDFD] < 0)
		return err_sys(e, "cannot open the warm sandbox");
	for (int i = WARM_MOUNTS; i < count; i++) {
		/* Linux 6.11 */
		fds[i] = ioctl(fds[WARM_PIDFD], rows[i].ask, 0);
		if (fds[i] < 0)
			fds[i] = open_by_name(rows[i].path);
		if (fds[i] < 0)
			return err_sys(e, "cannot open %s", rows[i].path);
	}
	return 0;
}

/* Where no cgroup counts memory (rule 18). */
static bool is_watching(const struct warm_settings *t)
{
	return !(t->cgroup_layers & LAYER_BIT(LAYER_MEMORY));
}

/* A process that shares a task's pid namespace must not hold any privilege of the warm host. */
static int give_up(const struct warm_settings *t, struct err *e)
{
	struct privilege_drop c = {.kind = CONFINED_REAPER,
				   .profile = is_watching(t) ? &seccomp_profile_watcher
							     : &seccomp_profile_reaper};

	return privileges_give_up(&c, e);
}

/* Reaps until it is killed, and watches memory where no cgroup does. */
static void reap(const struct warm_settings *t)
{
	bool watching = is_watching(t);
	const struct timespec interval = {0, WATCH_INTERVAL_MS * 1000000L};
	struct watch watch;
	static struct status_page page;
	sigset_t child;

	watch_init(&watch, &t->limits, 0);
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	for (;;) {
		while (waitpid(-1, NULL, WNOHANG | __WALL) > 0)
			;
		if (watching)
			sigtimedwait(&child, NULL, &interval);
		else
			sigwaitinfo(&child, NULL);
		if (watching && watch_check(&watch, &page) == WATCH_MEMORY) {
			kill(-1, SIGKILL);
			_exit(WARM_OUT_OF_MEMORY);
		}
	}
}

/* What all warm sandboxes of a lane are made from. */
struct sandbox_recipe {
	const struct warm_settings *settings;
	unsigned masks; /* of /proc */
	int control;	/* to the warm host's pid 1 */
	int sandboxes;	/* where a warm sandbox reports: to control, or to the spawner */
	bool has_spawner;
};

static void warm_main(const struct sandbox_recipe *w) __attribute__((noreturn));
static void warm_main(const struct sandbox_recipe *w)
{
	struct warm_message m = {.news = WARM_FAILED};
	int fds[WARM_FDS_ALL], count = w->has_spawner ? WARM_FDS_ALL : WARM_MOUNTS + 1;
	struct err *e = &m.told.err, ignored;

	prctl(PR_SET_NAME, "cloche-init", 0, 0, 0);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0 &&
	    build(w->settings, w->masks, &fds[WARM_SCRATCH], e) == 0 &&
	    open_self(fds, count, e) == 0 && give_up(w->settings, e) == 0)
		m.news = WARM_READY;
	if (message_send(w->sandboxes, &m, sizeof(m), fds, m.news == WARM_READY ? count : 0,
			 &ignored) < 0 ||
	    m.news == WARM_FAILED)
		_exit(WARM_USELESS);
	sys_close_range(0, ~0u, 0);
	reap(w->settings);
	_exit(WARM_USELESS);
}

/* ---- the lane ---- */

/*
 * A mount namespace that holds only what its warm sandboxes share: each of them starts with a copy
 * of every mount in it, which has to be torn down again.
 */
static int enter_root(struct err *e)
{
	auto_close int root = -1;
	int tree;

	if (unshare(CLONE_NEWNS) < 0)
		return err_sys(e, "cannot create a mount namespace");
	/* A copy: mounts inherited from the warm host's namespace are locked in their place. */
	tree = mount_clone(AT_FDCWD, WARM_ROOT, MOUNT_SUBMOUNTS | MOUNT_DEVICES, e);
	if (tree < 0 || mount_attach(tree, AT_FDCWD, WARM_ROOT, e) < 0)
		return -1;
	root = open(WARM_ROOT, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return err_sys(e, "cannot open the root of a warm sandbox");
	/* As in root.c. */
	if (fchdir(root) < 0 || sys_pivot_root(".", ".") < 0 || umount2(".", MNT_DETACH) < 0 ||
	    chdir("/") < 0)
		return err_sys(e, "cannot change the root of a lane");
	return 0;
}

static int enter_lane(const struct warm_settings *t, int index, const int *joins, int *ret_dns,
		      struct err *e)
{
	char name[32];

	for (int i = 0; i < t->join_count; i++)
		if (write(joins[i], "0", 1) != 1)
			return err_sys(e, "cannot join the cgroup of a lane");
	/*
	 * What the new cgroup namespace shows later proves something only if the lane left the old
	 * cgroup.
	 */
	if (t->join_count && !warm_left_cgroup())
		return err_set(e, ERR_UNSUPPORTED, "the cgroup of a lane was not joined");
	/* Only a dumpable process may write its own /proc files; no other process is here yet. */
	if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 ||
	    userns_map_self(SANDBOX_UID, SANDBOX_UID, SANDBOX_GID, SANDBOX_GID, e) < 0 ||
	    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return -1;
	if (net_create(NULL, ret_dns, e) < 0)
		return -1;
	if (unshare(CLONE_NEWUTS | CLONE_NEWCGROUP) < 0)
		return err_sys(e, "cannot create namespaces");
	if (enter_root(e) < 0)
		return -1;
	/* Neither the lane nor its warm sandboxes ever exec: once is enough for all of them. */
	if (caps_drop_bounding(e) < 0)
		return -1;
	if (!caps_bounding_is_empty())
		return err_set(e, ERR_UNSUPPORTED, "the capability bounding set was not dropped");
	snprintf(name, sizeof(name), "lane-%d", index);
	prctl(PR_SET_NAME, name, 0, 0, 0);
	return 0;
}

/*
 * Neither a lane nor its warm sandboxes allocate anything. The heap of the warm host's pid 1 lies
 * far from all other mappings, and each warm sandbox would get page tables for it: 12 kB, made and
 * freed for nothing.
 */
static void drop_heap(void)
{
	auto_close int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	char text[8192];
	size_t len = 0;
	ssize_t n;

	while (fd >= 0 && (n = read(fd, text + len, sizeof(text) - 1 - len)) > 0)
		len += (size_t)n;
	text[len] = '\0';
	for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
		char *to;
		uintptr_t first = strtoul(line, &to, 16), last = strtoul(to + 1, NULL, 16);

		*end = '\0';
		if (strstr(line, "[heap]") && first < last)
			munmap((void *)first, last - first);
	}
}

static pid_t make_sandbox(const struct sandbox_recipe *w, struct err *e)
{
	struct clone_args args = {.flags = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC,
				  .exit_signal = SIGCHLD};
	pid_t pid = sys_clone3(&args);

	if (pid == 0)
		warm_main(w);
	return pid < 0 ? err_sys(e, "cannot create a warm sandbox") : pid;
}

/*
 * The next task must not get a network that a task has used: lingering connections, learned metrics
 * and counters would tell the next task about the last.
 */
struct lane_network {
	struct net_counters counters;
	uint64_t fresh; /* its fingerprint before it was used; 0: there is none */
};

static int look_at_network(struct lane_network *n, struct err *e)
{
	net_counters_close(&n->counters);
	if (net_counters_open(&n->counters, e) < 0)
		return -1;
	n->fresh = net_fingerprint(&n->counters);
	return 0;
}

static int renew_network(int control, struct lane_network *n, struct err *e)
{
	struct warm_message m = {.news = WARM_NETWORK};
	auto_close int dns = -1;

	if (n->fresh && net_fingerprint(&n->counters) == n->fresh)
		return 0;
	if (net_create(NULL, &dns, e) < 0 || look_at_network(n, e) < 0)
		return -1;
	return message_send(control, &m, sizeof(m), &dns, dns >= 0, e);
}

/* Which files of /proc have to be covered, found in the complete /proc that a lane has. */
static unsigned find_masks(const struct warm_settings *t)
{
	auto_close int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);

	/*
	 * If /proc cannot be opened, cover all: some of the files exist nowhere, so no warm sandbox
	 * will be made.
	 */
	return proc < 0 ? ~0u : procfs_look(proc, t->caller_is_root);
}

/* 0 once an order to make a warm sandbox is there; -1: the warm host is gone. */
static int await_order(int control, char *ret)
{
	int fds[KEEPER_MAX_FDS], old = -1;
	struct err e;

	while (message_receive(control, ret, 1, fds, &e) == 0) {
		if (*ret == LANE_MAKE || *ret == LANE_MAKE_FIRST)
			return 0;
		if (*ret == LANE_KEEP)
			old = fds[0];
		else
			close_fd(&old);
	}
	return -1;
}

/* KEEP and DROP, after the next sandbox was made: it has no copy of the fd, and need not wait for us. */
static void bury_last(int control)
{
	int fds[KEEPER_MAX_FDS], old = -1;
	struct err e;
	char byte;

	if (message_receive(control, &byte, 1, fds, &e) == 0)
		old = fds[0];
	(void)message_receive(control, &byte, 1, fds, &e);
	close_fd(&old);
}

/* Makes one warm sandbox after the other, until the warm host closes the socket. */
static void serve(const struct sandbox_recipe *w)
{
	struct lane_network network = {.counters = NET_COUNTERS_NONE};
	struct err e;
	char order;

	/* If this fails, a new network is made and tried again. */
	(void)look_at_network(&network, &e);
	while (await_order(w->control, &order) == 0) {
		struct warm_message m = {.news = WARM_GONE};
		int status = 0;
		pid_t pid = -1;

		if (renew_network(w->control, &network, &m.told.err) == 0)
			pid = make_sandbox(w, &m.told.err);
		if (order == LANE_MAKE_FIRST)
			bury_last(w->control);
		if (pid < 0)
			m.news = WARM_FAILED;
		else
			while (waitpid(pid, &status, __WALL) < 0 && errno == EINTR)
				;
		m.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
		/* The spawner that should have reported the failure may be gone. */
		if (m.exit_code == WARM_USELESS)
			m.news = WARM_FAILED;
		if (message_send(w->control, &m, sizeof(m), NULL, 0, &e) < 0)
			return;
	}
}

static void lane_main(const struct warm_settings *t, int index, const int *joins,
		      const struct spawner_settings *spawner, int control)
	__attribute__((noreturn));
static void lane_main(const struct warm_settings *t, int index, const int *joins,
		      const struct spawner_settings *spawner, int control)
{
	struct warm_message m = {.news = WARM_READY};
	struct sandbox_recipe w = {.settings = t, .has_spawner = spawner};
	int dns = -1, sandboxes = control;
	struct err ignored;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 ||
	    enter_lane(t, index, joins, &dns, &m.told.err) < 0)
		m.news = WARM_FAILED;
	/* The watch for memory allocates. */
	if (m.news == WARM_READY && !is_watching(t))
		drop_heap();
	if (m.news == WARM_READY && spawner &&
	    spawner_start(t, spawner, control, &sandboxes, &m.told.err) < 0)
		m.news = WARM_FAILED;
	/*
	 * A lane keeps only its two sockets: no other fd of the warm host may reach a warm sandbox.
	 */
	message_send(control, &m, sizeof(m), &dns, dns < 0 ? 0 : 1, &ignored);
	if (m.news == WARM_FAILED)
		_exit(1);
	w.sandboxes = dup2(sandboxes, 1);
	w.control = dup2(control, 0);
	sys_close_range(2, ~0u, 0);
	w.masks = find_masks(t);
	serve(&w);
	_exit(0);
}

/* ---- the warm host's side ---- */

int lane_process_start(const struct warm_settings *t, int index, const int *joins,
		       const struct spawner_settings *spawner, struct lane_process *ret,
		       struct err *e)
{
	struct clone_args args = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
	struct lane_process s = {.dns = -1};
	struct warm_message m;
	sigset_t all, old;
	int pair[2], fds[WARM_FDS];

	if (message_pair(pair, e) < 0)
		return -1;
	/* A lane and its warm sandboxes take signals by waiting for them. */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	s.pid = sys_clone3(&args);
	if (s.pid == 0) {
		close(pair[0]);
		lane_main(t, index, joins, spawner, pair[1]);
	}
	sigprocmask(SIG_SETMASK, &old, NULL);
	close(pair[1]);
	s.control = pair[0];
	if (s.pid < 0) {
		close(s.control);
		return err_sys(e, "cannot create a lane");
	}
	if (lane_process_receive(&s, &m, fds) < 0 || m.news != WARM_READY) {
		*e = m.told.err;
		lane_process_stop(&s);
		return err_wrap(e, "cannot create a lane");
	}
	s.dns = fds[0];
	*ret = s;
	return 0;
}

static int give_order(const struct lane_process *s, enum lane_order order, int fd)
{
	const char byte = (char)order;
	struct err e;

	return message_send(s->control, &byte, 1, &fd, fd >= 0, &e);
}

static int hand_over(const struct lane_process *s, int old)
{
	int rc = give_order(s, LANE_KEEP, old);

	close(old);
	return rc < 0 ? rc : give_order(s, LANE_DROP, -1);
}

int lane_process_make_sandbox(const struct lane_process *s, int old, bool is_small)
{
	if (old < 0)
		return give_order(s, LANE_MAKE, -1);
	if (!is_small)
		return hand_over(s, old) < 0 ? -1 : give_order(s, LANE_MAKE, -1);
	if (give_order(s, LANE_MAKE_FIRST, -1) == 0)
		return hand_over(s, old);
	close(old);
	return -1;
}

int lane_process_receive(const struct lane_process *s, struct warm_message *ret,
			 int ret_fds[WARM_FDS])
{
	int fds[KEEPER_MAX_FDS];

	*ret = (struct warm_message){.news = WARM_FAILED};
	for (int i = 0; i < WARM_FDS; i++)
		ret_fds[i] = -1;
	if (message_receive(s->control, ret, sizeof(*ret), fds, &ret->told.err) < 0)
		return -1;
	memcpy(ret_fds, fds, WARM_FDS * sizeof(*fds));
	return 0;
}

void lane_process_stop(struct lane_process *s)
{
	close_fd(&s->control);
	close_fd(&s->dns);
	if (s->pid > 0) {
		kill(s->pid, SIGKILL);
		waitpid(s->pid, NULL, __WALL);
	}
	s->pid = 0;
}
