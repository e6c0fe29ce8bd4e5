/*
 * Finds all processes that come from one command, by its mark and by ancestry, group and
 * session.
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

/* ---- what runs ---- */

struct task {
	pid_t pid, parent, group, session;
	bool member;
};

struct tasks {
	struct task *items;
	size_t count, room;
};

/* False: it is dead, or gone. */
static bool read_task(pid_t pid, struct task *ret)
{
	long long f[PROCS_FIELDS];

	if (!procs_stat(pid, f) || f[PROCS_STATE] == 'Z' || f[PROCS_STATE] == 'X')
		return false;
	*ret = (struct task){.pid = pid,
			     .parent = (pid_t)f[PROCS_PARENT],
			     .group = (pid_t)f[PROCS_GROUP],
			     .session = (pid_t)f[PROCS_SESSION]};
	return true;
}

pid_t tree_parent(pid_t pid)
{
	struct task task;

	return read_task(pid, &task) ? task.parent : -1;
}

static void add_task(void *arg, pid_t pid)
{
	struct tasks *t = arg;
	struct task task;

	if (!read_task(pid, &task))
		return;
	t->items = array_room(t->items, t->count, &t->room, sizeof(task));
	t->items[t->count++] = task;
}

static bool is_related(const struct tasks *t, const struct task *task)
{
	for (size_t i = 0; i < t->count; i++) {
		const struct task *m = &t->items[i];

		if (m->member &&
		    (task->parent == m->pid || task->group == m->pid || task->session == m->pid))
			return true;
	}
	return false;
}

/* Marks members until nothing changes; ours and strangers' are never among them. */
static void find_members(struct tasks *t, uint64_t mark, pid_t root)
{
	pid_t self = getpid();
	bool changed = true;

	for (size_t i = 0; i < t->count; i++) {
		struct task *task = &t->items[i];

		if (task->pid == self)
			continue;
		task->member = mark_of(task->pid) == mark ||
			       (root && (task->pid == root || task->session == root ||
					 task->group == root));
	}
	while (changed) {
		changed = false;
		for (size_t i = 0; i < t->count; i++) {
			struct task *task = &t->items[i];

			if (task->member || task->pid == self || !is_related(t, task))
				continue;
			task->member = changed = true;
		}
	}
}

size_t tree_signal(uint64_t mark, pid_t root, int sig)
{
	struct tasks t = {0};
	size_t count = 0;

	procs_each(add_task, &t);
	find_members(&t, mark, root);
	for (size_t i = 0; i < t.count; i++)
		if (t.items[i].member && kill(t.items[i].pid, sig) == 0)
			count++;
	free(t.items);
	return count;
}
