/*
 * Opens sockets in a sandbox's network namespace, and makes that namespace lead to listeners. A child that
 * shares the broker's file table enters the namespace, so the broker itself never leaves its own.
 */
#include "provider/ns/ns_internal.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define STACK 65536

/* In memory that both processes see. */
struct visit {
	int pidfd, flags;
	int family, type, fd; /* of one socket; or: */
	bool redirects;
	struct net_setup setup;
	struct net_listeners listeners;
	struct err err;
};

/* Only system calls: as root the parent's memory is shared. */
static int visit_namespace(void *arg)
{
	struct visit *v = arg;

	if (setns(v->pidfd, v->flags) < 0)
		return err_sys(&v->err, "cannot enter the sandbox's network");
	if (v->redirects)
		return net_redirect(&v->setup, &v->listeners, &v->err);
	v->fd = socket(v->family, v->type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	return v->fd < 0 ? err_sys(&v->err, "cannot open a socket in the sandbox's network") : 0;
}

static struct visit *shared_visit(void)
{
	static struct visit *page;

	if (!page) {
		void *at = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);

		page = at == MAP_FAILED ? NULL : at;
	}
	return page;
}

static int run_visit(struct visit *v, int pidfd, bool rootless, struct err *e)
{
	static char stack[STACK] __attribute__((aligned(16)));
	int flags = CLONE_VFORK | CLONE_FILES, status = 0;
	pid_t pid;

	v->pidfd = pidfd;
	v->flags = CLONE_NEWNET;
	v->err = (struct err){0};
	/*
	 * An ordinary user has rights over the network only within the sandbox's user namespace. Entering
	 * that one makes the memory of the process undumpable, which must not happen to the broker: so the
	 * child gets a copy.
	 */
	if (rootless)
		v->flags |= CLONE_NEWUSER;
	else
		flags |= CLONE_VM;
	/* Without an exit signal no other wait of the broker sees the child. */
	pid = clone(visit_namespace, stack + STACK, flags, v);
	if (pid < 0)
		return err_sys(e, "cannot create a process");
	while (waitpid(pid, &status, __WCLONE) < 0 && errno == EINTR)
		continue;
	if (status == 0)
		return 0;
	*e = v->err;
	return e->kind ? -1 : err_set(e, ERR_SYSTEM, "the visit of the sandbox's network ended");
}

int net_enter(int pidfd, bool rootless, int family, int type, struct err *e)
{
	struct visit *v = shared_visit();

	if (!v)
		return err_sys(e, "cannot get memory");
	*v = (struct visit){.family = family, .type = type, .fd = -1};
	return run_visit(v, pidfd, rootless, e) < 0 ? -1 : v->fd;
}

int net_prepare(int pidfd, bool rootless, const struct net_setup *setup, struct net_listeners *ret,
		struct err *e)
{
	struct visit *v = shared_visit();

	if (!v)
		return err_sys(e, "cannot get memory");
	*v = (struct visit){.redirects = true, .setup = *setup, .fd = -1};
	for (size_t i = 0; i < NET_LISTENERS_MAX; i++)
		v->listeners.fds[i] = -1;
	if (run_visit(v, pidfd, rootless, e) < 0)
		return -1;
	*ret = v->listeners;
	return 0;
}
