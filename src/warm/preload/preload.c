/*
 * The zygote's side in C: this object is preloaded into the interpreter (LD_PRELOAD) and replaces
 * fork().
 *
 * zygote.py calls fork() three times when all modules are loaded. Two calls are for samplers
 * (pages.h) and return as usual. The third never returns in the caller, which from then on waits
 * for orders of the warm host's pid 1 on CLOCHE_ZYGOTE_FD. For each order it creates a child in the
 * pid namespace of a warm sandbox (warm/warm.h), and in the child, with every layer in place,
 * fork() returns 0. Later calls, in the child, are the C library's fork.
 *
 * The child's parent is the warm host's pid 1 (CLONE_PARENT), which therefore learns from the
 * kernel how the child ended. The C library does not know of such a clone. The thread id that it
 * keeps is corrected by the kernel, which writes the new id to the address that the C library
 * registered (PR_GET_TID_ADDRESS).
 */
#include "kern/sys.h"
#include "warm/warm.h"
#include "sandbox/inside/message.h"
#include "warm/preload/pages.h"
#include "warm/preload/zygote.h"

#include <dlfcn.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#ifndef PR_GET_TID_ADDRESS
#define PR_GET_TID_ADDRESS 40
#endif

static int *tid_address;

static int answer(int control, int pid, const struct err *e)
{
	struct zygote_answer a = {.pid = pid};

	if (e)
		a.err = *e;
	return send(control, &a, sizeof(a), MSG_NOSIGNAL) == (ssize_t)sizeof(a) ? 0 : -1;
}

/* Where a child goes on: on its copy of the interpreter's own stack. */
static void *resume[5];

static void enter_and_resume(const struct warm_entry *entry)
{
	if (warm_enter(entry) < 0)
		_exit(125);
	__builtin_longjmp(resume, 1);
}

/*
 * Turns to the warm sandbox's pid namespace and makes a child of our parent's there. Returns its
 * pid as we see it, or -1.
 */
static pid_t fork_into(const struct warm_entry *entry, struct err *e)
{
	const unsigned long flags = CLONE_PARENT | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
	pid_t pid;

	if (setns(entry->sandbox, CLONE_NEWPID) < 0)
		return err_sys(e, "cannot turn to a warm sandbox");
	/* Not clone3, which a warm interpreter may not call: its filter cannot see the flags. */
	pid = sys_clone_fork(flags, tid_address);
	if (pid == 0)
		enter_and_resume(entry);
	return pid < 0 ? err_sys(e, "cannot create a process in the warm sandbox") : pid;
}

/* Carries out one order, in the interpreter; children go on from `resume`. */
static void carry_out(int control, const struct warm_settings *settings, const int *fds)
{
	static struct warm_entry entry;
	struct err e = {0};
	pid_t pid;

	entry = (struct warm_entry){.settings = settings,
				    .sandbox = fds[0],
				    .scratch = fds[1],
				    .report = fds[2],
				    .streams = {fds[3], fds[4], fds[5]}};
	memcpy(entry.joins, fds + 6, sizeof(entry.joins));
	pid = fork_into(&entry, &e);
	for (int i = 0; i < ZYGOTE_FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	if (answer(control, pid, pid < 0 ? &e : NULL) < 0)
		_exit(0);
}

static void make_ready(int control)
{
	struct err e = {0};

	if (prctl(PR_GET_TID_ADDRESS, &tid_address, 0, 0, 0) < 0 || !tid_address) {
		err_set(&e, ERR_UNSUPPORTED,
			"this kernel does not tell what a warm interpreter must know");
		answer(control, -1, &e);
		_exit(1);
	}
	if (answer(control, 0, NULL) < 0)
		_exit(0);
}

/* Serves until the warm host is gone; returns only in a child. */
static __attribute__((noinline)) void wait_for_orders(int control)
{
	static struct warm_settings settings;
	int fds[KEEPER_MAX_FDS];
	struct err e = {0};

	make_ready(control);
	if (__builtin_setjmp(resume) != 0)
		return;
	while (message_receive(control, &settings, sizeof(settings), fds, &e) == 0)
		carry_out(control, &settings, fds);
	_exit(0);
}

pid_t fork(void)
{
	static pid_t (*real)(void);
	static enum { SAMPLER, SECOND_SAMPLER, TASKS, OTHERS } next;
	const char *fd = getenv(ZYGOTE_ENV);
	int control;

	if (!real)
		real = (pid_t(*)(void))dlsym(RTLD_NEXT, "fork");
	/* A task may have a variable of that name. */
	if (!fd || next == OTHERS)
		return real();
	if (next++ < TASKS)
		return pages_send_sampler(real);
	control = atoi(fd);
	pages_take_report();
	/* Children of a task must not load this object again. */
	unsetenv("LD_PRELOAD");
	unsetenv("LD_BIND_NOW");
	unsetenv(ZYGOTE_ENV);
	wait_for_orders(control);
	pages_touch();
	return 0;
}

void _exit(int status)
{
	pages_report();
	syscall(SYS_exit_group, status);
	__builtin_unreachable();
}
