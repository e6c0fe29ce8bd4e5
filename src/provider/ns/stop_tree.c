/* Stops the processes of a sandbox one by one, where it has no cgroup that could be frozen. */
#include "provider/ns/ns_internal.h"

#include "kern/sys.h"

#include <dirent.h>

#define MOST 65536 /* processes that are looked at */

struct pids {
	pid_t *items;
	size_t count, room;
};

static void add_pid(struct pids *p, pid_t pid)
{
	if (p->count >= MOST)
		return;
	p->items = array_room(p->items, p->count, &p->room, sizeof(*p->items));
	p->items[p->count++] = pid;
}

/* Each thread has children of its own. */
static void add_children(struct pids *p, pid_t parent)
{
	char path[64], text[8192], *at = text;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)parent);
	tasks = opendir(path);
	for (struct dirent *d; tasks && (d = readdir(tasks));) {
		if (d->d_name[0] == '.')
			continue;
		/* Children that do not fit are found in a later round: they stay children. */
		io_read_path(text, sizeof(text), "/proc/%d/task/%.16s/children", (int)parent,
			     d->d_name);
		at = text;
		for (long pid; (pid = strtol(at, &at, 10)) > 1;)
			add_pid(p, (pid_t)pid);
	}
	if (tasks)
		closedir(tasks);
}

/* Parents before children. */
static struct pids list_all(pid_t top)
{
	struct pids p = {0};

	add_pid(&p, top);
	for (size_t i = 0; i < p.count; i++)
		add_children(&p, p.items[i]);
	return p;
}

static char state_of(pid_t pid)
{
	char text[512];
	const char *end;

	io_read_path(text, sizeof(text), "/proc/%d/stat", (int)pid);
	end = strrchr(text, ')');
	return end && end[1] == ' ' ? end[2] : 'X';
}

/* The pidfd is opened before the check: the pid may have been reused. */
static void send_signal(pid_t pid, ino_t pid_ns, int sig)
{
	auto_close int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
	if (fd >= 0 && stat(path, &st) == 0 && st.st_ino == pid_ns)
		sys_pidfd_send_signal(fd, sig);
}

bool stop_tree_is_stopped(pid_t pid)
{
	return strchr("Tt", state_of(pid)) != NULL;
}

void stop_tree_begin(struct stop_tree *h, pid_t top)
{
	struct pids p = list_all(top);
	size_t kept = 0;

	for (size_t i = 0; i < p.count; i++)
		if (stop_tree_is_stopped(p.items[i]) && p.items[i] != top)
			p.items[kept++] = p.items[i];
	free(h->own);
	*h = (struct stop_tree){.own = p.items, .own_count = kept};
}

/*
 * Who has vforked waits in the kernel until the child executes, which a stopped child does not. The parent has the
 * signal then, so it stops before its program goes on.
 */
static bool waits_for_stopped(pid_t pid)
{
	struct pids below = {0};
	bool found = false;

	add_children(&below, pid);
	for (size_t i = 0; i < below.count && !found; i++)
		found = stop_tree_is_stopped(below.items[i]);
	free(below.items);
	return found;
}

size_t stop_tree_step(pid_t top, ino_t pid_ns)
{
	struct pids p = list_all(top);
	size_t moving = 0;

	for (size_t i = 0; i < p.count; i++) {
		char state = state_of(p.items[i]);

		if (strchr("TtZX", state))
			continue;
		send_signal(p.items[i], pid_ns, SIGSTOP);
		moving += state != 'D' || !waits_for_stopped(p.items[i]);
	}
	free(p.items);
	return moving;
}

static bool is_own(const struct stop_tree *h, pid_t pid)
{
	for (size_t i = 0; i < h->own_count; i++)
		if (h->own[i] == pid)
			return true;
	return false;
}

void stop_tree_end(struct stop_tree *h, pid_t top, ino_t pid_ns)
{
	struct pids p = list_all(top);

	for (size_t i = p.count; i > 0; i--)
		if (!is_own(h, p.items[i - 1]))
			send_signal(p.items[i - 1], pid_ns, SIGCONT);
	free(p.items);
	free(h->own);
	*h = (struct stop_tree){0};
}
