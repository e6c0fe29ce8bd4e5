/* G_STATS: what can be seen from inside. */
#include "base/auto.h"

#include "base/io.h"
#include "base/str.h"
#include "guest/command.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

struct stats {
	uint32_t processes;
	uint64_t cpu_us, memory_bytes, disk_bytes, disk_limit_bytes, rx_bytes, tx_bytes;
};

static void add_process(const char *pid, struct stats *s)
{
	char path[64], text[2048];
	unsigned long long user, system;
	long long dead_user, dead_system;
	uint64_t tick_us = 1000000 / (uint64_t)sysconf(_SC_CLK_TCK);
	const char *at;

	snprintf(path, sizeof(path), "/proc/%.16s/stat", pid);
	if (io_read_at(AT_FDCWD, path, text, sizeof(text)) <= 0)
		return;
	s->processes++;
	at = strrchr(text, ')');
	if (at && sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %lld %lld",
			 &user, &system, &dead_user, &dead_system) == 4)
		s->cpu_us +=
			(user + system + (uint64_t)dead_user + (uint64_t)dead_system) * tick_us;
	snprintf(path, sizeof(path), "/proc/%.16s/status", pid);
	if (io_read_at(AT_FDCWD, path, text, sizeof(text)) <= 0)
		return;
	at = strstr(text, "RssAnon:");
	s->memory_bytes += at ? strtoull(at + 8, NULL, 10) * 1024 : 0;
}

static void add_processes(struct stats *s)
{
	DIR *proc = opendir("/proc");

	for (struct dirent *d; proc && (d = readdir(proc));)
		if (d->d_name[0] >= '1' && d->d_name[0] <= '9')
			add_process(d->d_name, s);
	if (proc)
		closedir(proc);
}

static void add_disk(const struct guest *g, struct stats *s)
{
	struct statfs fs;

	if ((g->options.scratch >= 0 ? fstatfs(g->options.scratch, &fs) : statfs("/tmp", &fs)) < 0)
		return;
	s->disk_bytes = (fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
	s->disk_limit_bytes = fs.f_blocks * (uint64_t)fs.f_bsize;
}

/* "  eth0: RX packets errs drop fifo frame compressed multicast TX ..." */
static void add_network(struct stats *s)
{
	char text[4096];
	char *rest = text, *line;

	if (io_read_at(AT_FDCWD, "/proc/self/net/dev", text, sizeof(text)) <= 0)
		return;
	while ((line = strsep(&rest, "\n"))) {
		unsigned long long rx, tx;
		char *colon = strchr(line, ':');

		if (!colon || str_starts(line + strspn(line, " "), "lo:") ||
		    sscanf(colon + 1, "%llu %*u %*u %*u %*u %*u %*u %*u %llu", &rx, &tx) != 2)
			continue;
		s->rx_bytes += rx;
		s->tx_bytes += tx;
	}
}

bool stats_request(struct guest *g, struct stream *s, struct unpack *u)
{
	struct stats t = {0};
	struct buf b = {0};

	if (!unpack_is_done(u))
		return false;
	add_processes(&t);
	add_disk(g, &t);
	add_network(&t);
	pack_u32(&b, t.processes);
	pack_u64(&b, t.cpu_us);
	pack_u64(&b, t.memory_bytes);
	pack_u64(&b, t.disk_bytes);
	pack_u64(&b, t.disk_limit_bytes);
	pack_u64(&b, t.rx_bytes);
	pack_u64(&b, t.tx_bytes);
	pack_u32(&b, (uint32_t)command_running(g));
	stream_ok(s, &b);
	buf_done(&b);
	return true;
}
