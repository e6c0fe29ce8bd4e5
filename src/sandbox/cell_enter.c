/* From a new process to the last layer, in a cell that is ready; see cell.h. */
#include "sandbox/cell.h"

#include "base/auto.h"
#include "kern/caps.h"
#include "kern/landlock.h"
#include "kern/seccomp.h"
#include "kern/sys.h"
#include "sandbox/cell_look.h"
#include "sandbox/message.h"
#include "sandbox/plan.h"
#include "sandbox/restrict.h"
#include "sandbox/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

/* ---- birth ---- */

pid_t cell_bear(const struct cell_birth *b, struct err *e)
{
	const unsigned long flags = CLONE_PARENT | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
	pid_t pid;

	if (setns(b->cell, CLONE_NEWPID) < 0)
		return err_sys(e, "cannot turn to a cell");
	/* Not clone3, which a warm interpreter may not call: its filter cannot see the flags. */
	pid = sys_clone_fork(flags, b->tid_address);
	if (pid == 0)
		b->born(b->arg);
	return pid < 0 ? err_sys(e, "cannot create a process in the cell") : pid;
}

/* ---- what is done ---- */

static int enter_namespaces(const struct cell_entry *c, struct err *e)
{
	const int all = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWUTS |
			CLONE_NEWCGROUP;

	/* By themselves: by the pidfd of what is not dumpable only who has power over it may. */
	if (c->by_midwife) {
		if (setns(c->mounts, CLONE_NEWNS) < 0 || setns(c->ipc, CLONE_NEWIPC) < 0 ||
		    setns(c->net, CLONE_NEWNET) < 0)
			return err_sys(e, "cannot enter the cell");
		return 0;
	}
	for (int i = 0; i < c->terms->join_count; i++)
		if (write(c->joins[i], "0", 1) != 1)
			return err_sys(e, "cannot join the slot's cgroup");
	if (setns(c->cell, all) < 0)
		return err_sys(e, "cannot enter the cell");
	return 0;
}

static int restrict_paths(struct board *b, struct err *e)
{
	static const struct {
		const char *path;
		enum landlock_grant grant;
	} rows[] = {
		{"/", LANDLOCK_READ},		{"/dev", LANDLOCK_DEVICE},
		{"/proc", LANDLOCK_DEVICE},	{"/tmp", LANDLOCK_WRITE},
		{"/var/tmp", LANDLOCK_WRITE},	{"/dev/shm", LANDLOCK_WRITE},
		{SANDBOX_HOME, LANDLOCK_WRITE}, {"/workspace", LANDLOCK_WRITE},
	};
	struct landlock l;

	if (landlock_open(&l, false, e) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (landlock_allow(&l, AT_FDCWD, rows[i].path, rows[i].grant, e) < 0)
			return -1;
	if (landlock_apply(&l, e) < 0)
		return -1;
	b->landlock_abi = l.abi;
	return 0;
}

static int give_up(const struct cell_entry *c, struct plan *p, int *ret_listener, struct err *e)
{
	/* A slot has emptied its bounding set; what is left of it would be found later. */
	if (restrict_limits(p, e) < 0 || (!c->by_midwife && caps_drop_bounding(e) < 0) ||
	    caps_clear(e) < 0)
		return -1;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_sys(e, "cannot give up privileges");
	verify_canary_opens(p->board, c->scratch);
	if (restrict_paths(p->board, e) < 0 ||
	    seccomp_load(&seccomp_profile_default, ret_listener, e) < 0)
		return -1;
	p->board->listening = *ret_listener > 2;
	/* Entering a user namespace made it otherwise; a program's own /proc/self is its own. */
	if (!c->by_midwife && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
		return err_sys(e, "cannot be dumpable");
	return 0;
}

static int attach(const struct cell_entry *c, struct err *e)
{
	if (setsid() < 0)
		return err_sys(e, "cannot start a session");
	for (int i = 0; i < 3; i++)
		if (dup2(c->streams[i], i) < 0)
			return err_sys(e, "cannot attach the standard streams");
	return 0;
}

static int check_required(const struct cell_terms *t, layer_set proven, struct err *e)
{
	layer_set lacking = t->required & ~proven;

	for (int i = 0; i < LAYER_COUNT; i++)
		if (lacking & LAYER_BIT(i))
			return err_set(e, ERR_UNSUPPORTED,
				       "layer %s is required but did not hold when tried",
				       layer_name((enum layer)i));
	return 0;
}

/* All but the two that are told by, which go to 3 and 4; looks whether that is so. */
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

/* Tells, and lets go of those as well; if that is not so, nothing runs. */
static int tell(const struct cell_message *m, bool by_midwife, int report, int listener)
{
	const struct cell_report *r = &m->told;
	struct err ignored;
	int rc;

	rc = message_send(report, by_midwife ? (const void *)m : r,
			  by_midwife ? sizeof(*m) : sizeof(*r), &listener, listener < 0 ? 0 : 1,
			  &ignored);
	if (sys_close_range(3, ~0u, 0) < 0 || verify_fds(2) == 0)
		_exit(125);
	return r->err.kind == ERR_NONE ? rc : -1;
}

/* Everything up to the last layer; what held is in the board. */
static void confine(const struct cell_entry *c, struct plan *p, int *ret_listener, struct err *e)
{
	struct board *b = p->board;

	if (enter_namespaces(c, e) < 0)
		return;
	b->proven = cell_look_at_namespaces(c->terms);
	if (c->terms->cgroup_layers && cell_is_in_cgroup())
		b->proven |= c->terms->cgroup_layers;
	if (give_up(c, p, ret_listener, e) < 0 || attach(c, e) < 0)
		return;
	b->proven |= verify_privileges(p, c->scratch);
	/* The nest's own places are not this tenant's. */
	if (!cell_places_are_own(c->terms, c->scratch))
		b->proven &= ~(LAYER_BIT(LAYER_ROOT) | LAYER_BIT(LAYER_DISK));
	(void)restrict_command(p, e);
}

int cell_enter(const struct cell_entry *c)
{
	struct sandbox_spec spec = {.level = LEVEL_CONTAINER, .limits = c->terms->limits};
	static struct board board;
	struct plan p = {.spec = &spec,
			 .board = &board,
			 .rootless = true, /* one id is mapped, as for an ordinary user */
			 .uid = c->terms->caller_is_root ? 0 : SANDBOX_UID,
			 .workspace_mode = WORKSPACE_EMPTY,
			 .image_is_host = c->terms->image_is_host};
	struct cell_message m = {.news = CELL_SEATED};
	int listener = -1, to = c->report;

	/* In a midwife's memory it is that of the last tenant. */
	board.proven = 0;
	board.canary_opens = board.listening = false;
	board.landlock_abi = 0;
	confine(c, &p, &listener, &m.told.err);
	board.proven |= close_others(&to, &listener);
	if (m.told.err.kind == ERR_NONE)
		check_required(c->terms, board.proven, &m.told.err);
	m.told.proven = board.proven;
	m.told.landlock_abi = board.landlock_abi;
	m.told.listening = board.listening;
	return tell(&m, c->by_midwife, to, listener);
}
