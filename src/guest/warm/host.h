/*
 * A warm host (warm/warm.h): warm sandboxes that are ready, the tasks that are seated in them, and the warm
 * interpreter that some of them are forked from. Part of the guest where it was started as one.
 */
#pragma once

#include "base/base.h"
#include "guest/exec/spawn.h"
#include "warm/warm.h"

#include <sys/resource.h>

struct guest;
struct warm_host;

enum warm_host_kind { WARM_HOST_COMMAND, WARM_HOST_PYTHON, WARM_HOST_KINDS };

struct warm_host_options {
	struct warm_settings settings;	 /* but for the namespaces, which are looked at */
	unsigned lanes[WARM_HOST_KINDS]; /* that there can be */
	unsigned first[WARM_HOST_KINDS]; /* from the beginning */
	int first_join;	    /* fds of the lanes' cgroups, settings.join_count each; -1: none */
	char **interpreter; /* argv of the warm one, or NULL */
	char **environment; /* and what it starts with */
};

struct warm_host_request {
	enum warm_host_kind kind;
	char **argv; /* python: path of the script, then its arguments */
	char **env;
	const char *cwd;
	const char *code; /* python */
	size_t code_len;
};

struct warm_host *warm_host_new(struct guest *g, const struct warm_host_options *o);
/* What is written to the standard input of a task before anything else. */
void warm_host_pack_request(const struct warm_host_request *r, struct buf *ret);

/*
 * Warm lanes a task in a warm sandbox that is ready. -1 with EAGAIN: there is none just now; with
 * ESTALE: nor will there be, since the files of the image are not what they were. ret_report says
 * which layers it proved. The command's process is our child: whoever reaps it says so to warm_host_reaped.
 */
int warm_host_take_task(struct warm_host *n, enum warm_host_kind kind, struct spawned *ret,
			struct warm_report *ret_report, struct err *e);
/* How a task ended, by the kernel's word. */
struct task_end {
	int wait_status;
	int exec_errno;	 /* of a command; 0: it was executed */
	unsigned limits; /* that it met, GUEST_HIT_* */
	uint64_t cpu_us, max_rss_bytes;
	uint64_t disk_bytes; /* that its scratch held; UINT64_MAX: not known */
	int64_t ended_ns;
};

/* Whose it is, and who is told, once, when nothing that it started will ever run again. */
struct task_owner {
	uint32_t eid;
	void (*tell)(void *arg, const struct task_end *end);
	void *arg;
};

void warm_host_follow(struct warm_host *n, pid_t pid, const struct task_owner *o);
/* A child died; true: it was a task. */
bool warm_host_reaped(struct warm_host *n, pid_t pid, int status, const struct rusage *usage);
/* Kills the warm sandbox of this task, and so all that it started. */
void warm_host_kill(struct warm_host *n, uint32_t eid);
/* 0: it was reaped. */
pid_t warm_host_task_pid(struct warm_host *n, uint32_t eid);
/*
 * A request of this kind has waited since then: does that make sense? Not if there is no warm sandbox of the
 * kind, nor if they are all taken and none of them comes free.
 */
bool warm_host_is_worth_waiting(struct warm_host *n, enum warm_host_kind kind, int64_t since_ns);
/* Requests of this kind have waited for a while: if no warm sandbox is on its way, one more lane is started. */
void warm_host_grow(struct warm_host *n, enum warm_host_kind kind);

/* run.c: a warm sandbox has become ready, or never will be: serves the runs that wait. */
void warm_serve(void *guest);
