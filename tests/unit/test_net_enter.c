#include "provider/ns/ns_internal.h"

#include "base/auto.h"
#include "kern/sys.h"
#include "kern/userns.h"

#include <net/if.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cmocka.h>

/* A process in a network namespace of its own, in which nothing is up. */
static pid_t start_elsewhere(void)
{
	uid_t uid = getuid();
	gid_t gid = getgid();
	struct err e;
	int ready[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0 ||
		    userns_map_self(0, uid, 0, gid, &e) < 0)
			_exit(1);
		(void)!write(ready[1], "r", 1);
		pause();
		_exit(0);
	}
	close(ready[1]);
	byte = 0;
	(void)!read(ready[0], &byte, 1);
	close(ready[0]);
	return byte == 'r' ? pid : -1;
}

static bool loopback_is_up(int fd)
{
	struct ifreq lo = {.ifr_name = "lo"};

	assert_int_equal(ioctl(fd, SIOCGIFFLAGS, &lo), 0);
	return lo.ifr_flags & IFF_UP;
}

static void test_socket_is_inside(void **state)
{
	struct err e = {0};
	auto_close int ours = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	pid_t pid = start_elsewhere();

	(void)state;
	if (pid < 0)
		skip();
	auto_close int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	auto_close int fd = net_enter(pidfd, true, AF_INET, SOCK_DGRAM, &e);

	assert_true(fd >= 0);
	assert_false(loopback_is_up(fd));
	/* And we are where we were. */
	auto_close int after = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	assert_int_equal(loopback_is_up(after), loopback_is_up(ours));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void test_nobody_there(void **state)
{
	struct err e = {0};

	(void)state;
	assert_int_equal(net_enter(-1, true, AF_INET, SOCK_STREAM, &e), -1);
	assert_int_equal(e.kind, ERR_SYSTEM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_socket_is_inside),
		cmocka_unit_test(test_nobody_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
