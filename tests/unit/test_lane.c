/* What a warm host's pid 1 orders of a lane: who closes the mount namespace of the last warm sandbox, and when. */
#include "warm/warm.h"

#include "sandbox/inside/message.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/socket.h>

#include <cmocka.h>

struct orders {
	char text[8];	/* as the lane gets them */
	size_t fds_at;	/* with which the namespace came */
	bool is_closed; /* our end */
};

static struct orders order(bool has_old, bool is_small)
{
	struct orders o = {.fds_at = SIZE_MAX};
	int pair[2], pipe_ends[2], fds[KEEPER_MAX_FDS], old = -1;
	struct lane_process lane = {0};
	struct err e;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(pipe2(pipe_ends, O_CLOEXEC), 0);
	lane.control = pair[0];
	old = has_old ? pipe_ends[0] : -1;
	assert_int_equal(lane_process_make_sandbox(&lane, old, is_small), 0);
	o.is_closed = fcntl(pipe_ends[0], F_GETFD) < 0;
	shutdown(pair[0], SHUT_WR);
	for (size_t i = 0; message_receive(pair[1], &o.text[i], 1, fds, &e) == 0; i++) {
		if (fds[0] < 0)
			continue;
		o.fds_at = i;
		close(fds[0]);
	}
	close(pair[0]);
	close(pair[1]);
	close(pipe_ends[1]);
	if (!o.is_closed)
		close(pipe_ends[0]);
	return o;
}

static void test_the_next_is_made_before_the_last_is_torn_down(void **state)
{
	const struct orders o = order(true, true);

	assert_string_equal(o.text, "fkd");
	assert_int_equal(o.fds_at, 1);
	assert_true(o.is_closed);
}

/* Its files would count against the memory of the next. */
static void test_a_large_one_is_torn_down_first(void **state)
{
	const struct orders o = order(true, false);

	assert_string_equal(o.text, "kdm");
	assert_int_equal(o.fds_at, 0);
	assert_true(o.is_closed);
}

static void test_the_first_one(void **state)
{
	const struct orders o = order(false, true);

	assert_string_equal(o.text, "m");
	assert_int_equal(o.fds_at, SIZE_MAX);
	assert_false(o.is_closed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_next_is_made_before_the_last_is_torn_down),
		cmocka_unit_test(test_a_large_one_is_torn_down_first),
		cmocka_unit_test(test_the_first_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
