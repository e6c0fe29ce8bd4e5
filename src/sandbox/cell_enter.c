/* From a new process to the last layer, in a cell that is ready; see cell.h. */
#include "sandbox/cell.h"

#include "base/auto.h"
#include "base/str.h"
#include "kern/caps.h"
#include "kern/landlock.h"
#include "kern/seccomp.h"
#include "kern/sys.h"
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
#include <sys/stat.h>

/* ---- birth ---- */

struct midwife {
	const struct cell_birth *birth;
	int errnum;
	pid_t pid;
};

/* Shares memory with the caller, which sleeps meanwhile. */
static int help(void *arg)
{
	struct midwife *m = arg;
	const struct cell_birth *b = m->birth;
	struct clone_args args = {.flags = CLONE_PARENT};

	if (b->tid_address) {
		args.flags |= CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
		args.child_tid = (uint64_t)(uintptr_t)b->tid_address;
	}
	if (setns(b->cell, CLONE_NEWPID) == 0) {
		m->pid = sys_clone3(&args);
		if (m->pid == 0)
			b->born(b->arg);
	}
	m->errnum = errno;
	_exit(0);
}

pid_t cell_bear(const struct cell_birth *b, struct err *e)
{
	static char stack[32 << 10] __attribute__((aligned(16)));
	struct midwife m = {.birth = b, .pid = -1};
	const int flags = CLONE_VM | CLONE_VFORK | (b->sibling ? CLONE_PARENT : SIGCHLD);

	if (clone(help, stack + sizeof(stack), flags, &m) < 0)
		return err_sys(e, "cannot create a process");
	if (m.pid < 0) {
		errno = m.errnum;
		return err_sys(e, "cannot create a process in the cell");
	}
	return m.pid;
}

/* ---- what is proven by looking ---- */

/* Every namespace is looked at by itself: they were entered by setns, not made by one clone. */
static layer_set look_at_namespaces(const struct cell_terms *t)
{
	static const struct {
		const char *name;
		enum layer layer;
	} rows[CELL_NAMESPACES] = {
		[NS_USER] = {"user", LAYER_USER_NS},	   [NS_PID] = {"pid", LAYER_PID_NS},
		[NS_MOUNT] = {"mnt", LAYER_MOUNT_NS},	   [NS_NET] = {"net", LAYER_NET_NS},
		[NS_IPC] = {"ipc", LAYER_IPC_NS},	   [NS_UTS] = {"uts", LAYER_UTS_NS},
		[NS_CGROUP] = {"cgroup", LAYER_CGROUP_NS}, [NS_TIME] = {NULL, LAYER_TIME_NS},
	};
	layer_set proven = 0;

	for (int i = 0; i < CELL_NAMESPACES; i++) {
		char path[64];
		struct stat st;

		if (!rows[i].name)
			continue;
		snprintf(path, sizeof(path), "/proc/self/ns/%s", rows[i].name);
		if (t->outside[i] && stat(path, &st) == 0 && st.st_ino != t->outside[i])
			proven |= LAYER_BIT(rows[i].layer);
	}
	return proven;
}

/*
 * In the cgroup that the cgroup namespace is rooted in, with each controller that limits: all their
 * lines of /proc/self/cgroup then read "/". A write that only seemed to join would show another path.
 */
static bool is_in_slot_cgroup(void)
{
	static const char *const wanted[] = {":memory:", ":pids:", ":cpu:", ":cpu,", ",cpu:"};
	char text[4096];
	auto_close int fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	int seen = 0;

	text[n > 0 ? n : 0] = '\0';
	for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
		bool counts = false;

		*end = '\0';
		for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
			counts = counts || strstr(line, wanted[i]);
		/* On v2 there is nothing but this one. */
		counts = counts ||
			 (str_starts(line, "0::") && line == text && !strchr(end + 1, '\n'));
		if (counts && !str_equal(strrchr(line, ':'), ":/"))
			return false;
		seen += counts;
	}
	return seen > 0;
}

/* ---- what is done ---- */

static int enter_namespaces(const struct cell_entry *c, struct err *e)
{
	const int all = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWUTS |
			CLONE_NEWCGROUP;

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

static int give_up(struct plan *p, int scratch, int *ret_listener, struct err *e)
{
	if (restrict_limits(p, e) < 0 || caps_drop_bounding(e) < 0 || caps_clear(e) < 0)
		return -1;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_sys(e, "cannot give up privileges");
	verify_canary_opens(p->board, scratch);
	if (restrict_paths(p->board, e) < 0 ||
	    seccomp_load(&seccomp_profile_default, ret_listener, e) < 0)
		return -1;
	p->board->listening = *ret_listener > 2;
	/* Entering a user namespace made it otherwise; a program's own /proc/self is its own. */
	if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
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

/* Tells, lets go of everything above 2, and looks whether that is so; if not, nothing runs. */
static int tell(const struct cell_entry *c, struct cell_report *r, int listener)
{
	struct err ignored;
	int rc;

	rc = message_send(c->report, r, sizeof(*r), &listener, listener < 0 ? 0 : 1, &ignored);
	if (sys_close_range(3, ~0u, 0) < 0 || verify_fds(2) == 0)
		_exit(125);
	return r->err.kind == ERR_NONE ? rc : -1;
}

int cell_enter(const struct cell_entry *c)
{
	struct sandbox_spec spec = {.level = LEVEL_CONTAINER, .limits = c->terms->limits};
	static struct board board;
	struct plan p = {.spec = &spec,
			 .board = &board,
			 .rootless = true, /* one id is mapped, as for an ordinary user */
			 .workspace_mode = WORKSPACE_EMPTY,
			 .image_is_host = c->terms->image_is_host};
	struct cell_report report = {0};
	int listener = -1;

	if (enter_namespaces(c, &report.err) == 0) {
		board.proven = look_at_namespaces(c->terms);
		if (c->terms->cgroup_layers && is_in_slot_cgroup())
			board.proven |= c->terms->cgroup_layers;
		if (give_up(&p, c->scratch, &listener, &report.err) == 0 &&
		    attach(c, &report.err) == 0) {
			board.proven |= verify_privileges(&p, c->scratch);
			(void)restrict_open_files(&p, &report.err);
		}
	}
	board.proven |= LAYER_BIT(LAYER_FDS); /* tell() sees to it */
	if (report.err.kind == ERR_NONE)
		check_required(c->terms, board.proven, &report.err);
	report.proven = board.proven;
	report.landlock_abi = board.landlock_abi;
	report.listening = board.listening;
	return tell(c, &report, listener);
}
