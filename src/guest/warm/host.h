/*
 * A warm host (warm/warm.h): its lanes, the tasks in their warm sandboxes, and the zygote that some
 * tasks are forked from. Part of a guest that was started as a warm host.
 */
#pragma once

#include "base/base.h"
#include "guest/exec/spawn.h"
#include "warm/warm.h"

#include <assert.h>
#include <sys/resource.h>

struct guest;
struct warm_host;

/* As enum guest_run. Node: a command whose interpreter waits for it. */
enum warm_host_kind { WARM_HOST_COMMAND, WARM_HOST_PYTHON, WARM_HOST_NODE, WARM_HOST_KINDS };
static_assert((int)WARM_HOST_KINDS == WARM_KINDS, "a count of lanes for each");

struct warm_host_options {
	struct warm_settings settings;	 /* warm_look_around adds the namespaces */
	unsigned lanes[WARM_HOST_KINDS]; /* at most */
	unsigned first[WARM_HOST_KINDS]; /* started at once */
	int first_join;	    /* fds of the lanes' cgroups, settings.join_count each; -1: none */
	char **interpreter; /* argv of the zygote, or NULL */
	char **environment; /* of the zygote */
};

struct warm_host *warm_host_new(struct guest *g, const struct warm_host_options *o);

/*
 * Takes a task that waits in a ready warm sandbox. -1 with EAGAIN: there is none just now; with
 * ESTALE: there will be none, because files of the image have changed. ret_report says which layers
 * the task proved. The task is our child: whoever reaps it calls warm_host_reaped.
 */
int warm_host_take_task(struct warm_host *n, enum warm_host_kind kind, struct spawned *ret,
			struct warm_report *ret_report, struct err *e);
/* How a task ended, as the kernel reports it. */
struct task_end {
	int wait_status;
	int exec_errno;	 /* of a command; 0: exec succeeded */
	unsigned limits; /* that the task hit, GUEST_HIT_* */
	uint64_t cpu_us, max_rss_bytes;
	uint64_t disk_bytes; /* in its scratch; UINT64_MAX: not known */
	int64_t ended_ns;
};

/* The command of a task; tell() is called once, when no process of the task can run again. */
struct task_owner {
	uint32_t eid;
	bool holds; /* what it wrote stays after its end, until warm_host_release */
	void (*tell)(void *arg, const struct task_end *end);
	void *arg;
};

void warm_host_follow(struct warm_host *n, pid_t pid, const struct task_owner *o);
/* A child was reaped; true: it was a task or a spawner. */
bool warm_host_reaped(struct warm_host *n, pid_t pid, int status, const struct rusage *usage);
/* The mount namespace of this task's warm sandbox and the process of its lane; false: it is gone. */
bool warm_host_place(struct warm_host *n, uint32_t eid, int *ret_mounts, pid_t *ret_lane);
/* The files of this task are no longer wanted. */
void warm_host_release(struct warm_host *n, uint32_t eid);
/* Kills the warm sandbox of this task, and so every process that the task started. */
void warm_host_kill(struct warm_host *n, uint32_t eid);
/* 0: the task was reaped. */
pid_t warm_host_task_pid(struct warm_host *n, uint32_t eid);
/*
 * Should a request of this kind, which has waited since since_ns, go on waiting? Not if there is no
 * warm sandbox of the kind, nor if all of them are taken and none becomes free.
 */
bool warm_host_is_worth_waiting(struct warm_host *n, enum warm_host_kind kind, int64_t since_ns);
/*
 * Requests of this kind have waited for a while: starts one more lane unless a warm sandbox is
 * being made.
 */
void warm_host_grow(struct warm_host *n, enum warm_host_kind kind);

/* run.c: a warm sandbox has become ready, or never will be: serves the runs that wait. */
void warm_serve(void *guest);
