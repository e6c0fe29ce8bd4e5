/* Resource limits of each process; the limits of a whole sandbox are its cgroup's. */
#include "sandbox/inside/privileges.h"

#include "sandbox/inside/boot.h"

#include <sys/resource.h>

#define WARM_HOST_LANE_PIDS 4 /* the lane, its warm sandbox, and the processes that make them */
#define DATA_SLACK (1ull << 30)
/* Counted for a user, and for the owners of all user namespaces above (see userns_clone). */
#define PENDING_SIGNALS 8192		 /* POSIX timers included */
#define MESSAGE_QUEUE_BYTES (512u << 10) /* POSIX message queues */

static int set_limit(int which, uint64_t soft, uint64_t hard, struct err *e)
{
	/* Stays as it is if a call only pretends to answer. */
	static const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
	struct rlimit now = none, back = none, want = {soft, hard};

	/* Never above what the caller has: raising would need a privilege. */
	if (getrlimit(which, &now) == 0) {
		if (want.rlim_max > now.rlim_max)
			want.rlim_max = now.rlim_max;
		if (want.rlim_cur > want.rlim_max)
			want.rlim_cur = want.rlim_max;
	}
	if (setrlimit(which, &want) < 0)
		return err_sys(e, "cannot set resource limit %d", which);
	if (getrlimit(which, &back) < 0 || back.rlim_cur > soft || back.rlim_max > hard)
		return err_set(e, ERR_UNSUPPORTED, "resource limit %d does not hold here", which);
	return 0;
}

uint64_t restrict_file_size(const struct limits *l)
{
	return l->file_size_bytes ? l->file_size_bytes : l->disk_bytes + (4u << 20);
}

/* A file in a tmpfs or volume of its own may be as large as that. */
static uint64_t most_file_bytes(const struct plan *p)
{
	uint64_t most = restrict_file_size(&p->spec->limits);

	for (size_t i = 0; !p->spec->limits.file_size_bytes && i < p->bind_count; i++) {
		uint64_t own = p->binds[i].tmpfs_bytes + p->binds[i].disk_bytes;

		most = own > most ? own : most;
	}
	return most;
}

/*
 * Processes in lanes count in the warm host as well, so its limit is the sum of theirs: only the
 * limit of each lane binds.
 */
static uint64_t most_pids(const struct plan *p)
{
	const struct boot_warm_host *n = p->guest ? p->guest->warm_host : NULL;
	uint64_t one = p->spec->limits.pids + 1;

	return n ? (one + WARM_HOST_LANE_PIDS) * (n->lanes[0] + n->lanes[1] + n->lanes[2] + 1)
		 : one;
}

int restrict_limits(const struct plan *p, struct err *e)
{
	const struct limits *l = &p->spec->limits;
	bool is_warm_host = p->guest && p->guest->warm_host;
	uint64_t cpu = l->cpu_time_ms / 1000 + 1;
	uint64_t file = most_file_bytes(p);

	/* A core of one byte: 0 would not keep the kernel from starting a handler (core(5)). */
	if (set_limit(RLIMIT_FSIZE, file, file, e) < 0 || set_limit(RLIMIT_CORE, 1, 1, e) < 0 ||
	    set_limit(RLIMIT_SIGPENDING, PENDING_SIGNALS, PENDING_SIGNALS, e) < 0 ||
	    set_limit(RLIMIT_MSGQUEUE, MESSAGE_QUEUE_BYTES, MESSAGE_QUEUE_BYTES, e) < 0 ||
	    set_limit(RLIMIT_RTPRIO, 0, 0, e) < 0 || set_limit(RLIMIT_NICE, 0, 0, e) < 0)
		return -1;
	/* A warm host lives longer than any of its tasks. */
	if (!is_warm_host && l->cpu_time_ms && set_limit(RLIMIT_CPU, cpu, cpu + 1, e) < 0)
		return -1;
	if (p->page->proven & LAYER_BIT(LAYER_PIDS))
		return 0;
	/* Counted per user namespace since 5.14; without one it would count the whole login. */
	if (p->spec->level == LEVEL_PROCESS || !(p->page->proven & LAYER_BIT(LAYER_USER_NS)))
		return 0;
	if (set_limit(RLIMIT_NPROC, most_pids(p), most_pids(p), e) < 0)
		return -1;
	/*
	 * The kernel exempts the host's root from it, even without capabilities; uid 0 here may be
	 * that root.
	 */
	if (!p->rootless || p->uid != 0)
		p->page->proven |= LAYER_BIT(LAYER_PIDS);
	return 0;
}

int restrict_command(const struct plan *p, struct err *e)
{
	const struct limits *l = &p->spec->limits;
	uint64_t files = l->open_files, data = 2 * l->memory_bytes + DATA_SLACK;

	if (set_limit(RLIMIT_NOFILE, files, files * 4, e) < 0)
		return -1;
	/*
	 * Where no cgroup limits memory, it is watched, and a run that takes too much is killed
	 * with that reason. RLIMIT_DATA only bounds what one process can take between two looks:
	 * set to the limit itself, allocations would fail first, and the record would not say why.
	 * RLIMIT_AS would break programs that reserve address space.
	 */
	if (p->page->proven & LAYER_BIT(LAYER_MEMORY))
		return 0;
	return set_limit(RLIMIT_DATA, data, data, e);
}
