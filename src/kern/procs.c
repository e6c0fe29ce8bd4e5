/* One reader of /proc/PID for all that count, find or recognise processes. */
#include "kern/procs.h"

#include "kern/dirents.h"

ssize_t procs_read(pid_t pid, const char *name, char *ret, size_t size)
{
	return io_read_path(ret, size, "/proc/%d/%s", (int)pid, name);
}

uint64_t procs_number(const char *text, const char *key)
{
	const char *at = strstr(text, key);

	return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

uint64_t procs_memory_bytes(const char *status)
{
	return (procs_number(status, "RssAnon:") + procs_number(status, "RssShmem:")) << 10;
}

ssize_t procs_children(pid_t pid, char *ret, size_t size)
{
	return io_read_path(ret, size, "/proc/%d/task/%d/children", (int)pid, (int)pid);
}

bool procs_parse_stat(const char *text, long long ret[PROCS_FIELDS])
{
	/* A name may hold anything, but no other field holds a bracket. */
	const char *at = strrchr(text, ')');
	char *end;

	if (!at || strlen(at) < 4)
		return false;
	ret[PROCS_STATE] = (unsigned char)at[2];
	at += 3;
	for (int i = PROCS_PARENT; i < PROCS_FIELDS; i++, at = end) {
		ret[i] = (long long)strtoull(at, &end, 10);
		if (end == at)
			return false;
	}
	return true;
}

bool procs_stat(pid_t pid, long long ret[PROCS_FIELDS])
{
	char text[PROCS_STAT_BYTES];

	return procs_read(pid, "stat", text, sizeof(text)) > 0 && procs_parse_stat(text, ret);
}

uint64_t procs_ticks_ns(long long ticks)
{
	return (uint64_t)ticks * (1000000000u / (uint64_t)sysconf(_SC_CLK_TCK));
}

void procs_each(void (*call)(void *arg, pid_t pid), void *arg)
{
	auto_close int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dirents_entry entry;
	struct dirents list;

	if (proc < 0)
		return;
	dirents_start(&list, proc);
	while (dirents_next(&list, &entry))
		if (entry.name[0] >= '1' && entry.name[0] <= '9')
			call(arg, (pid_t)atoi(entry.name));
}
