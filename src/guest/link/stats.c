/* G_STATS: resource usage as it is seen from inside. */
#include "guest/exec/command.h"
#include "guest/link/request.h"
#include "kern/procs.h"

#include <sys/vfs.h>

/* In the order of the answer. */
enum { CPU_US, MEMORY, DISK, DISK_LIMIT, RECEIVED, SENT, NUMBERS };

struct stats {
	uint32_t processes;
	uint64_t number[NUMBERS];
};

static void add_process(void *arg, pid_t pid)
{
	struct stats *s = arg;
	long long f[PROCS_FIELDS];
	char status[2048];

	if (!procs_stat(pid, f))
		return;
	s->processes++;
	s->number[CPU_US] += procs_ticks_ns(f[PROCS_USER] + f[PROCS_SYSTEM] + f[PROCS_CHILD_USER] +
					    f[PROCS_CHILD_SYSTEM]) /
			     1000;
	if (procs_read(pid, "status", status, sizeof(status)) > 0)
		s->number[MEMORY] += procs_number(status, "RssAnon:") << 10;
}

static void add_disk(const struct guest *g, struct stats *s)
{
	struct statfs fs;

	if ((g->options.scratch >= 0 ? fstatfs(g->options.scratch, &fs) : statfs("/tmp", &fs)) < 0)
		return;
	s->number[DISK] = (fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
	s->number[DISK_LIMIT] = fs.f_blocks * (uint64_t)fs.f_bsize;
}

/* "  eth0: RX packets errs drop fifo frame compressed multicast TX ..." */
static void add_network(struct stats *s)
{
	char text[4096];
	char *rest = text, *line;

	if (procs_read(getpid(), "net/dev", text, sizeof(text)) <= 0)
		return;
	while ((line = strsep(&rest, "\n"))) {
		unsigned long long rx, tx;
		char *colon = strchr(line, ':');

		if (!colon || str_starts(line + strspn(line, " "), "lo:") ||
		    sscanf(colon + 1, "%llu %*u %*u %*u %*u %*u %*u %*u %llu", &rx, &tx) != 2)
			continue;
		s->number[RECEIVED] += rx;
		s->number[SENT] += tx;
	}
}

void stats_request(struct guest_stream *s, const struct unpacked_request *r)
{
	struct stats t = {0};
	auto_buf struct buf b = {0};

	procs_each(add_process, &t);
	add_disk(s->guest, &t);
	add_network(&t);
	pack_u32(&b, t.processes);
	for (int i = 0; i < NUMBERS; i++)
		pack_u64(&b, t.number[i]);
	pack_u32(&b, (uint32_t)command_running(s->guest));
	stream_ok(s, &b);
}
