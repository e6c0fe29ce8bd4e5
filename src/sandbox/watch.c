#include "sandbox/watch.h"

#include "base/auto.h"

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

/* Anonymous and shared memory; pages of files do not count, they can be dropped. */
static uint64_t memory_of(const char *pid)
{
	static const char *const keys[] = {"RssAnon:", "RssShmem:"};
	char text[2048];
	uint64_t kb = 0;

	if (read_proc(pid, "status", text, sizeof(text)) <= 0)
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		const char *at = strstr(text, keys[i]);

		if (at)
			kb += strtoull(at + strlen(keys[i]), NULL, 10);
	}
	return kb << 10;
}

static uint64_t cpu_ms_of(const char *pid)
{
	char text[512];
	const char *at;
	unsigned long long user, system;

	if (read_proc(pid, "stat", text, sizeof(text)) <= 0)
		return 0;
	/* After the last ')' of the name: state, then ten numbers, then utime and stime. */
	at = strrchr(text, ')');
	if (!at || sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user,
			  &system) != 2)
		return 0;
	return (user + system) * 1000 / (uint64_t)sysconf(_SC_CLK_TCK);
}

static uint64_t cpu_ms_of_dead(void)
{
	struct rusage ru = {0};

	getrusage(RUSAGE_CHILDREN, &ru);
	return (uint64_t)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) * 1000 +
	       (uint64_t)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1000;
}

enum watch_verdict watch_check(const struct limits *limits)
{
	struct usage sum = {.cpu_ms = cpu_ms_of_dead()};
	DIR *proc = opendir("/proc");

	for (struct dirent *d; proc && (d = readdir(proc));) {
		if (d->d_name[0] < '1' || d->d_name[0] > '9')
			continue;
		sum.memory_bytes += memory_of(d->d_name);
		if (limits->cpu_time_ms)
			sum.cpu_ms += cpu_ms_of(d->d_name);
	}
	if (proc)
		closedir(proc);
	if (sum.memory_bytes > limits->memory_bytes)
		return WATCH_MEMORY;
	if (limits->cpu_time_ms && sum.cpu_ms > limits->cpu_time_ms)
		return WATCH_CPU_TIME;
	return WATCH_NONE;
}
