/*
 * Opens a socket in a sandbox's network namespace. A child that shares memory and file table with the broker
 * enters the namespace and opens the socket, so the broker itself never leaves its namespaces.
 */
#include "provider/ns/ns_internal.h"

#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define STACK 16384

struct visit {
	int pidfd, flags, family, type, fd, errnum;
};

/* Only system calls: the parent's memory is shared. */
static int open_inside(void *arg)
{
	struct visit *v = arg;

	v->fd = setns(v->pidfd, v->flags) < 0
			? -1
			: socket(v->family, v->type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	v->errnum = errno;
	return 0;
}

int net_enter(int pidfd, bool rootless, int family, int type, struct err *e)
{
	static char stack[STACK] __attribute__((aligned(16)));
	struct visit v = {.pidfd = pidfd, .family = family, .type = type, .fd = -1};
	pid_t pid;

	/* An ordinary user has rights over the network only within the sandbox's user namespace. */
	v.flags = CLONE_NEWNET | (rootless ? CLONE_NEWUSER : 0);
	/* Without an exit signal no other wait of the broker sees the child. */
	pid = clone(open_inside, stack + STACK, CLONE_VM | CLONE_VFORK | CLONE_FILES, &v);
	if (pid < 0)
		return err_sys(e, "cannot create a process");
	while (waitpid(pid, NULL, __WCLONE) < 0 && errno == EINTR)
		continue;
	errno = v.errnum;
	return v.fd < 0 ? err_sys(e, "cannot open a socket in the sandbox's network") : v.fd;
}
