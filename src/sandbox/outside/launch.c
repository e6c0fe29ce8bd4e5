/*
 * The outside half of making a sandbox: clone, then send pid 1 what it cannot make by itself. Runs
 * and sandboxes that live on share it.
 */
#include "sandbox/outside/keeper.h"

#include "kern/sched.h"
#include "kern/sys.h"
#include "sandbox/inside/message.h"

/* ---- the clone ---- */

static int explain_clone(const struct keeper *k, struct err *e)
{
	int errnum = errno;

	err_sys(e, "cannot create %s",
		k->plan.spec->level == LEVEL_PROCESS ? "a process" : "namespaces");
	if (k->plan.spec->level == LEVEL_PROCESS)
		return -1;
	/* Filters cannot see clone3's flags, so those of containers, and our own, hide the call. */
	if (errnum == EPERM || errnum == EACCES || errnum == ENOSPC || errnum == ENOSYS)
		return err_set(
			e, ERR_UNSUPPORTED,
			"this host does not let %s create %snamespaces (%s); `cloche doctor` "
			"says what to change, --level process works without them",
			k->plan.rootless ? "an ordinary user" : "this process",
			k->plan.rootless ? "user " : "",
			errnum == ENOSYS ? "a filter hides clone3, as other sandboxes have it"
					 : strerror(errnum));
	return -1;
}

static int clone_inside(struct keeper *k, struct inside_fds *fds, struct err *e)
{
	struct clone_args args = {.flags = CLONE_PIDFD, .exit_signal = SIGCHLD};
	pid_t pid;

	args.pidfd = (uint64_t)(uintptr_t)&k->pidfd;
	if (k->plan.spec->level != LEVEL_PROCESS)
		args.flags |= CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS |
			      (k->plan.rootless ? CLONE_NEWUSER : 0);
	if (k->cgroup.version == 2) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)k->cgroup.dirs[0];
	}
	pid = sys_clone3(&args);
	if (pid < 0 && k->cgroup.version == 2) {
		/* We may not move a process into this cgroup: do without it. */
		cgroup_remove(&k->cgroup);
		args.flags &= ~(uint64_t)CLONE_INTO_CGROUP;
		pid = sys_clone3(&args);
	}
	if (pid < 0 && errno == ENOSYS && k->plan.spec->level == LEVEL_PROCESS)
		pid = (pid_t)syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, NULL, &k->pidfd, NULL, 0);
	if (pid < 0)
		return explain_clone(k, e);
	if (pid == 0)
		inside_main(&k->plan, fds);
	k->pid = pid;
	return 0;
}

/*
 * A sandbox of the daemon has the weight of one lane of a warm host: the daemon and the inits of warm hosts, which
 * all tenants wait for, come first.
 */
static void make_cgroup(struct keeper *k)
{
	cgroup_create(&k->cgroup, &k->plan.spec->limits);
	if (k->plan.guest && !k->plan.guest->warm_host)
		cgroup_give_way(&k->cgroup);
}

int launch_start(struct keeper *k, struct inside_fds *fds, struct err *e)
{
	int pair[2];

	if (message_pair(pair, e) < 0)
		return -1;
	k->control = pair[0];
	fds->control = pair[1];
	fds->keeper_control = pair[0];
	fds->scratch = k->scratch;
	if (k->cgroup.name[0] && cgroup_is_unified(&k->cgroup))
		make_cgroup(k);
	/*
	 * As root it always pays for a run: otherwise pid 1 and the process that makes the network
	 * namespace would run one after the other. Without root, or in the daemon, moving processes
	 * between processors costs throughput, so it is done only if one is idle.
	 */
	k->plan.elsewhere = k->plan.spec->level != LEVEL_PROCESS &&
			    ((!k->plan.rootless && !k->plan.guest) || sched_has_idle());
	if (clone_inside(k, fds, e) < 0)
		return -1;
	close_fd(&fds->control);
	if (k->plan.spec->level == LEVEL_PROCESS)
		return 0;
	/* pid 1 has the most to do, and we go on meanwhile. */
	if (k->plan.elsewhere)
		sched_send_elsewhere(k->pid);
	/*
	 * Not earlier, so that it does not delay the clone. As an ordinary user only pid 1 can make
	 * the network namespace.
	 */
	return k->plan.rootless
		       ? 0
		       : net_start(&k->net, k->plan.net, k->plan.id_base, k->plan.as_root, e);
}

/* ---- while pid 1 builds ---- */

static void close_sent(const int *fds, int count)
{
	for (int i = 0; i < count; i++)
		close(fds[i]);
}

/* What only an image may: root inside would own the files of every user of the host. */
static void map_one_owner(const struct plan *p, const struct owner *o, struct id_map *uids,
			  struct id_map *gids)
{
	if (p->as_root && !o->range) {
		id_map_one(uids, plan_user_id(p), o->uid);
		id_map_one(gids, plan_user_id(p), o->gid);
		return;
	}
	id_map_owner(uids, p->id_base, o->uid, plan_inner_id(p));
	id_map_owner(gids, p->id_base, o->gid, plan_inner_id(p));
}

static int make_owners(struct keeper *k, struct mounts_message *m, int *fds, struct err *e)
{
	const struct plan *p = &k->plan;
	struct id_map uids, gids;

	for (int i = 0; i < p->owner_count; i++) {
		map_one_owner(p, &p->owners[i], &uids, &gids);
		if (userns_create(&uids, &gids, &k->userns[i], e) < 0)
			return -1;
		fds[m->owner_count++] = k->userns[i].fd;
	}
	return 0;
}

/* Sends what pid 1 needs to finish its mounts. */
static int send_mounts(struct keeper *k, struct err *e)
{
	bool shown = k->plan.workspace_mode == WORKSPACE_COW, git = k->plan.git;
	struct mounts_message m = {0};
	int fds[KEEPER_MAX_FDS], rc = -1;

	if (plan_judge(&k->plan, e) == 0 && make_owners(k, &m, fds, e) == 0) {
		plan_look_at_proc(&k->plan.host, k->plan.rootless);
		m.proc = k->plan.host.proc;
		m.workspace_denied = shown && k->plan.workspace_mode == WORKSPACE_EMPTY;
		m.git_denied = git && !k->plan.git;
		rc = message_send(k->control, &m, sizeof(m), fds, m.owner_count, e);
	}
	close_sent(fds, m.owner_count);
	return rc;
}

/* The sandbox's user namespace is that of the process which makes its network namespace. */
static int take_userns(struct keeper *k, struct rights_message *m, int *fds, int *count,
		       struct err *e)
{
	const struct plan *p = &k->plan;
	struct id_map ids;
	int fd = -1;

	if (p->rootless || p->spec->level == LEVEL_PROCESS)
		return 0;
	id_map_range(&ids, p->id_base);
	if (k->net.in_userns)
		fd = userns_adopt(k->net.pid, &ids, &ids, e);
	else
		err_set(e, ERR_UNSUPPORTED, "cannot create a user namespace");
	if (fd < 0)
		return p->spec->required_layers & LAYER_BIT(LAYER_USER_NS) ? -1 : 0;
	fds[(*count)++] = fd;
	m->has_userns = 1;
	return 0;
}

static int take_network(struct keeper *k, struct rights_message *m, int *fds, int *count,
			struct err *e)
{
	if (net_finish(&k->net, e) < 0)
		return -1;
	if (k->net.made.ns < 0)
		return 0;
	fds[(*count)++] = take_fd(&k->net.made.ns);
	m->has_net = 1;
	k->plan.page->redirect = k->net.made.listeners.how;
	if (k->plan.net)
		return 0;
	/*
	 * Port 53 of a new network namespace is free; a failure means that something is badly
	 * wrong.
	 */
	if (k->net.made.dns < 0)
		return err_set(e, ERR_SYSTEM, "cannot serve names in the new network namespace");
	fds[(*count)++] = take_fd(&k->net.made.dns);
	m->has_dns = 1;
	return 0;
}

/* Sends what pid 1 needs to give up its privileges. */
static int send_rights(struct keeper *k, struct err *e)
{
	struct rights_message m = {.host = k->plan.host.ns};
	int fds[KEEPER_MAX_FDS], count, rc = -1;

	if (!cgroup_is_unified(&k->cgroup)) {
		/*
		 * On v1 the command joins by itself, and its init stays outside at level process.
		 */
		k->cgroup.all_foreign = k->plan.spec->level == LEVEL_PROCESS;
		make_cgroup(k);
	}
	m.cgroup_layers = k->cgroup.layers;
	if (k->cgroup.version == 2 && !cgroup_contains(&k->cgroup, k->pid))
		m.cgroup_layers = 0;
	count = cgroup_join_fds(&k->cgroup, fds);
	/* A cgroup that cannot be joined limits nothing, and must not be claimed. */
	if (count < 0) {
		count = 0;
		m.cgroup_layers = 0;
	}
	m.join_count = count;
	if (take_userns(k, &m, fds, &count, e) == 0 && take_network(k, &m, fds, &count, e) == 0)
		rc = message_send(k->control, &m, sizeof(m), fds, count, e);
	close_sent(fds, count);
	return rc;
}

int launch_send(struct keeper *k, struct err *e)
{
	if (k->plan.spec->level != LEVEL_PROCESS && send_mounts(k, e) < 0)
		return -1;
	return send_rights(k, e);
}

/* These processes only hold namespaces open until pid 1 has them. */
void launch_release(struct keeper *k)
{
	for (size_t i = 0; i < ARRAY_LEN(k->userns); i++)
		userns_release(&k->userns[i]);
	net_release(&k->net);
}
