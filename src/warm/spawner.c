/*
 * The spawner of a lane: makes the task of each new warm sandbox, for commands, ahead of any
 * request.
 *
 * Theory of operation
 *
 * The lane forks the spawner, so the spawner is in the lane's user, uts and cgroup namespaces and
 * in its cgroup, with an empty bounding set. A task inherits all that, and enters the namespaces of
 * its warm sandbox. The spawner turns to one pid namespace after the other for its children. A lane
 * cannot do that: it could not turn back, and has to make new ones. Tasks are siblings of the
 * spawner (CLONE_PARENT), so the warm host's pid 1 learns from the kernel how they ended.
 *
 * A task shares the spawner's memory until its exec (CLONE_VM): nothing has to be copied for the
 * task, nor torn down when it executes the command, which a client waits for. No code of a run ever
 * runs in that memory, and the memory is never dumpable. Meanwhile the spawner sleeps, in a call
 * that leaves errno alone, until the next warm sandbox reports that it is ready. By then the last
 * one is dead, and its task with it.
 */
#include "warm/warm_internal.h"

#include "kern/sys.h"
#include "sandbox/inside/message.h"

#include <sched.h>
#include <sys/prctl.h>

#define STACK_SIZE (64u << 10)

/* ---- the task ---- */

struct task_start {
	const struct spawner_settings *settings;
	struct warm_entry entry;
};

static int task_main(void *arg)
{
	struct task_start *b = arg;
	sigset_t none;

	/*
	 * Its ancestors block all signals and wait for them; they have no handlers, and ignore
	 * none.
	 */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	prctl(PR_SET_NAME, "task", 0, 0, 0);
	if (warm_enter(&b->entry) == 0)
		b->settings->run(b->settings->arg);
	_exit(125);
}

/* ---- the spawner ---- */

static int open_streams(int ours[3], int theirs[3], struct err *e)
{
	for (int i = 0; i < 3; i++)
		if (io_open_stream(i, &ours[i], &theirs[i]) < 0)
			return err_sys(e, "cannot make a pipe");
	return 0;
}

/* The warm host learns of the warm sandbox before it hears of the task. */
static int spawn_task(struct task_start *b, const int sandbox[WARM_FDS_ALL], int control,
		      struct err *e)
{
	static char stack[STACK_SIZE] __attribute__((aligned(16)));
	const int flags = CLONE_VM | CLONE_PARENT | CLONE_PARENT_SETTID;
	struct warm_message m = {.news = WARM_READY};
	int told[WARM_FDS] = {
		sandbox[WARM_PIDFD], sandbox[WARM_SCRATCH], sandbox[WARM_MOUNTS], -1, -1, -1};

	if (open_streams(told + WARM_STREAMS, b->entry.streams, e) < 0)
		return -1;
	b->entry.scratch = sandbox[WARM_SCRATCH];
	b->entry.mounts = sandbox[WARM_MOUNTS];
	b->entry.ipc = sandbox[WARM_IPC];
	b->entry.net = sandbox[WARM_NET];
	if (message_send(control, &m, sizeof(m), told, WARM_FDS, e) < 0)
		return -1;
	if (setns(sandbox[WARM_PIDS], CLONE_NEWPID) < 0)
		return err_sys(e, "cannot turn to a warm sandbox");
	if (clone(task_main, stack + STACK_SIZE, flags, b, b->settings->task, NULL, NULL) < 0)
		return err_sys(e, "cannot create a process in the warm sandbox");
	return 0;
}

enum { CONTROL = 3, SANDBOXES, OTHERS };

static void serve_sandboxes(const struct warm_settings *t, const struct spawner_settings *s)
	__attribute__((noreturn));
static void serve_sandboxes(const struct warm_settings *t, const struct spawner_settings *s)
{
	static struct task_start start;
	int sandbox[KEEPER_MAX_FDS];
	struct warm_message m;

	start = (struct task_start){
		.settings = s, .entry = {.settings = t, .by_spawner = true, .report = CONTROL}};
	while (message_receive(SANDBOXES, &m, sizeof(m), sandbox, &m.told.err) == 0) {
		if (m.news == WARM_READY && spawn_task(&start, sandbox, CONTROL, &m.told.err) < 0)
			m.news = WARM_FAILED;
		if (m.news == WARM_FAILED &&
		    message_send(CONTROL, &m, sizeof(m), NULL, 0, &m.told.err) < 0)
			break;
		sys_close_range(OTHERS, ~0u, 0);
	}
	_exit(0);
}

/*
 * No other fd of the warm host may reach a warm sandbox. The spawner ends when the lane and its
 * warm sandboxes are gone, and with them the other end of the socket. Fds 0 to 2 are filled because
 * a task's streams go there: no received fd may have such a number.
 */
static int keep_two(int control, int sandboxes)
{
	control = fcntl(control, F_DUPFD_CLOEXEC, OTHERS);
	sandboxes = fcntl(sandboxes, F_DUPFD_CLOEXEC, OTHERS);
	for (int i = 0; i < CONTROL; i++)
		if (dup2(sandboxes, i) < 0)
			return -1;
	if (dup2(control, CONTROL) < 0 || dup2(sandboxes, SANDBOXES) < 0)
		return -1;
	return sys_close_range(OTHERS, ~0u, 0);
}

int spawner_start(const struct warm_settings *t, const struct spawner_settings *s, int control,
		  int *ret_sandboxes, struct err *e)
{
	int pair[2];
	pid_t pid;

	if (message_pair(pair, e) < 0)
		return -1;
	pid = sys_clone_fork(CLONE_PARENT, NULL);
	if (pid == 0) {
		prctl(PR_SET_NAME, "spawner", 0, 0, 0);
		if (keep_two(control, pair[0]) < 0)
			_exit(1);
		serve_sandboxes(t, s);
	}
	*s->spawner = pid;
	close(pair[0]);
	*ret_sandboxes = pair[1];
	return pid < 0 ? err_sys(e, "cannot create a spawner") : 0;
}
