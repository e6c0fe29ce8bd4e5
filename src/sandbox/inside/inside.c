/* From clone to exec: all that pid 1 does to build its sandbox, in order. */
#include "sandbox/inside/inside_internal.h"

#include "kern/sched.h"
#include "kern/sys.h"
#include "kern/userns.h"
#include "sandbox/inside/message.h"
#include "sandbox/inside/privileges.h"
#include "sandbox/inside/root.h"

#include <sys/ioctl.h>
#include <sys/prctl.h>

/*
 * An ordinary user's sandboxes share the user's own count of these objects: each gets a part of it. (As
 * root each sandbox has a count of its own, see userns_clone.) Soft: in some containers /proc/sys
 * is read-only, and then only the user's own limits hold.
 */
static void bound_user_objects(void)
{
	static const char *const bounds[][2] = {
		{"/proc/sys/user/max_inotify_instances", "64"},
		{"/proc/sys/user/max_inotify_watches", "65536"},
	};

	for (size_t i = 0; i < ARRAY_LEN(bounds); i++)
		(void)!io_write_at(AT_FDCWD, bounds[i][0], bounds[i][1]);
}

/* pid, mount, ipc, uts (and, rootless, user) came with the clone. */
static int finish_namespaces(struct plan *p, struct err *e)
{
	if (getpid() != 1)
		return err_set(e, ERR_UNSUPPORTED, "no new pid namespace was made");
	if (p->rootless &&
	    userns_map_self(plan_inner_id(p), p->uid, plan_inner_id(p), p->gid, e) < 0)
		return -1;
	if (p->rootless)
		bound_user_objects();
	if (sethostname(p->spec->hostname, strlen(p->spec->hostname)) < 0)
		return err_sys(e, "cannot set the host name");
	return 0;
}

/* The sandbox's uptime starts at zero. Soft: without it only the host's uptime shows. */
static void enter_time_namespace(void)
{
	struct timespec mono, boot;
	char text[128];
	int len;

	if (unshare(CLONE_NEWTIME) < 0)
		return;
	auto_close int fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);

	clock_gettime(CLOCK_MONOTONIC, &mono);
	clock_gettime(CLOCK_BOOTTIME, &boot);
	len = snprintf(text, sizeof(text), "monotonic -%lld 0\nboottime -%lld 0\n",
		       (long long)mono.tv_sec, (long long)boot.tv_sec);
	if (fd >= 0 && write(fd, text, (size_t)len) < 0)
		return;
}

static int enter_userns(const struct privilege_drop *c, struct err *e)
{
	const int *userns = c->arg;

	if (*userns >= 0 && setns(*userns, CLONE_NEWUSER) < 0)
		return err_sys(e, "cannot enter the user namespace");
	return 0;
}

/* From here on an ordinary user: the range's uid 1000 as root, the mapped caller otherwise. */
static int drop_privileges(struct plan *p, struct inside_fds *fds, int userns, int *ret_listener,
			   struct err *e)
{
	bool is_warm_host = p->guest && p->guest->warm_host;
	bool is_nested = p->as_root == AS_ROOT_NESTED;
	struct privilege_drop c = {
		.kind = is_warm_host ? CONFINED_WARM_HOST
			: p->guest   ? (is_nested ? CONFINED_GUEST_OUTER : CONFINED_GUEST)
			: is_nested  ? CONFINED_OUTER
				     : CONFINED_RUN,
		.plan = p,
		.scratch = fds->scratch,
		.control = fds->control,
		.changes_ids = !p->rootless,
		.uid = userns >= 0 ? plan_inner_id(p) : plan_user_id(p),
		.profile = is_warm_host ? &seccomp_profile_warm_host : plan_profile(p),
		.enter = enter_userns,
		.arg = &userns};

	if (is_nested && userns < 0)
		return err_field(
			e, ERR_UNSUPPORTED, "user",
			"user: root needs a user namespace, which this host does not give");
	p->page->processor = sched_getcpu() + 1;
	if (p->guest)
		sched_be_prompt();
	if (privileges_give_up(&c, e) < 0)
		return -1;
	fds->nested = is_nested ? c.nested : -1;
	if (c.kind == CONFINED_GUEST_OUTER) {
		c.kind = CONFINED_GUEST_ROOT;
		userns = fds->nested;
		if (privileges_give_up(&c, e) < 0)
			return -1;
	}
	*ret_listener = c.listener;
	return 0;
}

/* Root inside: the command's process was made, so pid 1 needs no more than to watch it. */
static int drop_rest(struct plan *p, struct err *e)
{
	struct privilege_drop c = {
		.kind = CONFINED_OUTER_END, .plan = p, .profile = &seccomp_profile_default};

	return privileges_give_up(&c, e);
}

static int open_pty(const struct plan *p, struct inside_fds *fds, struct err *e)
{
	int unlock = 0;

	fds->terminal = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (fds->terminal < 0 || ioctl(fds->terminal, TIOCSPTLCK, &unlock) < 0)
		return err_sys(e, "cannot open a terminal");
	/* The only one yet. */
	return p->as_root ? plan_give_to_user(p, AT_FDCWD, "/dev/pts/0", e) : 0;
}

static int exec_in_clone(void *arg)
{
	command_exec(arg);
}

static pid_t start_command(struct plan *p, struct inside_fds *fds, struct err *e)
{
	static char stack[64 << 10] __attribute__((aligned(16)));
	struct command_start c = {.plan = p, .fds = fds};
	cpu_set_t here;
	pid_t pid;

	/*
	 * We sleep until the command has executed, so it should run on this processor: another one
	 * would have to be woken first. The command's process undoes the pinning for itself.
	 */
	c.pinned = sched_getaffinity(0, sizeof(c.cpus), &c.cpus) == 0;
	CPU_ZERO(&here);
	CPU_SET((size_t)sched_getcpu(), &here);
	c.pinned = c.pinned && sched_setaffinity(0, sizeof(here), &here) == 0;
	p->page->started_ns = now_ns();
	p->page->inner_listener = -1;
	pid = sys_clone_vfork_with(p->as_root == AS_ROOT_NESTED ? CLONE_FILES : 0, exec_in_clone,
				   stack + sizeof(stack), &c);
	if (c.pinned)
		sched_setaffinity(0, sizeof(c.cpus), &c.cpus);
	if (pid < 0)
		return err_sys(e, "cannot create the command's process");
	return pid;
}

static int receive_mounts(struct plan *p, const struct inside_fds *fds, struct err *e)
{
	struct mounts_message m;
	int got[KEEPER_MAX_FDS];

	if (message_receive(fds->control, &m, sizeof(m), got, e) < 0)
		return -1;
	for (int i = 0; i < m.owner_count; i++)
		p->owners[i].userns = got[i];
	p->host.proc = m.proc;
	if (m.git_denied)
		git_drop(p);
	if (m.workspace_denied)
		plan_empty_workspace(p);
	return 0;
}

/* Joins the cgroup and the network. The user namespace is entered later. */
static int receive_rights(struct plan *p, struct inside_fds *fds, int *ret_userns, struct err *e)
{
	struct rights_message m;
	int got[KEEPER_MAX_FDS], net;

	if (message_receive(fds->control, &m, sizeof(m), got, e) < 0)
		return -1;
	p->host.ns = m.host;
	init_join_cgroups(p->page, &m, got);
	/* After the join, so that the cgroup namespace is rooted there. */
	(void)!unshare(CLONE_NEWCGROUP);
	*ret_userns = m.has_userns ? got[m.join_count] : -1;
	if (p->rootless)
		return 0;
	net = m.join_count + m.has_userns;
	fds->dns = m.has_dns ? got[net + 1] : -1;
	return setns(got[net], CLONE_NEWNET) < 0 ? err_sys(e, "cannot enter the network namespace")
						 : 0;
}

static int join_network(struct plan *p, struct inside_fds *fds, pid_t helper, struct err *e)
{
	if (net_join(&p->page->net, helper, e) < 0)
		return -1;
	p->page->redirect = p->page->net.made.listeners.how;
	fds->dns = p->page->net.made.dns;
	return 0;
}

/* pid 1 keeps no listener: nobody would accept what waits in a second one. */
static int send_back(struct plan *p, const struct inside_fds *fds, struct err *e)
{
	struct net_made *m = &p->page->net.made;
	int rc = message_send_back(fds->control, fds, p->rootless ? m : NULL, e);

	if (p->rootless && p->net) {
		net_listeners_close(&m->listeners);
		close_fd(&m->anchor);
	}
	return rc;
}

/* The launcher's command line names host paths, and any process can read /proc/1/cmdline. */
static void hide_command_line(char **argv)
{
	prctl(PR_SET_NAME, "cloche-init", 0, 0, 0);
	for (int i = 0; argv && argv[i]; i++)
		memset(argv[i], 0, strlen(argv[i]));
}

/* The whole sandbox, from clone to exec. */
static int build_sandbox(struct plan *p, struct inside_fds *fds, int *ret_listener, struct err *e)
{
	bool map_root = p->root_owner >= 0;
	auto_close int sysctls = -1;
	pid_t helper = -1;
	int userns = -1;

	close_fd(&fds->keeper_control);
	if (privileges_die_with_parent(fds->control, e) < 0 || finish_namespaces(p, e) < 0)
		return -1;
	/* As root the keeper makes the network namespace. /proc will be covered. */
	if (p->rootless && p->as_root)
		sysctls = open("/proc/sys", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (p->rootless)
		helper = net_help(&p->page->net, p->net, sysctls, p->elsewhere);
	enter_time_namespace();
	if (root_start(p, &fds->scratch, e) < 0)
		return -1;
	/* The keeper's fds are needed late, unless the owner of the root is to be mapped. */
	if (map_root && receive_mounts(p, fds, e) < 0)
		return -1;
	if (root_build(p, e) < 0)
		return -1;
	if (!map_root && receive_mounts(p, fds, e) < 0)
		return -1;
	if (root_finish(p, fds->scratch, e) < 0)
		return -1;
	if (p->spec->tty && open_pty(p, fds, e) < 0)
		return -1;
	if ((p->rootless && join_network(p, fds, helper, e) < 0) || send_back(p, fds, e) < 0)
		return -1;
	if (receive_rights(p, fds, &userns, e) < 0)
		return -1;
	return drop_privileges(p, fds, userns, ret_listener, e);
}

void inside_main(struct plan *p, struct inside_fds *fds)
{
	struct err *e = &p->page->err;
	int listener = -1, signals;
	pid_t command;

	if (p->spec->level == LEVEL_PROCESS)
		process_main(p, fds);
	hide_command_line(p->own_argv);
	/*
	 * The keeper passes on signals typed at the caller's terminal. If the kernel sent them here
	 * as well, the keeper's would be lost: only one pending signal of a kind is kept.
	 */
	(void)setsid();
	signals = init_block_signals(e);
	if (signals < 0 || build_sandbox(p, fds, &listener, e) < 0)
		_exit(125);
	if (p->guest)
		guest_exec(p, fds, listener);
	p->page->leads_to = p->net;
	command = start_command(p, fds, e);
	if (command < 0 || (p->as_root == AS_ROOT_NESTED && drop_rest(p, e) < 0))
		_exit(125);
	if (p->as_root == AS_ROOT_NESTED)
		listener = p->page->inner_listener;
	init_serve(p, fds, command, listener, signals);
	_exit(0);
}
