/*
 * Warm starts: what is prepared before a request needs it. This page is the overview.
 *
 * Theory of operation
 *
 * Booting a sandbox takes milliseconds; loading an interpreter and its modules takes hundreds of
 * milliseconds. Both are done ahead of time, always by the same idea: something that is ready waits
 * for an order, serves one order, and is replaced by another of its kind.
 *
 *   pool           whole sandboxes, booted and not yet handed out (manager/warm/pool.c)
 *   warm host      a sandbox like any other, of one token and one image, in which the runs of that
 *                  token happen. Its pid 1 (cloche-guest) has kept its capabilities over the warm
 *                  host's own user namespace, and nothing else. No process in a warm host is
 *                  privileged on the host. (guest/warm/host.c; manager/warm/hosts.c starts and ends
 *                  warm hosts)
 *   lane           a process of the warm host in a user, network and mount namespace and a cgroup of
 *                  its own, which makes one warm sandbox after the other (warm.c). The warm host's
 *                  pid 1 keeps a struct lane for each (guest/warm/host_internal.h).
 *   warm sandbox   pid 1 of fresh pid, mount and ipc namespaces below a lane, with a fresh /tmp,
 *                  HOME, workspace, /proc and terminals. It gives up every privilege, then only
 *                  reaps. (warm.c)
 *   task           the process that runs the request in a warm sandbox. It is created in the warm
 *                  sandbox's pid namespace, enters the other namespaces, gives up every privilege,
 *                  verifies each layer, and then waits for its order. (enter.c; guest/warm/task.c,
 *                  guest/warm/task_end.c)
 *   spawner        the process of a lane that creates the tasks for commands (spawner.c)
 *   zygote         the warm host's interpreter with its modules loaded, which is forked for the tasks
 *                  that run Python, one at a time and ahead of any order (preload/preload.c,
 *                  guest/python/zygote.py, guest/warm/zygote.c)
 *   waiter         for Node.js, which cannot fork: the task executes the interpreter at once, and that
 *                  waits for the order (guest/warm/task.c, guest/js/waiter.js). None is started before
 *                  the first request for it.
 *   prefork        a command in a long-lived sandbox: an interpreter with its modules loaded that
 *                  makes copies of itself, for snippets and for kernels (guest/exec/prefork.c,
 *                  guest/python/prefork.py, manager/warm/prefork.c)
 *
 * The zygote and the prefork fork in different ways, because their children end up in different
 * places. A zygote's child is created in the pid namespace of another sandbox. That takes setns and
 * a raw clone by a process with capabilities over the warm host, so it is done in C, in place of
 * fork(). A prefork's copy stays in the sandbox of its prefork, which has no capabilities at all:
 * an ordinary double fork in Python is enough there.
 *
 * An order is the same for all of them: directory, arguments, variables (spawn_pack_order in
 * guest/exec/spawn.h). A task reads its order from its standard input, in front of the command's
 * own input, and behind the order the files that it is to write first: code in any language, and
 * files of the request. A copy receives its order on the prefork's socket, together with its streams. In both
 * cases the process that carries out the order is a child of the sandbox's pid 1, which therefore
 * learns from the kernel how the process ended.
 *
 * The files that an interpreter has loaded may change. Whoever loads them notes where they came
 * from, and checks before an order is carried out that they are still the same
 * (guest/warm/recheck.c; look() in guest/python/prefork.py).
 *
 * A warm sandbox has one task in its life. When the task ends, the warm sandbox is killed, and with
 * it everything that the task left behind. If files of it are wanted (GUEST_RUN_HOLD), the lane makes the next
 * warm sandbox only after they were read, by a worker in the dead one's mount namespace. The lane's user, network, uts and time namespaces and
 * its cgroup are used again, for the same token only, and the record lists them as recycled. A
 * network is used again only if its counters did not move; otherwise the lane makes a new one.
 */
#pragma once

#include "base/base.h"
#include "model/layer.h"
#include "model/spec.h"
#include "sandbox/inside/warm_settings.h"

/*
 * In the warm host's pid 1: notes its own namespaces and /proc, from which those of warm sandboxes
 * must differ.
 */
void warm_look_around(struct warm_settings *t);

/* What a task reports before it closes its last fd. */
struct warm_report {
	layer_set proven;
	int landlock_abi;
	bool listening;
	struct err err; /* kind set: the task could not enter, and is dead */
};

/*
 * What a lane reports about each of its warm sandboxes, in this order: WARM_NETWORK, a new network
 * (with its name server's socket), unless the last one was not used; WARM_READY, made (with
 * WARM_FDS); WARM_TASK, if the lane has a spawner: its task is ready (with the filter's listener);
 * WARM_GONE.
 */
enum warm_news { WARM_READY = 1, WARM_FAILED, WARM_GONE, WARM_NETWORK, WARM_TASK };

struct warm_message {
	enum warm_news news;
	int exit_code;		 /* WARM_GONE: WARM_OUT_OF_MEMORY, or anything else */
	struct warm_report told; /* WARM_TASK; WARM_FAILED: just the error */
};

#define WARM_OUT_OF_MEMORY 42

/* KEEP comes with the mount namespace of the last warm sandbox; MAKE_FIRST is followed by KEEP and DROP. */
enum lane_order { LANE_KEEP = 'k', LANE_DROP = 'd', LANE_MAKE = 'm', LANE_MAKE_FIRST = 'f' };

struct lane_process {
	pid_t pid;
	int control; /* SEQPACKET: a byte (enum lane_order); struct warm_message with fds comes back */
	int dns;     /* the name server's socket */
};

/* What a spawner does in each new warm sandbox. */
struct spawner_settings {
	void (*run)(void *arg); /* in the task, with every layer in place; must not allocate */
	void *arg;
	/* In shared memory: pids, the task's written by the kernel before the task runs. */
	pid_t *task, *spawner;
};

/*
 * Starts a lane. joins: the files of its cgroup to join by. spawner: NULL if tasks come from the
 * zygote. Blocks for about a millisecond.
 */
int lane_process_start(const struct warm_settings *t, int index, const int *joins,
		       const struct spawner_settings *spawner, struct lane_process *ret,
		       struct err *e);
/*
 * Asks for a warm sandbox; the answer comes on control. old: the mount namespace of the last one,
 * or -1; it is closed. Whoever closes a mount namespace last waits for an RCU grace period of the whole
 * host, which any tenant can draw out. So that is always the lane, and no request waits for it: our own fd
 * is closed between LANE_KEEP and LANE_DROP. is_small: what lies in the old sandbox may stay until the next
 * one is made; else it would count against the next one's memory.
 */
int lane_process_make_sandbox(const struct lane_process *s, int old, bool is_small);
/*
 * Takes one message. WARM_READY comes with WARM_FDS, the last three of which are our ends of the
 * task's streams, if there is a spawner. The spawner receives namespace fds in their place (up to
 * WARM_FDS_ALL). -1: the lane is gone.
 */
enum {
	WARM_PIDFD,
	WARM_SCRATCH,
	WARM_MOUNTS,
	WARM_STREAMS,
	WARM_FDS = WARM_STREAMS + 3,
	WARM_PIDS = WARM_STREAMS,
	WARM_IPC,
	WARM_NET,
	WARM_FDS_ALL
};
int lane_process_receive(const struct lane_process *s, struct warm_message *ret,
			 int ret_fds[WARM_FDS]);
void lane_process_stop(struct lane_process *s);

struct warm_entry {
	const struct warm_settings *settings;
	/*
	 * The task is in the lane's namespaces and cgroup already, and will exec: it must not be
	 * dumpable.
	 */
	bool by_spawner;
	int mounts, ipc, net;  /* by_spawner: namespaces */
	int sandbox;	       /* else: pidfd of the warm sandbox */
	int joins[WARM_JOINS]; /* of its lane */
	int scratch;	       /* the warm sandbox's tmpfs */
	int streams[3];
	int report; /* SEQPACKET: struct warm_message with the filter's listener */
};

/*
 * In the task's process, which is in the warm sandbox's pid namespace: everything from there to the
 * last layer. Afterwards only fds 0 to 2 are open, and the report was sent. -1: the report says
 * why.
 */
int warm_enter(const struct warm_entry *c);
