/*
 * Memory where no cgroup limits it (rule 18): sums up what all processes use while there are any.
 * When the sum is too large, the largest process is killed, as the kernel would do.
 */
#include "guest/exec/command.h"
#include "guest/files/tree.h"
#include "kern/procs.h"
#include "sandbox/inside/watch.h"

struct watch_state {
	struct guest *guest;
	struct loop_timer timer;
	struct limits limits;
	struct watch watch;
};

struct largest {
	pid_t pid;
	uint64_t bytes;
};

static void compare_memory(void *arg, pid_t pid)
{
	struct largest *l = arg;
	char status[2048];
	uint64_t bytes;

	if (pid == getpid() || procs_read(pid, "status", status, sizeof(status)) <= 0)
		return;
	bytes = procs_memory_bytes(status);
	if (bytes > l->bytes)
		*l = (struct largest){pid, bytes};
}

static void kill_largest(struct guest *g)
{
	struct largest largest = {0};
	struct command *c;

	procs_each(compare_memory, &largest);
	if (!largest.pid)
		return;
	c = command_find(g, tree_owner(g->boot_id, largest.pid));
	if (c && !c->reaped && c->exit.why == GUEST_WHY_NONE)
		c->exit.why = GUEST_WHY_OOM;
	kill(largest.pid, SIGKILL);
}

static void on_timer(void *arg)
{
	struct watch_state *w = arg;
	struct guest *g = w->guest;

	if (watch_check(&w->watch, g->page) == WATCH_MEMORY)
		kill_largest(g);
	/* Processes that a command left behind count, too, but are checked less often. */
	loop_timer_set(g->loop, &w->timer, command_running(g) ? WATCH_INTERVAL_MS : 500);
}

void oom_watch(struct guest *g)
{
	struct watch_state *w = g->watch;

	/* Outside of a pid namespace the largest process could be a stranger's. */
	if (!g->options.memory_bytes || getpid() != 1)
		return;
	if (!w) {
		w = g->watch = must_alloc(calloc(1, sizeof(*w)));
		w->guest = g;
		w->limits.memory_bytes = g->options.memory_bytes;
		w->limits.pids = g->options.pids ? g->options.pids : UINT64_MAX;
		watch_init(&w->watch, &w->limits, 0);
		w->timer = (struct loop_timer){.call = on_timer, .arg = w};
	}
	loop_timer_set(g->loop, &w->timer, 0);
}

void oom_stop(struct guest *g)
{
	if (g->watch)
		loop_timer_stop(g->loop, &g->watch->timer);
	free(g->watch);
}
