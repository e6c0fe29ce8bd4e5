/* The resource limits that a sandbox's processes get, with calls that stand in for the kernel's. */
#include "sandbox/inside/privileges.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/resource.h>

#include <cmocka.h>

static struct rlimit table[RLIM_NLIMITS];
static bool stands_in, lies;

/* A runtime, such as a sanitizer's, asks before main. */
int getrlimit(__rlimit_resource_t which, struct rlimit *ret)
{
	if (!stands_in)
		return prlimit(0, which, NULL, ret);
	*ret = table[which];
	return 0;
}

int setrlimit(__rlimit_resource_t which, const struct rlimit *limit)
{
	if (!stands_in)
		return prlimit(0, which, limit, NULL);
	if (!lies)
		table[which] = *limit;
	return 0;
}

static int set_limits(layer_set proven, bool lying)
{
	struct status_page page = {.proven = proven};
	struct sandbox_spec spec = {.limits.pids = 20, .limits.disk_bytes = 1 << 20};
	struct plan p = {.spec = &spec, .page = &page};
	struct err e = {0};
	int rc;

	for (size_t i = 0; i < RLIM_NLIMITS; i++)
		table[i] = (struct rlimit){RLIM_INFINITY, RLIM_INFINITY};
	lies = lying;
	stands_in = true;
	rc = restrict_limits(&p, &e);
	stands_in = false;
	return rc;
}

static void test_limits(void **state)
{
	assert_int_equal(set_limits(LAYER_BIT(LAYER_PIDS), false), 0);
	assert_int_equal(table[RLIMIT_CORE].rlim_max, 1);
	assert_int_equal(table[RLIMIT_RTPRIO].rlim_max, 0);
	assert_int_equal(table[RLIMIT_NICE].rlim_max, 0);
	assert_int_equal(table[RLIMIT_FSIZE].rlim_max, 5 << 20);
	assert_true(table[RLIMIT_NPROC].rlim_max == RLIM_INFINITY);
}

/* Without a cgroup: as many as asked for, and pid 1. */
static void test_processes_without_a_cgroup(void **state)
{
	assert_int_equal(set_limits(LAYER_BIT(LAYER_USER_NS), false), 0);
	assert_int_equal(table[RLIMIT_NPROC].rlim_cur, 21);
	assert_int_equal(table[RLIMIT_NPROC].rlim_max, 21);
}

static void test_a_limit_that_does_not_hold(void **state)
{
	assert_int_equal(set_limits(LAYER_BIT(LAYER_PIDS), true), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_processes_without_a_cgroup),
		cmocka_unit_test(test_a_limit_that_does_not_hold),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
