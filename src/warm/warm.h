/*
 * What is prepared before anybody asks: the one page about it.
 *
 * Theory of operation
 *
 * Making a sandbox takes milliseconds, and loading an interpreter with its modules takes hundreds. Both are
 * done ahead, and always by the same idea: something that is ready waits for an order, is used for
 * one order, and is replaced by another one of its kind.
 *
 *   pool     (manager) whole sandboxes of the daemon's, booted and not yet given to anybody
 *   warm host     a sandbox like any other, of one token and one image, whose pid 1 (cloche-guest) has kept its
 *            capabilities over the warm host's own user namespace, and nothing else. No process in it is
 *            privileged on the host. Runs of that token happen in it:
 *     lane   a process of the warm host in a user, network and mount namespace and a cgroup of its own. Makes
 *            one warm sandbox after the other. (warm sandbox.c)
 *     warm sandbox   pid 1 of fresh pid, mount and ipc namespaces below a lane, with a fresh /tmp, HOME,
 *            workspace, /proc and terminals. It gives up everything, then only reaps.
 *     task what runs in a warm sandbox. A child of the warm host's pid 1, which hence learns its status from the
 *            kernel: made by the lane's spawner for a command (warm_spawner.h), or by a warm interpreter
 *            (zygote), born into the warm sandbox's pid namespace. It enters the rest, gives up everything, tries
 *            each layer, and then waits for its order. (warm_enter.c)
 *     seat   (guest/warm/host_internal.h) what the warm host's pid 1 knows of a lane, its warm sandbox and its task
 *   zygote   the warm host's interpreter with its modules loaded (src/zygote, guest/python/zygote.py). It is asked
 *            for one task at a time, ahead of any order.
 *   prefork     a command of a sandbox that goes on, an interpreter with its modules loaded, which makes copies
 *            of itself (guest/exec/prefork.h, guest/python/prefork.py): for snippets and for kernels. A copy is no
 *            sandbox of its own: it lives in the sandbox that its prefork lives in.
 *
 * An order is the same for all of them: directory, arguments, variables (spawn_pack_order of guest/exec/spawn.h).
 * A task reads it from its standard input, before what the command's input will be; a copy gets it on the
 * prefork's socket, together with its streams. In both cases the process that carries the order out is a child
 * of the sandbox's pid 1: how it ended is the kernel's word.
 *
 * What an interpreter has loaded may change: whoever has loaded it notes where it came from, and looks
 * before an order is carried out whether that is still the same (guest/warm/recheck.c; look() of prefork.py).
 *
 * A warm sandbox has one task in its life. When that ends, the warm sandbox is killed, and with it whatever the
 * task left; the lane's user, network, uts and time namespaces and its cgroup are used again, for the
 * same token only, and the record names them as recycled. A network only if it counted nothing: else
 * the lane makes another.
 */
#pragma once

#include "base/base.h"
#include "model/layer.h"
#include "model/spec.h"
#include "sandbox/inside/warm_settings.h"

/* In the warm host's pid 1: fills in what is outside of its warm sandboxes. */
void warm_look_around(struct warm_settings *t);

/* What a task tells before it gives up its last fd. */
struct warm_report {
	layer_set proven;
	int landlock_abi;
	bool listening;
	struct err err; /* kind set: it could not enter, and is dead */
};

/*
 * A lane tells of its warm sandboxes, in this order: a new network (with its name server's socket), unless nobody
 * used the last one; made (with a pidfd); seated, if it has a spawner (with the filter's listener); gone.
 */
enum warm_news { WARM_READY = 1, WARM_FAILED, WARM_GONE, WARM_NETWORK, WARM_TASK };

struct warm_message {
	enum warm_news news;
	int exit_code;		 /* WARM_GONE: WARM_OUT_OF_MEMORY, or anything else */
	struct warm_report told; /* WARM_TASK; of the others just the error */
};

#define WARM_OUT_OF_MEMORY 42

struct lane_process {
	pid_t pid;
	int control; /* SEQPACKET: a byte asks for a warm sandbox, struct warm_message with fds comes back */
	int dns; /* the name server's socket */
};

/* Who is seated in each warm sandbox as soon as it is made. */
struct spawner_settings {
	void (*run)(void *arg); /* in the task, with every layer in place; must not allocate */
	void *arg;
	/* In shared memory: pids, the task's written by the kernel before the task runs. */
	pid_t *task, *spawner;
};

/*
 * Starts a lane; joins are its cgroup's files; spawning NULL: tasks come from elsewhere. Blocks for
 * about a millisecond.
 */
int lane_process_start(const struct warm_settings *t, int index, const int *joins,
		       const struct spawner_settings *spawner, struct lane_process *ret,
		       struct err *e);
/*
 * Asks for a warm sandbox; the answer comes on control. old: the mount namespace of the last one, or -1; the
 * lane lets go of it first, so that nobody who waits has to wait for it to be taken apart.
 */
int lane_process_make_sandbox(const struct lane_process *s, int old);
/*
 * Takes one message; WARM_READY comes with WARM_FDS, the last three of which are our ends of the task's
 * streams if there is a spawner. She gets namespaces instead. -1: the lane is gone.
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
	/* It comes from the lane's namespaces and cgroup, and executes something: it is not to be dumpable. */
	bool by_spawner;
	int mounts, ipc, net;  /* by_spawner: namespaces */
	int sandbox;	       /* else: pidfd of the warm sandbox */
	int joins[WARM_JOINS]; /* of its lane */
	int scratch;	       /* the warm sandbox's tmpfs */
	int streams[3];
	int report; /* SEQPACKET: struct warm_message with the filter's listener */
};

/*
 * In the task's process, which was born into the warm sandbox's pid namespace: everything from there to
 * the last layer. Afterwards only fds 0 to 2 are open, and the report was sent. -1: it was told why.
 */
int warm_enter(const struct warm_entry *c);
