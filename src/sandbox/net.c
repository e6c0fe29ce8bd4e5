#include "sandbox/net.h"

#include "base/auto.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

static int up(int *ret_dns, struct err *e)
{
	struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_port = htons(53),
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	auto_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &loopback) < 0)
		return err_sys(e, "cannot bring up the loopback interface");
	*ret_dns = bind(fd, (void *)&address, sizeof(address)) == 0 ? take_fd(&fd) : -1;
	return 0;
}

int net_create(int *ret_dns, struct err *e)
{
	if (unshare(CLONE_NEWNET) < 0)
		return err_sys(e, "cannot create a network namespace");
	return up(ret_dns, e);
}

/*
 * Shares memory and fds with the keeper, which goes on meanwhile. errno is shared as well: it is
 * only written when a call here fails, and then the run fails.
 */
static int make(void *arg)
{
	struct net_maker *n = arg;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != n->maker)
		_exit(1);
	if (net_create(&n->dns, &n->err) == 0) {
		n->ns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
		if (n->ns < 0)
			err_sys(&n->err, "cannot open the network namespace");
	}
	_exit(0);
}

int net_start(struct net_maker *n, struct err *e)
{
	static char stack[16 << 10] __attribute__((aligned(16)));

	*n = (struct net_maker){.maker = getpid(), .ns = -1, .dns = -1};
	n->pid = clone(make, stack + sizeof(stack), CLONE_VM | CLONE_FILES, n);
	return n->pid < 0 ? err_sys(e, "cannot create a process") : 0;
}

int net_finish(struct net_maker *n, struct err *e)
{
	pid_t pid = n->pid;

	n->pid = 0;
	if (pid <= 0)
		return 0;
	waitpid(pid, NULL, __WALL);
	if (n->ns < 0) {
		*e = n->err;
		return -1;
	}
	return 0;
}
