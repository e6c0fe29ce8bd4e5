/* The keeper's state; keeper.c runs the sandbox, outcome.c says how it ended. */
#pragma once

#include "base/base.h"
#include "kern/cgroup.h"
#include "kern/userns.h"
#include "model/result.h"
#include "sandbox/inside/net.h"
#include "sandbox/plan/plan.h"
#include "sandbox/outside/stream.h"
#include "sandbox/outside/terminal.h"

#include <sys/resource.h>

struct keeper {
	struct plan plan;
	struct cgroup cgroup;
	struct cgroup_stats stats;
	pid_t pid; /* of pid 1, or of the init of level process at level process */
	int pidfd;
	int control;
	int signals;
	sigset_t callers_mask;
	int scratch;
	int mounts; /* the sandbox's mount namespace: to take it apart takes a while */
	struct netns_maker net;
	struct userns userns[PLAN_OWNERS]; /* of the owners */
	struct stdin_relay stdin_relay;
	struct stream out, err;
	struct terminal terminal;
	int64_t started_ns, ended_ns;
	bool told_to_end; /* by a signal */
	bool was_ended;	  /* by the keeper, for this reason: */
	enum status reason;
	int reason_signal;
	int64_t kill_at_ns;
	unsigned interrupts;
	struct rusage usage;
};

#define KEEPER_NONE                                                                                \
	{                                                                                          \
		.pidfd = -1, .control = -1, .signals = -1, .scratch = -1, .mounts = -1,            \
		.out = {.fd = -1, .relay = -1}, .err = {.fd = -1, .relay = -1},                    \
		.terminal = {.master = -1, .slave = -1}, .stdin_relay = {.from = -1, .to = -1},    \
		.net = NET_NETNS_MAKER_NONE                                                        \
	}

/* Memory that is shared with the sandbox; NULL: there is none. */
struct status_page *keeper_map_status_page(struct err *e);

/* Fills ret from what the kernel, the cgroup and the status page say. Everything inside is dead. */
int outcome_collect(struct keeper *k, struct result *ret, struct err *e);
