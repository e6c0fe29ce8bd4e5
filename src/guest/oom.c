#include "guest/oom.h"

#include "base/auto.h"
#include "base/io.h"
#include "base/str.h"
#include "guest/command.h"
#include "guest/tree.h"
#include "sandbox/watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

struct watch_state {
	struct guest *guest;
	struct loop_timer timer;
	struct limits limits;
	struct watch watch;
};

static uint64_t memory_of(const char *pid)
{
	char text[2048];
	const char *anon, *shared;

	io_read_path(text, sizeof(text), "/proc/%.16s/status", pid);
	anon = strstr(text, "RssAnon:");
	shared = strstr(text, "RssShmem:");
	return (anon ? strtoull(anon + 8, NULL, 10) : 0) +
	       (shared ? strtoull(shared + 9, NULL, 10) : 0);
}

static pid_t find_largest(void)
{
	DIR *proc = opendir("/proc");
	uint64_t most = 0;
	pid_t found = 0;

	for (struct dirent *d; proc && (d = readdir(proc));) {
		uint64_t memory;

		if (d->d_name[0] < '1' || d->d_name[0] > '9' || atoi(d->d_name) == getpid())
			continue;
		memory = memory_of(d->d_name);
		if (memory > most) {
			most = memory;
			found = atoi(d->d_name);
		}
	}
	if (proc)
		closedir(proc);
	return found;
}

static void kill_largest(struct guest *g)
{
	pid_t pid = find_largest();
	struct command *c;

	if (pid <= 0)
		return;
	c = command_find(g, tree_owner(g->boot_id, pid));
	if (c && !c->reaped && c->exit.why == GUEST_WHY_NONE)
		c->exit.why = GUEST_WHY_OOM;
	kill(pid, SIGKILL);
}

static void on_timer(void *arg)
{
	struct watch_state *w = arg;
	struct guest *g = w->guest;

	if (watch_check(&w->watch, g->board) == WATCH_MEMORY)
		kill_largest(g);
	/* What a command left behind counts, too, but is looked at more seldom. */
	loop_timer_set(g->loop, &w->timer, command_running(g) ? WATCH_INTERVAL_MS : 500);
}

void oom_watch(struct guest *g)
{
	struct watch_state *w = g->watch;

	/* Outside of a pid namespace the largest process would be somebody else's. */
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
