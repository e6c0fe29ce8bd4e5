#include "sandbox/supervise.h"

#include "base/clock.h"
#include "kern/sys.h"

#include <stdlib.h>
#include <sys/wait.h>

bool supervise_reap(struct board *b, pid_t command)
{
	bool ended = false;
	pid_t pid;
	int status;

	while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0) {
		if (pid != command)
			continue;
		b->ended_ns = now_ns();
		b->wait_status = status;
		b->stage = STAGE_ENDED;
		ended = true;
	}
	return ended;
}

void supervise_join(struct board *b, const struct rights_message *m, const int *fds)
{
	bool joined = m->cgroup_layers != 0;

	for (int i = 0; i < m->join_count; i++) {
		char back[32] = "";

		/* Written by the task itself, then read back that it is there (rule 1). */
		if (write(fds[i], "0", 1) != 1 || pread(fds[i], back, sizeof(back) - 1, 0) <= 0 ||
		    atoi(back) != getpid())
			joined = false;
	}
	if (joined)
		b->proven |= m->cgroup_layers | LAYER_BIT(LAYER_CGROUP);
}

static int compare(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

void supervise_close_others(const int *keep, size_t count)
{
	int sorted[16];
	int first = 0;

	if (count > sizeof(sorted) / sizeof(sorted[0]))
		return;
	memcpy(sorted, keep, count * sizeof(*keep));
	qsort(sorted, count, sizeof(*sorted), compare);
	for (size_t i = 0; i < count; i++) {
		if (sorted[i] > first)
			sys_close_range((unsigned)first, (unsigned)sorted[i] - 1, 0);
		if (sorted[i] >= first)
			first = sorted[i] + 1;
	}
	sys_close_range((unsigned)first, ~0u, 0);
}
