/*
 * Level process: the init that supervises the command, and finds all processes of the command at
 * the end.
 */
#include "sandbox/inside/inside_internal.h"

#include "kern/procs.h"
#include "sandbox/plan/etc.h"
#include "sandbox/outside/keeper.h"
#include "sandbox/inside/message.h"
#include "sandbox/inside/privileges.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>

struct process_init {
	struct plan *plan;
	struct inside_fds *fds;
	struct rights_message message;
	int got[KEEPER_MAX_FDS];
	bool scoped;  /* our signals reach only our descendants */
	int listener; /* made by the command's process, in the shared fd table */
};

/*
 * The paths of the host that the command may see; of /proc only files that show no other process.
 */
static int grant_paths(const struct privilege_drop *c, struct landlock *l, struct err *e)
{
	static const char *const readable[] = {
		"/usr",		 "/bin",
		"/sbin",	 "/lib",
		"/lib32",	 "/lib64",
		"/libx32",	 "/opt",
		"/etc/timezone", "/etc/nsswitch.conf",
		"/etc/hosts",	 "/etc/passwd",
		"/etc/group",	 "/proc/cpuinfo",
		"/proc/meminfo", "/proc/stat",
		"/proc/uptime",	 "/proc/loadavg",
		"/proc/version", "/proc/filesystems",
	};
	static const char *const devices[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random",
					      "/dev/urandom"};
	const struct plan *p = c->plan;
	enum landlock_grant workspace =
		p->workspace_mode == WORKSPACE_COW ? LANDLOCK_READ : LANDLOCK_WRITE;

	for (size_t i = 0; i < ARRAY_LEN(readable); i++)
		if (landlock_allow(l, AT_FDCWD, readable[i], LANDLOCK_READ, e) < 0)
			return -1;
	if (etc_grant(l, e) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(devices); i++)
		if (landlock_allow(l, AT_FDCWD, devices[i], LANDLOCK_DEVICE, e) < 0)
			return -1;
	if (p->workspace_mode != WORKSPACE_EMPTY &&
	    landlock_allow(l, p->workspace.fd, "", workspace, e) < 0)
		return -1;
	for (size_t i = 0; p->git && i < p->git->view_count; i++)
		if (landlock_allow(l, p->git->views[i].source.fd, "", LANDLOCK_READ, e) < 0)
			return -1;
	/* The tool chains of --tools; there are no other mounts at this level. */
	for (size_t i = 0; i < p->bind_count; i++)
		if (landlock_allow(l, p->binds[i].source.fd, "", LANDLOCK_READ, e) < 0)
			return -1;
	return landlock_allow(l, c->scratch, "open", LANDLOCK_WRITE, e);
}

static int join_cgroups(const struct privilege_drop *c, struct err *e)
{
	const struct process_init *n = c->arg;

	init_join_cgroups(c->plan->page, &n->message, n->got);
	return 0;
}

/* The command's process: shares memory and fds with its init until close_range unshares. */
static int command_main(void *arg)
{
	struct process_init *n = arg;
	struct command_start command = {.plan = n->plan, .fds = n->fds};
	struct privilege_drop c = {.kind = CONFINED_PROCESS,
				   .plan = n->plan,
				   .scratch = n->fds->scratch,
				   .control = -1,
				   .changes_ids = !n->plan->rootless,
				   .uid = plan_user_id(n->plan),
				   .profile = &seccomp_profile_process,
				   .enter = join_cgroups,
				   .grant = grant_paths,
				   .arg = n};
	int rc = privileges_give_up(&c, &n->plan->page->err);

	n->listener = c.listener;
	if (rc < 0)
		_exit(125);
	command_exec(&command);
}

/*
 * Where Landlock scopes our signals, kill(-1) reaches exactly our descendants, all at once. This is
 * tried, not assumed: if we can still signal the keeper, kill(-1) would reach every process.
 */
static bool scope_signals(pid_t keeper)
{
	struct err ignored;

	return landlock_scope_signals(&ignored) == 0 && kill(keeper, 0) < 0 && errno == EPERM;
}

/* All processes of the sandbox have a uid of their own, by which the kernel finds every one. */
static void kill_by_uid(const struct plan *p)
{
	uid_t uid = plan_user_id(p);
	pid_t killer = fork();

	if (killer == 0) {
		/*
		 * If setresuid only claims to have worked (an outer filter may do that), this would
		 * kill every process that root can signal.
		 */
		if (setresuid(uid, uid, uid) == 0 && getuid() == uid && geteuid() == uid)
			kill(-1, SIGKILL);
		_exit(0);
	}
	if (killer > 0)
		waitpid(killer, NULL, 0);
}

void process_end_left(const struct plan *p, const struct cgroup *c)
{
	cgroup_kill(c);
	if (!p->rootless)
		kill_by_uid(p);
}

/*
 * Kills the descendants of one process, depth first, by /proc's lists of children. The caller
 * repeats it.
 */
static void kill_children(pid_t parent, int depth)
{
	char text[4096];

	procs_children(parent, text, sizeof(text));
	for (char *at = text; *at;) {
		pid_t child = (pid_t)strtol(at, &at, 10);

		if (child <= 0)
			break;
		if (depth < 64)
			kill_children(child, depth + 1);
		kill(child, SIGKILL);
		at += *at == ' ';
	}
}

static void kill_all(const struct process_init *n)
{
	/*
	 * A process that is started meanwhile becomes our child as well: repeat until there is
	 * none.
	 */
	for (;;) {
		if (n->scoped)
			kill(-1, SIGKILL);
		else if (!n->plan->rootless)
			kill_by_uid(n->plan);
		else
			kill_children(getpid(), 0);
		while (waitpid(-1, NULL, WNOHANG | __WALL) > 0)
			;
		if (waitpid(-1, NULL, WNOHANG | __WALL) < 0 && errno == ECHILD)
			return;
		poll(NULL, 0, 1);
	}
}

static int prepare_init(struct process_init *n, int *ret_signals, struct err *e)
{
	struct inside_fds *fds = n->fds;
	char text[64];

	(void)setsid(); /* as pid 1 of level container, and for the same reason */
	*ret_signals = init_block_signals(e);
	close_fd(&fds->keeper_control);
	if (*ret_signals < 0)
		return -1;
	if (prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0) < 0 ||
	    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return err_sys(e, "cannot prepare to supervise");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_sys(e, "cannot give up privileges");
	n->scoped = scope_signals(getppid());
	if (!n->scoped && n->plan->rootless && procs_children(getpid(), text, sizeof(text)) < 0)
		return err_set(
			e, ERR_UNSUPPORTED,
			"level process needs Landlock ABI 6 or /proc with lists of children, to "
			"find all processes of the sandbox again");
	/* Here, because the command's process shares our fds until close_range unshares them. */
	if (command_attach_streams(fds->in, fds->out, fds->err, e) < 0)
		return -1;
	fds->in = 0;
	fds->out = 1;
	fds->err = 2;
	return message_receive(fds->control, &n->message, sizeof(n->message), n->got, e);
}

void process_main(struct plan *p, struct inside_fds *fds)
{
	static char stack[64 << 10] __attribute__((aligned(16)));
	struct process_init n = {.plan = p, .fds = fds, .listener = -1};
	pid_t keeper = getppid(), command;
	int signals;

	if (prepare_init(&n, &signals, &p->page->err) < 0)
		_exit(125);
	p->page->started_ns = now_ns();
	command = clone(command_main, stack + sizeof(stack),
			CLONE_VM | CLONE_VFORK | CLONE_FILES | SIGCHLD, &n);
	if (command < 0) {
		err_sys(&p->page->err, "cannot create the command's process");
		_exit(125);
	}
	/* SIGTERM comes from the keeper, or, at the keeper's death, from the kernel (PDEATHSIG). */
	init_supervise(&(struct supervisor){.page = p->page,
					    .limits = &p->spec->limits,
					    .profile = &seccomp_profile_process,
					    .command = command,
					    .keeper = keeper,
					    .anyone_ends_it = true,
					    .watched = getpid(),
					    .signals = signals,
					    .listener = n.listener,
					    .dns = -1,
					    .control = fds->control});
	kill_all(&n);
	/* The keeper is dead and cannot clean up. */
	if (getppid() != keeper)
		process_dir_remove(p->process_dir);
	_exit(0);
}
