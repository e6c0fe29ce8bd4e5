/*
 * The end of a task.
 *
 * Theory of operation
 *
 * The task and every process that it starts run under the task's filter, and no other process does.
 * When the last of them begins to exit (Linux 6.11: before its memory is freed), the kernel hangs
 * up the filter's listener: none of them will run another instruction, and all their output is in
 * the pipes. The owner is told at once, because freeing the memory of a Python takes as long as
 * running it did. By then /proc/PID/stat says how the task ended, with the same value that reaping
 * it will return.
 *
 * In these cases the owner is told only when the task was reaped and either its listener has hung
 * up or its warm sandbox is dead: no cgroup counts its memory; the task waited for children, whose
 * CPU time only reaping reveals; the task made itself undumpable, so that we may not read its stat.
 * Older kernels hang up only then.
 */
#include "guest/exec/command.h"
#include "guest/warm/host_internal.h"
#include "guest/link/server.h"
#include "kern/cgroup.h"
#include "kern/procs.h"
#include "kern/sys.h"

#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#define QUERIES_MAX 4096
#define DISK_FULL (64u << 10) /* with less left, a write may have failed for lack of space */
#define BURST_NS 5000000LL
#define CLEAN_PEAK (32u << 20)
#define EXITING 0x4 /* PF_EXITING of the kernel */

/* ---- limits that the task hit ---- */

static void count(const struct lane *s, struct lane_counts *ret)
{
	*ret = (struct lane_counts){s->events[0] < 0 ? 0 : cgroup_count_oom_kills(s->events[0]),
				    s->events[1] < 0 ? 0 : cgroup_count_pids_refused(s->events[1])};
}

void lane_begin_counts(struct lane *s)
{
	char path[32];

	count(s, &s->before);
	/*
	 * Page cache of earlier tasks stays charged for a while: then the peak does not show this
	 * task's use.
	 */
	s->has_peak = s->events[2] >= 0 && cgroup_reset_peak(s->events[2]) == 0 &&
		      cgroup_read_peak(s->events[2]) < CLEAN_PEAK;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)s->task);
	s->stat = open(path, O_RDONLY | O_CLOEXEC);
}

/*
 * A lane's counts go on from task to task: the increase since the task became ready is the task's.
 */
static unsigned limits_met(const struct lane *s)
{
	struct lane_counts now;

	count(s, &now);
	return (now.oom_kills > s->before.oom_kills ? GUEST_HIT_MEMORY : 0u) |
	       (now.pids_refused > s->before.pids_refused ? GUEST_HIT_PIDS : 0u);
}

static void look_at_disk(const struct lane *s, struct task_end *ret)
{
	struct statfs fs;

	ret->disk_bytes = UINT64_MAX;
	if (s->scratch < 0 || fstatfs(s->scratch, &fs) < 0)
		return;
	ret->disk_bytes = (fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
	if (fs.f_bfree * (uint64_t)fs.f_bsize < DISK_FULL)
		ret->limits |= GUEST_HIT_DISK;
}

/* ---- telling ---- */

/* Name queries that still wait in the socket are the ended task's. */
static void drain_queries(struct lane *s)
{
	int waiting;

	for (int i = 0; i < QUERIES_MAX && s->dns.fd >= 0; i++) {
		if (ioctl(s->dns.fd, FIONREAD, &waiting) < 0 || waiting == 0)
			return;
		denials_take_query(s->host->guest, s->dns.fd, s->eid);
	}
}

void lane_tell_end(struct lane *s, bool out_of_memory)
{
	void (*tell)(void *, const struct task_end *) = s->tell;

	drain_queries(s);
	/*
	 * Lane and warm sandbox may be gone before the task: then the owner is told when it was
	 * reaped.
	 */
	if (!tell || !s->has_ended)
		return;
	s->tell = NULL;
	s->end.exec_errno = s->host->pages[s->index].exec_errno;
	s->end.limits |= limits_met(s) | (out_of_memory ? GUEST_HIT_MEMORY : 0u);
	tell(s->tell_arg, &s->end);
}

/* ---- what /proc says ---- */

/*
 * Without the right to see it, the exit code in /proc/PID/stat reads 0. get_robust_list needs the
 * same right, so its success proves it. When a process that is not dumpable releases its memory,
 * the right appears or (since Linux 6.18.44 at the latest) disappears: if we had it both before and
 * after reading the exit code, the code is real.
 */
static bool may_look(pid_t pid)
{
	void *head;
	size_t size;

	return syscall(SYS_get_robust_list, pid, &head, &size) == 0;
}

static uint64_t cpu_us(pid_t pid)
{
	struct timespec t;

	/* clock_getcpuclockid, without its check that the process exists */
	if (clock_gettime((clockid_t)(~(unsigned)pid << 3 | 2), &t) < 0)
		return 0;
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/*
 * Nearly every child has page faults, except one that shares the parent's memory; the times are in
 * ticks.
 */
static bool waited_for_others(const long long *fields)
{
	return fields[PROCS_CHILD_FAULTS] || fields[PROCS_CHILD_USER] || fields[PROCS_CHILD_SYSTEM];
}

static bool read_stat(int fd, long long ret[PROCS_FIELDS])
{
	char text[PROCS_STAT_BYTES];
	ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	return procs_parse_stat(text, ret);
}

/*
 * No process of the task will run again, but it is not reaped: reads how it ended, if that can be
 * known.
 */
static bool look_at_end(const struct lane *s, struct task_end *ret)
{
	long long fields[PROCS_FIELDS];

	if (!s->has_peak || !may_look(s->task) || !read_stat(s->stat, fields) ||
	    !may_look(s->task) || !(fields[PROCS_FLAGS] & EXITING) || waited_for_others(fields))
		return false;
	*ret = (struct task_end){.wait_status = (int)fields[PROCS_EXIT],
				 .cpu_us = cpu_us(s->task),
				 .max_rss_bytes = cgroup_read_peak(s->events[2]),
				 .ended_ns = now_ns()};
	return ret->max_rss_bytes > 0;
}

static bool counts_memory(const struct warm_host *n)
{
	/* Without a cgroup, only the lane can say whether the watch for memory ended the task. */
	return n->options.settings.cgroup_layers & LAYER_BIT(LAYER_MEMORY);
}

void lane_filter_ended(struct lane *s)
{
	s->is_over = counts_memory(s->host);
	if (!s->is_over)
		return;
	if (s->state == LANE_TAKEN && s->tell && look_at_end(s, &s->end)) {
		s->has_ended = true;
		look_at_disk(s, &s->end);
		lane_tell_end(s, false);
		/* Before anything else in this round, such as reaping the task. */
		server_send(s->host->guest);
	} else if (s->state == LANE_LEAVING) {
		lane_tell_end(s, false);
	}
}

void lane_sandbox_died(struct lane *s)
{
	/* A lane that is gone will not report it. */
	if (counts_memory(s->host) || s->state == LANE_BROKEN)
		lane_tell_end(s, false);
}

/* ---- reaping ---- */

/* By its task or by its command; 0: not by that. */
static struct lane *find_lane(struct warm_host *n, pid_t task, uint32_t eid)
{
	for (int i = 0; n && i < n->lane_count; i++)
		if ((task > 0 && n->lanes[i].task == task) || (eid > 0 && n->lanes[i].eid == eid))
			return &n->lanes[i];
	return NULL;
}

/* The lane of this spawner, or of a task of its spawner that has not reported yet. */
static struct lane *find_expected(struct warm_host *n, pid_t pid)
{
	for (int i = 0; n && i < n->lane_count; i++) {
		const struct lane *s = &n->lanes[i];

		if ((s->state == LANE_MAKING || s->state == LANE_ORDERED) && !s->task &&
		    (n->pages[i].task == pid || n->pages[i].spawner == pid))
			return &n->lanes[i];
	}
	return NULL;
}

/* A spawner that dies at another time is noticed with the next warm sandbox. */
static void lose_expected(struct lane *s)
{
	struct err e;

	s->host->failures++;
	/*
	 * The spawner has reported the warm sandbox: then the task may have reported the reason,
	 * too.
	 */
	if (s->state == LANE_ORDERED) {
		sys_pidfd_send_signal(s->sandbox.fd, SIGKILL);
		return;
	}
	err_set(&e, ERR_SYSTEM, "a process died before it was needed");
	lane_break(s, &e);
}

/* The cgroup's peak counts all processes of the task, and not the memory shared with the zygote. */
static uint64_t peak(const struct lane *s, uint64_t otherwise)
{
	uint64_t bytes = s->has_peak ? cgroup_read_peak(s->events[2]) : 0;

	return bytes ? bytes : otherwise;
}

static uint64_t us(const struct timeval *t)
{
	return (uint64_t)t->tv_sec * 1000000 + (uint64_t)t->tv_usec;
}

/* ---- bursts ---- */

static bool is_taken(const struct warm_host *n)
{
	for (each_lane(s, n))
		if (s->state == LANE_TAKEN)
			return true;
	return false;
}

/*
 * Several requests came at once, after a pause: they are served before new warm sandboxes are made.
 */
static bool is_burst(const struct warm_host *n)
{
	return now_ns() - n->burst_ns < BURST_NS && is_taken(n);
}

/*
 * A pid 1 ends only when every process in its namespace was reaped: the warm sandbox is still
 * there.
 */
static void leave(struct lane *s)
{
	s->state = LANE_LEAVING;
	sys_pidfd_send_signal(s->sandbox.fd, SIGKILL);
}

void warm_host_end_rest(void *host)
{
	struct warm_host *n = host;

	loop_timer_stop(n->guest->loop, &n->rest);
	for (each_lane(s, n))
		if (s->state == LANE_RESTING)
			leave(s);
}

static void rest(struct lane *s)
{
	struct warm_host *n = s->host;

	s->state = LANE_RESTING;
	n->rest.call = warm_host_end_rest;
	n->rest.arg = n;
	if (!n->rest.place)
		loop_timer_set(n->guest->loop, &n->rest, BURST_NS / 1000000);
}

/* What only reaping reveals, and what was not known before. */
static void note_end(struct lane *s, int status, const struct rusage *usage)
{
	s->end = (struct task_end){.wait_status = status,
				   .cpu_us = us(&usage->ru_utime) + us(&usage->ru_stime),
				   .max_rss_bytes = peak(s, (uint64_t)usage->ru_maxrss * 1024),
				   .ended_ns = now_ns()};
	look_at_disk(s, &s->end);
	s->has_ended = true;
}

bool warm_host_reaped(struct warm_host *n, pid_t pid, int status, const struct rusage *usage)
{
	struct lane *s = find_lane(n, pid, 0);

	if (!s && (s = find_expected(n, pid))) {
		lose_expected(s);
		return true;
	}
	if (!s)
		return false;
	/*
	 * A task that dies before its order is a failure; after FAILURES_MAX in a row no more are
	 * made.
	 */
	if (s->state == LANE_READY || s->state == LANE_ORDERED)
		*(s->kind == WARM_HOST_NODE ? &n->node_failures : &n->failures) += 1;
	s->task = 0;
	if (s->tell)
		note_end(s, status, usage);
	if (s->state == LANE_BROKEN || s->state == LANE_ABSENT) {
		/* Otherwise when the warm sandbox is dead. */
		if (s->sandbox.fd < 0)
			lane_tell_end(s, false);
		return true;
	}
	if (s->is_over)
		lane_tell_end(s, false);
	if (s->is_over && is_burst(n))
		rest(s);
	else
		leave(s);
	if (!is_taken(n))
		warm_host_end_rest(n);
	return true;
}

void warm_host_follow(struct warm_host *n, pid_t pid, const struct task_owner *o)
{
	struct lane *s = find_lane(n, pid, 0);

	if (!s)
		return;
	s->eid = o->eid;
	s->has_ended = false;
	s->is_held = o->holds;
	s->tell = o->tell;
	s->tell_arg = o->arg;
}

bool warm_host_place(struct warm_host *n, uint32_t eid, int *ret_mounts, pid_t *ret_lane)
{
	const struct lane *s = find_lane(n, 0, eid);

	if (!s || s->mounts < 0 || s->process.pid <= 0)
		return false;
	*ret_mounts = s->mounts;
	*ret_lane = s->process.pid;
	return true;
}

void warm_host_release(struct warm_host *n, uint32_t eid)
{
	struct lane *s = find_lane(n, 0, eid);

	if (s && s->is_held)
		lane_release(s);
}

void warm_host_kill(struct warm_host *n, uint32_t eid)
{
	struct lane *s = find_lane(n, 0, eid);

	if (s && s->sandbox.fd >= 0)
		sys_pidfd_send_signal(s->sandbox.fd, SIGKILL);
}

pid_t warm_host_task_pid(struct warm_host *n, uint32_t eid)
{
	struct lane *s = find_lane(n, 0, eid);

	return s ? s->task : 0;
}
