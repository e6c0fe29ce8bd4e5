/*
 * What a task does from its creation to the last layer, in a warm sandbox that is ready (warm.h).
 */
#include "warm/warm_internal.h"

#include "kern/sys.h"
#include "sandbox/inside/message.h"
#include "sandbox/plan/plan.h"
#include "sandbox/inside/privileges.h"
#include "sandbox/inside/verify.h"

#include <sched.h>

/*
 * A spawner's task is in the lane's namespaces and cgroup already; a zygote's task enters these as
 * well.
 */
static int enter_namespaces(const struct warm_entry *t, struct err *e)
{
	const int all = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWUTS |
			CLONE_NEWCGROUP;

	/*
	 * By namespace fds: setns by a pidfd needs ptrace rights over the process, which is not
	 * dumpable.
	 */
	if (t->by_spawner) {
		if (setns(t->mounts, CLONE_NEWNS) < 0 || setns(t->ipc, CLONE_NEWIPC) < 0 ||
		    setns(t->net, CLONE_NEWNET) < 0)
			return err_sys(e, "cannot enter the warm sandbox");
		return 0;
	}
	for (int i = 0; i < t->settings->join_count; i++)
		if (write(t->joins[i], "0", 1) != 1)
			return err_sys(e, "cannot join the lane's cgroup");
	if (setns(t->sandbox, all) < 0)
		return err_sys(e, "cannot enter the warm sandbox");
	return 0;
}

static int enter(const struct privilege_drop *c, struct err *e)
{
	const struct warm_entry *t = c->arg;

	if (enter_namespaces(t, e) < 0)
		return -1;
	c->plan->page->proven = verify_namespaces(&t->settings->outside, true);
	if (t->settings->cgroup_layers && warm_is_in_cgroup())
		c->plan->page->proven |= t->settings->cgroup_layers;
	return 0;
}

static int attach(const struct warm_entry *c, struct err *e)
{
	if (setsid() < 0)
		return err_sys(e, "cannot start a session");
	for (int i = 0; i < 3; i++)
		if (dup2(c->streams[i], i) < 0)
			return err_sys(e, "cannot attach the standard streams");
	return 0;
}

/* Closes all fds but the two for the report, which become 3 and 4, and verifies that. */
static layer_set close_others(int *report, int *listener)
{
	enum { REPORT = 3, LISTENER, AFTER };

	*report = fcntl(*report, F_DUPFD_CLOEXEC, AFTER);
	*listener = *listener < 0 ? -1 : fcntl(*listener, F_DUPFD_CLOEXEC, AFTER);
	*report = dup2(*report, REPORT);
	if (*listener >= 0)
		*listener = dup2(*listener, LISTENER);
	else
		close(LISTENER);
	return sys_close_range(AFTER, ~0u, 0) < 0 ? 0 : verify_fds(LISTENER);
}

/* Sends the report and closes these two as well; if that cannot be verified, nothing runs. */
static int send_report(const struct warm_message *m, int report, int listener)
{
	struct err ignored;
	int rc = message_send(report, m, sizeof(*m), &listener, listener < 0 ? 0 : 1, &ignored);

	if (sys_close_range(3, ~0u, 0) < 0 || verify_fds(2) == 0)
		_exit(125);
	return m->told.err.kind == ERR_NONE ? rc : -1;
}

/* Everything up to the last layer; the status page says which layers were proven. */
static void confine_task(const struct warm_entry *t, struct plan *p, int *ret_listener,
			 struct err *e)
{
	struct privilege_drop c = {.kind = t->by_spawner ? CONFINED_TASK : CONFINED_FORK,
				   .plan = p,
				   .scratch = t->scratch,
				   .control = -1,
				   .profile = &seccomp_profile_default,
				   .enter = enter,
				   .arg = t};
	int rc = privileges_give_up(&c, e);

	*ret_listener = c.listener;
	if (rc < 0 || attach(t, e) < 0)
		return;
	p->page->proven |= verify_privileges(p, t->scratch);
	/* The warm host's own directories must not be this task's. */
	if (!warm_places_are_own(t->settings, t->scratch))
		p->page->proven &= ~(LAYER_BIT(LAYER_ROOT) | LAYER_BIT(LAYER_DISK));
	(void)restrict_command(p, e);
}

int warm_enter(const struct warm_entry *c)
{
	struct sandbox_spec spec = {.level = LEVEL_CONTAINER,
				    .limits = c->settings->limits,
				    .required_layers = c->settings->required};
	static struct status_page page;
	struct plan p = {.spec = &spec,
			 .page = &page,
			 .rootless = true, /* one id is mapped, as for an ordinary user */
			 .uid = c->settings->caller_is_root ? 0 : SANDBOX_UID,
			 .workspace_mode = WORKSPACE_EMPTY,
			 .workspace_path = "/workspace",
			 .image_is_host = c->settings->image_is_host};
	struct warm_message m = {.news = WARM_TASK};
	int listener = -1, to = c->report;

	/* In a spawner's memory the page still holds the last task's values. */
	page.proven = 0;
	page.canary_opens = page.listening = false;
	page.landlock_abi = 0;
	confine_task(c, &p, &listener, &m.told.err);
	page.proven |= close_others(&to, &listener);
	if (m.told.err.kind == ERR_NONE)
		verify_required(&p, &m.told.err);
	m.told.proven = page.proven;
	m.told.landlock_abi = page.landlock_abi;
	m.told.listening = page.listening;
	return send_report(&m, to, listener);
}
