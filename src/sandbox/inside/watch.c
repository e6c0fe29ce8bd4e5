/* Adds up memory and processor time of a sandbox's processes where no cgroup does. */
#include "sandbox/inside/watch.h"

#include "kern/procs.h"

#include <sys/resource.h>

#define CLOSE_INTERVAL_MS 2
#define LOST_NS 20000000u

struct watch_sum {
	struct watch *watch;
	uint64_t memory_bytes;
	uint64_t cpu_ns;
	uint64_t tasks;
};

/* Of the children that it has waited for; the kernel counts in ticks. */
static uint64_t cpu_ns_of_children(pid_t pid)
{
	long long f[PROCS_FIELDS];

	return procs_stat(pid, f) ? procs_ticks_ns(f[PROCS_CHILD_USER] + f[PROCS_CHILD_SYSTEM]) : 0;
}

static uint64_t cpu_ns_of(pid_t pid)
{
	/* The result of clock_getcpuclockid, whose system call none of our filters allows. */
	clockid_t clock = (clockid_t)(~(unsigned)pid << 3 | 2);
	struct timespec used;

	if (clock_gettime(clock, &used) < 0)
		return 0;
	return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

static uint64_t cpu_ns_of_dead(void)
{
	struct rusage ru = {0};

	getrusage(RUSAGE_CHILDREN, &ru);
	return (uint64_t)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) * 1000000000u +
	       (uint64_t)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) * 1000;
}

/* The process's own place, or that of a process which the last look did not find. */
static struct watch_seen *place_of(struct watch *w, pid_t pid)
{
	struct watch_seen *free = NULL;

	for (size_t i = 0; i < w->seen_count; i++) {
		if (w->seen[i].pid == pid)
			return &w->seen[i];
		if (w->seen[i].look + 1 < w->look)
			free = &w->seen[i];
	}
	if (!free && w->seen_count < WATCH_SEEN)
		free = &w->seen[w->seen_count++];
	if (free)
		*free = (struct watch_seen){.pid = pid};
	return free;
}

static void see(struct watch *w, pid_t pid, uint64_t cpu_ns)
{
	struct watch_seen *s = place_of(w, pid);

	if (!s)
		return;
	/* Less than before: another process with the same number. */
	w->seen_ns += cpu_ns - (cpu_ns >= s->cpu_ns ? s->cpu_ns : 0);
	s->cpu_ns = cpu_ns;
	s->look = w->look;
}

static void watch_add_process(void *arg, pid_t pid)
{
	struct watch_sum *sum = arg;
	struct watch *w = sum->watch;
	char text[2048];
	uint64_t own;

	if (procs_read(pid, "status", text, sizeof(text)) > 0) {
		sum->memory_bytes += procs_memory_bytes(text);
		sum->tasks += procs_number(text, "\nThreads:");
	}
	if (!w->limits->cpu_time_ms)
		return;
	own = cpu_ns_of(pid);
	sum->cpu_ns += own + cpu_ns_of_children(pid);
	see(w, pid, own);
}

static void add_descendants(pid_t parent, int depth, struct watch_sum *sum)
{
	char text[4096], *next;

	if (depth > 64 || procs_children(parent, text, sizeof(text)) <= 0)
		return;
	for (char *pid = strtok_r(text, " ", &next); pid; pid = strtok_r(NULL, " ", &next)) {
		watch_add_process(sum, atoi(pid));
		add_descendants(atoi(pid), depth + 1, sum);
	}
}

/* By the kernel's sums, or by what was seen, whichever is more. */
static uint64_t cpu_ns_in_all(struct watch *w, const struct watch_sum *sum)
{
	/*
	 * Times of children get lost, so look more often: a child must not live and die between two
	 * looks.
	 */
	if (w->seen_ns > sum->cpu_ns + LOST_NS)
		w->interval_ms = CLOSE_INTERVAL_MS;
	return w->seen_ns > sum->cpu_ns ? w->seen_ns : sum->cpu_ns;
}

void watch_init(struct watch *w, const struct limits *limits, pid_t parent)
{
	w->limits = limits;
	w->parent = parent;
	w->alone = false;
	w->interval_ms = WATCH_INTERVAL_MS;
	w->next_ns = 0;
	w->seen_ns = w->look = w->seen_count = 0;
}

enum watch_verdict watch_check(struct watch *w, struct status_page *b)
{
	struct watch_sum sum = {.watch = w, .cpu_ns = cpu_ns_of_dead()};
	uint64_t cpu_ns;

	if (now_ns() < w->next_ns)
		return WATCH_NONE;
	w->look++;
	if (w->alone)
		sum.tasks = 1;
	else if (w->parent)
		add_descendants(w->parent, 0, &sum);
	else
		procs_each(watch_add_process, &sum);
	/* Our own pid 1 counts as well; at the end the command itself is no longer there. */
	if (!w->parent && sum.tasks + (b->stage == STAGE_ENDED) > w->limits->pids)
		b->pids_reached = true;
	cpu_ns = cpu_ns_in_all(w, &sum);
	if (cpu_ns > b->watched_cpu_ns)
		b->watched_cpu_ns = cpu_ns;
	w->next_ns = now_ns() + w->interval_ms * 1000000LL;
	if (sum.memory_bytes > w->limits->memory_bytes)
		return WATCH_MEMORY;
	if (w->limits->cpu_time_ms && cpu_ns / 1000000 > w->limits->cpu_time_ms)
		return WATCH_CPU_TIME;
	return WATCH_NONE;
}
