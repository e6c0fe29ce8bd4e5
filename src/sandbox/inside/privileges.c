/*
 * The steps by which a process gives up its privileges, and the table that says who takes which.
 *
 * Theory of operation: the order
 *
 *   - A user namespace is entered first, since that fills the bounding set again; the bounding set is
 *     emptied next, since changing ids may take the right to do so.
 *   - A change of ids clears the parent-death signal, so this is set afterwards.
 *   - Limits need no privilege, but NPROC depends on what the namespaces and the cgroup have proven.
 *   - no_new_privs comes before Landlock and seccomp, which an ordinary user cannot load without it.
 *   - The Landlock canary has to open just before the rules apply, or its refusal proves nothing.
 *   - Landlock comes before seccomp, whose filter refuses Landlock's calls.
 *
 * A warm host makes sandboxes itself: it keeps the capabilities for that over its own user namespace, has
 * a filter that allows it, and no Landlock, which would forbid mounts. A client's code runs there only in
 * a process that has given up the rest as well, as CONFINED_TASK or CONFINED_FORK.
 *
 * Root inside (docs/root.md) is uid 0 of a user namespace below the sandbox's own. pid 1 stays above it, with an
 * id that the one below does not have: no capability and no id of the command's reaches it. So pid 1 takes
 * its steps as CONFINED_OUTER, makes the command's process, which takes its own as CONFINED_ROOT, and gives
 * up the rest as CONFINED_OUTER_END. The guest of a sandbox that lives on makes files and processes for its root,
 * so it goes below as well, and keeps nothing above; as everywhere, that nobody can trace or kill pid 1 protects
 * it. Both apply the same Landlock rules: a ruleset that leaves files out
 * would refuse every rename across directories.
 */
#include "sandbox/inside/privileges.h"

#include "kern/caps.h"
#include "kern/userns.h"
#include "sandbox/inside/verify.h"

#include <linux/capability.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

const struct writable_place writable_places[] = {
	{"tmp", "/tmp", 01777, false},	   {"home", SANDBOX_HOME, 0755, true},
	{"shm", "/dev/shm", 01777, false}, {"vartmp", "/var/tmp", 01777, false},
	{"ws", "/workspace", 0755, true},
};

/* ---- steps ---- */

static int enter_sandbox(struct privilege_drop *c, struct err *e)
{
	return c->enter ? c->enter(c, e) : 0;
}

static int drop_bounding(struct privilege_drop *c, struct err *e)
{
	/* At level process an ordinary user cannot; no_new_privs makes the bounding set inert. */
	return c->kind == CONFINED_PROCESS && c->plan->rootless ? 0 : caps_drop_bounding(e);
}

static int keep_caps_over_ids(struct privilege_drop *c, struct err *e)
{
	if (c->changes_ids && prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0)
		return err_sys(e, "cannot keep capabilities");
	return 0;
}

/* By system calls: the C library would change the ids of all threads, and the memory may be shared. */
static int change_ids(uid_t id, struct err *e)
{
	if (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, id, id, id) < 0 ||
	    syscall(SYS_setresuid, id, id, id) < 0)
		return err_sys(e, "cannot become the sandbox's user");
	return 0;
}

static int become_user(struct privilege_drop *c, struct err *e)
{
	return c->changes_ids ? change_ids(c->uid, e) : 0;
}

int privileges_die_with_parent(int control, struct err *e)
{
	struct pollfd keeper = {control, POLLRDHUP, 0};

	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return err_sys(e, "cannot set the parent-death signal");
	/*
	 * The parent may be dead already. In pid 1 getppid is always 0, but the socket's end tells.
	 */
	if (poll(&keeper, 1, 0) != 0)
		_exit(125);
	return 0;
}

static int die_with_parent(struct privilege_drop *c, struct err *e)
{
	return privileges_die_with_parent(c->control, e);
}

static int prove_namespaces(struct privilege_drop *c, struct err *e)
{
	c->plan->page->proven |= verify_namespaces(&c->plan->host.ns, false);
	return 0;
}

static int limit_resources(struct privilege_drop *c, struct err *e)
{
	return restrict_limits(c->plan, e);
}

static int keep_warm_host_caps(struct privilege_drop *c, struct err *e)
{
	/* CAP_SETPCAP, which drops the bounding set, goes last: nothing can be made inheritable after that. */
	static const int kept[] = {CAP_SYS_ADMIN, CAP_SYS_PTRACE, CAP_SETPCAP};

	if (caps_keep(kept, ARRAY_LEN(kept), e) < 0 || caps_drop_bounding(e) < 0)
		return -1;
	return caps_keep(kept, ARRAY_LEN(kept) - 1, e);
}

/* ---- root inside ---- */

#define CAP_OF(cap) (1ull << (cap))
/* Signals for the command's processes; and their memory, for the addresses that they connect to (notify.c). */
#define WATCHERS_CAPS (CAP_OF(CAP_KILL) | CAP_OF(CAP_SYS_PTRACE) | CAP_OF(CAP_DAC_READ_SEARCH))

/*
 * The user namespace that the command will be in. Its maps may be written only by a process that is root of
 * the sandbox's, and whose files in /proc are its own, hence dumpable: nothing else runs here yet.
 */
static int make_namespace_below(struct privilege_drop *c, struct err *e)
{
	struct namespace_ids own;
	struct userns below;
	struct id_map ids;
	int rc;

	verify_read_namespaces(&own, false);
	c->plan->page->outer_user_ns = own.ids[NS_USER];
	id_map_below(&ids);
	if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
		return err_sys(e, "cannot be dumpable");
	rc = userns_create(&ids, &ids, &below, e);
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return err_sys(e, "cannot give up privileges");
	if (rc < 0)
		return -1;
	c->nested = below.fd;
	userns_release(&below);
	return 0;
}

/* An id that the namespace below does not have, with what is needed to make a process there. */
static int be_outside_of_it(struct privilege_drop *c, struct err *e)
{
	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0)
		return err_sys(e, "cannot keep capabilities");
	if (change_ids(USERNS_OUTER_ID, e) < 0)
		return -1;
	return caps_set(WATCHERS_CAPS | CAP_OF(CAP_SYS_ADMIN) | CAP_OF(CAP_SETUID) |
				CAP_OF(CAP_SETGID) | CAP_OF(CAP_SETPCAP),
			e);
}

static int keep_watchers_caps(struct privilege_drop *c, struct err *e)
{
	return caps_set(WATCHERS_CAPS, e);
}

static int keep_root_caps(struct privilege_drop *c, struct err *e)
{
	uint64_t caps = root_inside_caps(plan_root_inside(c->plan));

	return caps_bound(caps, e) < 0 ? -1 : caps_set(caps, e);
}

/* The command's own ruleset allows the second file no more. */
static int check_outer_landlock(struct privilege_drop *c, struct err *e)
{
	if (c->plan->page->landlock_abi && !verify_canary_holds(c->scratch, VERIFY_CANARY))
		return err_set(e, ERR_UNSUPPORTED, "Landlock does not hold here");
	return 0;
}

static int clear_caps(struct privilege_drop *c, struct err *e)
{
	return caps_clear(e);
}

static int take_no_new_privileges(struct privilege_drop *c, struct err *e)
{
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? err_sys(e, "cannot give up privileges")
							  : 0;
}

/* Otherwise code inside with the same uid could read and trace this process. */
static int be_undumpable(struct privilege_drop *c, struct err *e)
{
	return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ? err_sys(e, "cannot give up privileges") : 0;
}

/* Entering a user namespace made the process undumpable; a program must own its /proc/self. */
static int be_dumpable(struct privilege_drop *c, struct err *e)
{
	return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 ? err_sys(e, "cannot be dumpable") : 0;
}

static int try_canary_first(struct privilege_drop *c, struct err *e)
{
	verify_canary_opens(c->plan->page, c->scratch,
			    c->kind == CONFINED_ROOT ? VERIFY_CANARY_BELOW : VERIFY_CANARY);
	return 0;
}

/* The root is the sandbox's own: all of it may be read, and the writable places are known. */
static int grant_own_root(const struct plan *p, struct landlock *l, struct err *e)
{
	enum landlock_grant root = p->spec->root == ROOT_OVERLAY ? LANDLOCK_WRITE : LANDLOCK_READ;

	if (landlock_allow(l, AT_FDCWD, "/", root, e) < 0 ||
	    landlock_allow(l, AT_FDCWD, "/dev", LANDLOCK_DEVICE, e) < 0 ||
	    landlock_allow(l, AT_FDCWD, "/proc", LANDLOCK_DEVICE, e) < 0)
		return -1;
	for (size_t i = 0; i < WRITABLE_PLACES; i++) {
		const char *shown =
			i == WRITABLE_WORKSPACE ? p->workspace_path : writable_places[i].shown;

		if (p->saving && !place_is_beside_root(&writable_places[i]))
			continue;
		if (landlock_allow(l, AT_FDCWD, shown, LANDLOCK_WRITE, e) < 0)
			return -1;
	}
	for (size_t i = 0; p->git && i < p->git->view_count; i++)
		if (landlock_allow(l, AT_FDCWD, p->git->views[i].source.path, LANDLOCK_WRITE, e) <
		    0)
			return -1;
	for (size_t i = 0; i < p->bind_count; i++)
		if (p->binds[i].writable &&
		    landlock_allow(l, AT_FDCWD, p->binds[i].target, LANDLOCK_WRITE, e) < 0)
			return -1;
	return 0;
}

static int grant(struct privilege_drop *c, struct landlock *l, struct err *e)
{
	if (c->grant)
		return c->grant(c, l, e);
	if (c->kind == CONFINED_OUTER &&
	    landlock_allow(l, c->scratch, VERIFY_CANARY_BELOW, LANDLOCK_WRITE, e) < 0)
		return -1;
	return grant_own_root(c->plan, l, e);
}

static int apply_landlock(struct privilege_drop *c, struct err *e)
{
	struct landlock l;

	/* Where pid 1 did without it. A ruleset with scopes alone would refuse renames across directories. */
	if (c->kind == CONFINED_ROOT && !c->plan->page->landlock_abi)
		return 0;
	if (landlock_open(&l, c->kind == CONFINED_PROCESS, e) < 0 || grant(c, &l, e) < 0 ||
	    landlock_apply(&l, e) < 0)
		return -1;
	c->plan->page->landlock_abi = l.abi;
	return 0;
}

/* A filter that reports what it refuses. */
static int load_reporting_filter(struct privilege_drop *c, struct err *e)
{
	if (seccomp_load(c->profile, &c->listener, e) < 0)
		return -1;
	c->plan->page->listening = c->listener > 2;
	return 0;
}

static int load_quiet_filter(struct privilege_drop *c, struct err *e)
{
	return seccomp_load(c->profile, NULL, e);
}

/* ---- which kinds take which steps ---- */

#define PID1 (CONFINED_RUN | CONFINED_GUEST | CONFINED_WARM_HOST | OUTER)
#define OUTER (CONFINED_OUTER | CONFINED_GUEST_OUTER)
#define ROOT (CONFINED_ROOT | CONFINED_GUEST_ROOT)
#define TASKS (CONFINED_TASK | CONFINED_FORK)
#define RUNS_FOREIGN_CODE (CONFINED_RUN | CONFINED_GUEST | TASKS | CONFINED_PROCESS | ROOT)
#define ALL (RUNS_FOREIGN_CODE | CONFINED_WARM_HOST | CONFINED_REAPER | OUTER)

#define OWN (CONFINED_RUN | CONFINED_GUEST)
#define OWN_OR_PROCESS (OWN | CONFINED_PROCESS)

/*
 * layer, soft: for these kinds a failure ends the process only if the caller requires that layer;
 * otherwise verify.c will not find the layer, and the record says that it is missing.
 *
 * A spawner's tasks and a warm sandbox's pid 1 are born with an empty bounding set: their lane has emptied
 * its own.
 */
static const struct step {
	int (*take)(struct privilege_drop *c, struct err *e);
	unsigned kinds;
	enum layer layer;
	unsigned soft;
} steps[] = {
	{enter_sandbox, ALL & ~CONFINED_REAPER, 0, 0},
	{drop_bounding, OWN_OR_PROCESS | CONFINED_FORK | CONFINED_OUTER_END, LAYER_CAPS, OWN},
	{keep_caps_over_ids, CONFINED_WARM_HOST, 0, 0},
	{become_user, PID1 | CONFINED_PROCESS | ROOT, 0, 0},
	{die_with_parent, PID1 | CONFINED_PROCESS | CONFINED_GUEST_ROOT, 0, 0},
	{prove_namespaces, PID1, 0, 0},
	{limit_resources, ALL & ~CONFINED_REAPER & ~ROOT, 0, 0},
	{make_namespace_below, OUTER, 0, 0},
	{be_outside_of_it, CONFINED_OUTER, 0, 0},
	{die_with_parent, CONFINED_OUTER, 0, 0},
	{keep_warm_host_caps, CONFINED_WARM_HOST, 0, 0},
	{clear_caps, ALL & ~CONFINED_WARM_HOST & ~ROOT & ~OUTER, LAYER_CAPS, OWN},
	{keep_watchers_caps, CONFINED_OUTER_END, 0, 0},
	{take_no_new_privileges, (ALL & ~OUTER) | CONFINED_OUTER_END, 0, 0},
	{be_undumpable, PID1 | CONFINED_REAPER | CONFINED_GUEST_ROOT, 0, 0},
	{try_canary_first, RUNS_FOREIGN_CODE | CONFINED_OUTER, 0, 0},
	{apply_landlock, RUNS_FOREIGN_CODE | CONFINED_OUTER, LAYER_LANDLOCK,
	 OWN_OR_PROCESS | CONFINED_OUTER | CONFINED_GUEST_ROOT},
	{check_outer_landlock, CONFINED_OUTER, 0, 0},
	{load_reporting_filter, RUNS_FOREIGN_CODE, LAYER_SECCOMP, OWN_OR_PROCESS},
	{load_quiet_filter, CONFINED_WARM_HOST | CONFINED_REAPER | CONFINED_OUTER_END, 0, 0},
	{keep_root_caps, ROOT, 0, 0},
	{be_dumpable, CONFINED_FORK, 0, 0},
};

static bool may_fail(const struct privilege_drop *c, const struct step *s)
{
	return (s->soft & c->kind) && !(c->plan->spec->required_layers & LAYER_BIT(s->layer));
}

int privileges_give_up(struct privilege_drop *c, struct err *e)
{
	c->listener = -1;
	for (const struct step *s = steps; s < steps + ARRAY_LEN(steps); s++) {
		if (!(s->kinds & c->kind) || s->take(c, e) == 0)
			continue;
		if (!may_fail(c, s))
			return -1;
		*e = (struct err){0};
	}
	return 0;
}
