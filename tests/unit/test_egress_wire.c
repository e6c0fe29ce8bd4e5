/* wire/egress: messages arrive as they were sent, and malformed ones are refused. */
#include "wire/egress.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/socket.h>

#include <cmocka.h>

static void test_round_trip(void **state)
{
	struct egress out = {.type = EGRESS_ADD}, in;
	int pair[2], fds[2], got[EGRESS_FDS];
	size_t count = 99;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
	assert_int_equal(pipe(fds), 0);
	strcpy(out.add.id, "abc");
	out.add.fd_count = 2;
	assert_int_equal(egress_send(pair[0], &out, fds, 2), 0);
	memset(&in, 0xff, sizeof(in));
	assert_int_equal(egress_receive(pair[1], &in, got, EGRESS_FDS, &count), 1);
	assert_int_equal(count, 2);
	assert_int_equal(in.type, EGRESS_ADD);
	assert_string_equal(in.add.id, "abc");
	/* Nothing of an earlier message is left behind the payload. */
	assert_int_equal(((char *)&in)[sizeof(in) - 1], 0);
	close(got[0]);
	close(got[1]);
	/* As many fds as it says. */
	assert_int_equal(egress_send(pair[0], &out, fds, 1), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(egress_receive(pair[1], &in, got, EGRESS_FDS, &count), -1);
	assert_int_equal(errno, EAGAIN);
	close(pair[0]);
	assert_int_equal(egress_receive(pair[1], &in, got, EGRESS_FDS, &count), 0);
	close(pair[1]);
	close(fds[0]);
	close(fds[1]);
}

static void test_malformed(void **state)
{
	struct egress m = {.type = EGRESS_RECORD};
	size_t len = egress_size(EGRESS_RECORD);

	(void)state;
	strcpy(m.record.id, "abc");
	assert_true(egress_is_well_formed(&m, len, 0));
	assert_false(egress_is_well_formed(&m, len - 1, 0));
	assert_false(egress_is_well_formed(&m, len + 1, 0));
	assert_false(egress_is_well_formed(&m, len, 1));
	assert_false(egress_is_well_formed(&m, 3, 0));
	memset(m.record.why, 'x', sizeof(m.record.why));
	assert_false(egress_is_well_formed(&m, len, 0));
	m.record.why[0] = '\0';
	strcpy(m.record.id, "../x");
	assert_false(egress_is_well_formed(&m, len, 0));
	m.record.id[0] = '\0';
	assert_false(egress_is_well_formed(&m, len, 0));
	m.type = EGRESS_PING;
	assert_true(egress_is_well_formed(&m, egress_size(EGRESS_PING), 0));
	m.zero = 1;
	assert_false(egress_is_well_formed(&m, egress_size(EGRESS_PING), 0));
	m.zero = 0;
	m.type = 31;
	assert_int_equal(egress_size(31), 0);
	assert_false(egress_is_well_formed(&m, len, 0));
	m.type = UINT32_MAX;
	assert_false(egress_is_well_formed(&m, len, 0));
}

static void test_settings(void **state)
{
	struct egress_settings s = {.dns_count = 1};
	struct egress_secret secret = {.value_len = 3};

	(void)state;
	assert_true(egress_settings_are_well_formed(&s));
	s.dns_count = 9;
	assert_false(egress_settings_are_well_formed(&s));
	s.dns_count = 0;
	memset(s.proxy, 'x', sizeof(s.proxy));
	assert_false(egress_settings_are_well_formed(&s));
	assert_true(egress_secret_is_well_formed(&secret));
	secret.value_len = sizeof(secret.value) + 1;
	assert_false(egress_secret_is_well_formed(&secret));
	secret.value_len = 0;
	memset(secret.hosts[15], 'x', sizeof(secret.hosts[15]));
	assert_false(egress_secret_is_well_formed(&secret));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_malformed),
		cmocka_unit_test(test_settings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
