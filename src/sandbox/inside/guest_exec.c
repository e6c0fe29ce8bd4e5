/* Pid 1 of a sandbox that lives on executes the guest, which finds its fds at fixed numbers. */
#include "sandbox/inside/inside_internal.h"

#include "kern/sys.h"
#include "sandbox/inside/boot.h"
#include "sandbox/inside/warm_settings.h"
#include "sandbox/inside/privileges.h"
#include "sandbox/inside/verify.h"
#include "wire/guest.h"

#include <sys/prctl.h>

/* Behind the fds of the guest and of a warm host. Closed by the exec. */
static int program_place(const struct plan *p)
{
	return WARM_HOST_FD_JOINS + p->guest->join_count;
}

static int control_place(const struct plan *p)
{
	return program_place(p) + 1;
}

/* Above all fixed numbers. */
#define FD_LIFTED (WARM_HOST_FD_JOINS + WARM_HOST_LANES * WARM_FILES + 2)

/* First every fd is moved up, so that no fd overwrites one that is still to be placed. */
static int lift_fd(int fd)
{
	return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, FD_LIFTED);
}

static int place_fd(int fd, int place, int flags)
{
	if (fd >= 0)
		return dup3(fd, place, flags);
	close(place);
	return place;
}

static int arrange_fds(const struct plan *p, const struct inside_fds *fds, int notify,
		       struct err *e)
{
	int null = lift_fd(open("/dev/null", O_RDWR | O_CLOEXEC));
	int scratch = lift_fd(openat(fds->scratch, ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
	const struct {
		int fd, place, flags;
	} rows[] = {
		{null, 0, 0},
		{null, 1, 0},
		{null, 2, 0},
		{lift_fd(p->guest->listener), GUEST_FD_LISTENER, 0},
		{lift_fd(notify), GUEST_FD_NOTIFY, 0},
		{lift_fd(fds->dns), GUEST_FD_DNS, 0},
		{scratch, GUEST_FD_SCRATCH, 0},
		{lift_fd(p->guest->settings), WARM_HOST_FD_SETTINGS, 0},
		{lift_fd(p->guest->program), program_place(p), O_CLOEXEC},
		{lift_fd(fds->control), control_place(p), O_CLOEXEC},
	};

	int joins[WARM_HOST_LANES * WARM_FILES];

	if (null < 0 || scratch < 0)
		return err_sys(e, "cannot open what the guest needs");
	for (int i = 0; i < p->guest->join_count; i++)
		joins[i] = lift_fd(p->guest->joins[i]);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (place_fd(rows[i].fd, rows[i].place, rows[i].flags) < 0)
			return err_sys(e, "cannot arrange the guest's files");
	for (int i = 0; i < p->guest->join_count; i++)
		if (place_fd(joins[i], WARM_HOST_FD_JOINS + i, 0) < 0)
			return err_sys(e, "cannot arrange the files of cgroups");
	if (sys_close_range((unsigned)control_place(p) + 1, ~0u, 0) < 0)
		return err_sys(e, "cannot close files");
	return 0;
}

/* A warm host gets the modules of its interpreter, a guest the limits that no cgroup enforces. */
static void exec_program(struct plan *p)
{
	const struct boot_warm_host *host = p->guest->warm_host;
	const struct limits *l = &p->spec->limits;
	char **argv = must_alloc(calloc(14 + (host ? host->modules.count : 0), sizeof(*argv)));
	size_t n = 0;

	argv[n++] = "cloche-guest";
	argv[n++] = host ? "warm-host" : "init";
	for (size_t i = 0; host && i < host->modules.count; i++)
		argv[n++] = host->modules.items[i];
	if (!host) {
		argv[n++] = "--pids";
		argv[n++] = str_format("%" PRIu64, l->pids);
	}
	if (!host && !(p->page->proven & LAYER_BIT(LAYER_MEMORY))) {
		argv[n++] = "--memory";
		argv[n++] = str_format("%" PRIu64, l->memory_bytes);
	}
	if (p->as_root) {
		argv[n++] = "--root-inside";
		argv[n++] = str_format("%d", (int)plan_root_inside(p));
	}
	if (!host && p->guest->survives) {
		argv[n++] = "--lives-on";
		argv[n++] = "1";
	}
	if (!host && p->guest->settings >= 0) {
		argv[n++] = "--own-seccomp";
		argv[n++] = "1";
	}
	syscall(SYS_execveat, program_place(p), "", argv, p->env.items, AT_EMPTY_PATH);
}

void guest_exec(struct plan *p, struct inside_fds *fds, int notify)
{
	struct status_page *b = p->page;

	b->proven |= verify_privileges(p, fds->scratch);
	if (arrange_fds(p, fds, notify, &b->err) < 0)
		_exit(125);
	/*
	 * The fds that stay open for the guest reach none of its commands: the guest closes them on
	 * exec.
	 */
	b->proven |= verify_fds(control_place(p));
	if (verify_required(p, &b->err) < 0 || restrict_command(p, &b->err) < 0)
		_exit(125);
	(void)!chdir("/");
	umask(022);
	command_unblock_signals();
	/* A guest clears it by itself, once the daemon knows the sandbox. */
	if (p->guest->warm_host && p->guest->survives && prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0) < 0)
		_exit(125);
	b->stage = STAGE_RUNNING;
	exec_program(p);
	b->exec_errno = errno;
	_exit(127);
}
