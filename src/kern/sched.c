#include "kern/sched.h"

#include <sched.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

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

void sched_send_elsewhere(pid_t pid)
{
	cpu_set_t all, others;

	if (sched_getaffinity(0, sizeof(all), &all) < 0)
		return;
	others = all;
	CPU_CLR((size_t)sched_getcpu(), &others);
	/* EINVAL: there is only one. */
	if (sched_setaffinity(pid, sizeof(others), &others) == 0)
		sched_setaffinity(pid, sizeof(all), &all);
}
