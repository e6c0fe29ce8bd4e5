/* What Landlock refuses besides files. Each attempt is made by a child, alone under Landlock. */
#include "kern/landlock.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cmocka.h>

/* 0, or the errno of an attempt by a child whose ruleset refuses TCP if asked to. */
static int attempt(int (*act)(void), bool refuse_tcp)
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0) {
		struct landlock l;
		struct err e;

		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
		    landlock_open(&l, refuse_tcp, &e) < 0 || landlock_apply(&l, &e) < 0)
			_exit(255);
		_exit(act() < 0 ? errno : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int signal_parent(void)
{
	return kill(getppid(), 0);
}

static int bind_tcp(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return bind(fd, (struct sockaddr *)&any, sizeof(any));
}

static int connect_tcp(void)
{
	struct sockaddr_in there = {.sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				    .sin_port = htons(1)};
	auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return connect(fd, (struct sockaddr *)&there, sizeof(there));
}

static void test_signals(void **state)
{
	if (landlock_abi() < 6)
		skip();
	assert_int_equal(attempt(signal_parent, false), EPERM);
}

static void test_tcp(void **state)
{
	if (landlock_abi() < 4)
		skip();
	assert_int_equal(attempt(bind_tcp, true), EACCES);
	assert_int_equal(attempt(connect_tcp, true), EACCES);
	assert_int_equal(attempt(bind_tcp, false), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_signals),
		cmocka_unit_test(test_tcp),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
