/* Mounts: file systems that hold the host's memory or its counted objects need a bound. */
#include "kern/mount.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_bounds_are_needed(void **state)
{
	static const char *const other[] = {"mode", "0755", NULL};
	struct err e = {0};

	assert_int_equal(mount_new("tmpfs", 0, NULL, &e), -1);
	assert_non_null(strstr(e.msg, "without a bound"));
	assert_int_equal(mount_new("tmpfs", 0, other, &e), -1);
	assert_non_null(strstr(e.msg, "without a bound"));
	assert_int_equal(mount_new("devpts", 0, other, &e), -1);
	assert_non_null(strstr(e.msg, "without a bound"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bounds_are_needed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
