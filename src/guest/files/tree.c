/*
 * Finds all processes that come from one command, by its mark and by ancestry, group and session.
 */
#include "guest/files/tree.h"

#include "kern/procs.h"

#include <sys/resource.h>

#define BASE (1ull << 61)

uint64_t tree_mark(uint64_t boot_id, uint32_t eid)
{
	return BASE | (boot_id & 0xfffffff) << 32 | eid;
}

static uint64_t mark_of(pid_t pid)
{
	struct rlimit r;

	return prlimit(pid, RLIMIT_RTTIME, NULL, &r) < 0 ? 0 : r.rlim_max;
}

uint32_t tree_owner(uint64_t boot_id, pid_t pid)
{
	uint64_t mark = mark_of(pid);

	return mark >> 32 == tree_mark(boot_id, 0) >> 32 ? (uint32_t)mark : 0;
}

int tree_move(pid_t pid, uint64_t mark)
{
	const struct rlimit r = {mark, mark};

	return prlimit(pid, RLIMIT_RTTIME, &r, NULL);
}

/* ---- processes ---- */

struct tree_process {
	pid_t pid, parent, group, session;
	bool member;
};

struct tree_processes {
	struct tree_process *items;
	size_t count, room;
};

/* False: the process is dead, or gone. */
static bool read_process(pid_t pid, struct tree_process *ret)
{
	long long f[PROCS_FIELDS];

	if (!procs_stat(pid, f) || f[PROCS_STATE] == 'Z' || f[PROCS_STATE] == 'X')
		return false;
	*ret = (struct tree_process){.pid = pid,
				     .parent = (pid_t)f[PROCS_PARENT],
				     .group = (pid_t)f[PROCS_GROUP],
				     .session = (pid_t)f[PROCS_SESSION]};
	return true;
}

pid_t tree_parent(pid_t pid)
{
	struct tree_process process;

	return read_process(pid, &process) ? process.parent : -1;
}

static void add_process(void *arg, pid_t pid)
{
	struct tree_processes *t = arg;
	struct tree_process process;

	if (!read_process(pid, &process))
		return;
	t->items = array_room(t->items, t->count, &t->room, sizeof(process));
	t->items[t->count++] = process;
}

static bool is_related(const struct tree_processes *t, const struct tree_process *process)
{
	for (size_t i = 0; i < t->count; i++) {
		const struct tree_process *m = &t->items[i];

		if (m->member && (process->parent == m->pid || process->group == m->pid ||
				  process->session == m->pid))
			return true;
	}
	return false;
}

/* Marks members until nothing changes. This process is never among them. */
static void find_members(struct tree_processes *t, uint64_t mark, pid_t root)
{
	pid_t self = getpid();
	bool changed = true;

	for (size_t i = 0; i < t->count; i++) {
		struct tree_process *process = &t->items[i];

		if (process->pid == self)
			continue;
		process->member = mark_of(process->pid) == mark ||
				  (root && (process->pid == root || process->session == root ||
					    process->group == root));
	}
	while (changed) {
		changed = false;
		for (size_t i = 0; i < t->count; i++) {
			struct tree_process *process = &t->items[i];

			if (process->member || process->pid == self || !is_related(t, process))
				continue;
			process->member = changed = true;
		}
	}
}

size_t tree_signal(uint64_t mark, pid_t root, int sig)
{
	struct tree_processes t = {0};
	size_t count = 0;

	procs_each(add_process, &t);
	find_members(&t, mark, root);
	for (size_t i = 0; i < t.count; i++)
		if (t.items[i].member && kill(t.items[i].pid, sig) == 0)
			count++;
	free(t.items);
	return count;
}
