#include "sandbox/watch.h"

#include "base/auto.h"
#include "base/clock.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct usage {
	uint64_t memory_bytes;
	uint64_t cpu_ms;
	uint64_t tasks;
};

static ssize_t read_proc(const char *pid, const char *name, char *buf, size_t size)
{
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%.16s/%s", pid, name);
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);

	n = fd < 0 ? -1 : read(fd, buf, size - 1);
	buf[n > 0 ? n : 0] = '\0';
	return n;
}

static uint64_t number_behind(const char *text, const char *key)
{
	const char *at = strstr(text, key);

	return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

/* Anonymous and shared memory; pages of files do not count, they can be dropped. */
static void add_status(const char *pid, struct usage *sum)
{
	char text[2048];

	if (read_proc(pid, "status", text, sizeof(text)) <= 0)
		return;
	sum->memory_bytes += (number_behind(text, "RssAnon:") + number_behind(text, "RssShmem:"))
			     << 10;
	sum->tasks += number_behind(text, "\nThreads:");
}

static uint64_t cpu_ms_of(const char *pid)
{
	char text[512];
	const char *at;
	unsigned long long user, system;
	long long dead_user, dead_system; /* children that it has waited for */

	if (read_proc(pid, "stat", text, sizeof(text)) <= 0)
		return 0;
	/* After the last ')' of the name: state, then ten numbers, then utime and stime. */
	at = strrchr(text, ')');
	if (!at ||
	    sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %lld %lld",
		   &user, &system, &dead_user, &dead_system) != 4)
		return 0;
	return (user + system + (uint64_t)dead_user + (uint64_t)dead_system) * 1000 /
	       (uint64_t)sysconf(_SC_CLK_TCK);
}

static uint64_t cpu_ms_of_dead(void)
{
	struct rusage ru = {0};

	getrusage(RUSAGE_CHILDREN, &ru);
	return (uint64_t)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) * 1000 +
	       (uint64_t)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1000;
}

static void add(const struct watch *w, const char *pid, struct usage *sum)
{
	add_status(pid, sum);
	if (w->limits->cpu_time_ms)
		sum->cpu_ms += cpu_ms_of(pid);
}

static void add_all(const struct watch *w, struct usage *sum)
{
	DIR *proc = opendir("/proc");

	for (struct dirent *d; proc && (d = readdir(proc));)
		if (d->d_name[0] >= '1' && d->d_name[0] <= '9')
			add(w, d->d_name, sum);
	if (proc)
		closedir(proc);
}

static void add_descendants(const struct watch *w, const char *parent, int depth, struct usage *sum)
{
	char name[48], text[4096], *next;

	snprintf(name, sizeof(name), "task/%.16s/children", parent);
	if (depth > 64 || read_proc(parent, name, text, sizeof(text)) <= 0)
		return;
	for (char *pid = strtok_r(text, " ", &next); pid; pid = strtok_r(NULL, " ", &next)) {
		add(w, pid, sum);
		add_descendants(w, pid, depth + 1, sum);
	}
}

enum watch_verdict watch_check(struct watch *w, struct board *b)
{
	struct usage sum = {.cpu_ms = cpu_ms_of_dead()};
	char parent[16];

	if (now_ns() < w->next_ns)
		return WATCH_NONE;
	snprintf(parent, sizeof(parent), "%d", (int)w->parent);
	if (w->alone)
		sum.tasks = 1;
	else if (w->parent)
		add_descendants(w, parent, 0, &sum);
	else
		add_all(w, &sum);
	/* Our own pid 1 counts as well; at the end the command itself is gone. */
	if (!w->parent && sum.tasks + (b->stage == STAGE_ENDED) > w->limits->pids)
		b->pids_reached = true;
	w->next_ns = now_ns() + WATCH_INTERVAL_MS * 1000000LL;
	if (sum.memory_bytes > w->limits->memory_bytes)
		return WATCH_MEMORY;
	if (w->limits->cpu_time_ms && sum.cpu_ms > w->limits->cpu_time_ms)
		return WATCH_CPU_TIME;
	return WATCH_NONE;
}
