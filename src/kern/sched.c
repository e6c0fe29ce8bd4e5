#include "kern/sched.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/*
 * About four times the weight of a sandbox (cgroup_give_way). Not more: a waking process waits for its share by the
 * weights. Beside a daemon that one tenant keeps busy, with 75 times their weight, sandboxes of the others
 * waited for 5 to 20 ms each time.
 */
#define LEAD_NICE "-3"
#define SLICE_NS 300000 /* shorter than what others have, longer than an answer takes */

void sched_be_prompt(void)
{
	/* struct sched_attr in its first form; runtime is the slice of an ordinary process. */
	const struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} attr = {.size = sizeof(attr),
		  .policy = SCHED_OTHER,
		  .flags = 1 /* SCHED_FLAG_RESET_ON_FORK: not what it starts */,
		  .nice = getpriority(PRIO_PROCESS, 0), /* as it is */
		  .runtime = SLICE_NS};

	(void)syscall(SYS_sched_setattr, 0, &attr, 0);
}

void sched_lead(void)
{
	(void)setpriority(PRIO_PROCESS, 0, atoi(LEAD_NICE));
	/*
	 * Without a cgroup, the kernel shares out time among sessions first (autogroup), and the nice value
	 * counts within the session only. The session's own value is not ours to set if others are in it.
	 */
	if (getsid(0) == getpid())
		(void)io_write_at(AT_FDCWD, "/proc/self/autogroup", LEAD_NICE);
	sched_be_prompt();
}

/* How many want to run just now: the number before the slash of "0.20 0.18 0.12 1/80 11206". */
static unsigned count_running(void)
{
	char text[128], *slash;

	io_read_at(AT_FDCWD, "/proc/loadavg", text, sizeof(text));
	slash = strchr(text, '/');
	while (slash && slash > text && slash[-1] != ' ')
		slash--;
	return slash ? (unsigned)strtoul(slash, NULL, 10) : UINT_MAX;
}

bool sched_has_idle(void)
{
	cpu_set_t all;

	return sched_getaffinity(0, sizeof(all), &all) == 0 &&
	       count_running() < (unsigned)CPU_COUNT(&all);
}

void sched_send_elsewhere(pid_t pid)
{
	cpu_set_t all, others;

	if (sched_getaffinity(0, sizeof(all), &all) < 0 || CPU_COUNT(&all) < 2)
		return;
	others = all;
	CPU_CLR((size_t)sched_getcpu(), &others);
	if (sched_setaffinity(pid, sizeof(others), &others) == 0)
		sched_setaffinity(pid, sizeof(all), &all);
}

void sched_go_to(int cpu)
{
	cpu_set_t all, there;

	if (sched_getcpu() == cpu || sched_getaffinity(0, sizeof(all), &all) < 0)
		return;
	CPU_ZERO(&there);
	CPU_SET((size_t)cpu, &there);
	if (sched_setaffinity(0, sizeof(there), &there) == 0)
		sched_setaffinity(0, sizeof(all), &all);
}
