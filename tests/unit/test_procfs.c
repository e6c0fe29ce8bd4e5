/* Which files of /proc are hidden, in a directory that stands in for it. */
#include "sandbox/inside/procfs.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* Kernels and distributions differ in which of these anybody may read: each is looked at. */
static void test_each_readable_file_is_hidden(void **state)
{
	static const char *const names[] = {
		"kallsyms",	 "keys",	  "key-users",	"interrupts",  "cmdline",
		"modules",	 "kcore",	  "timer_list", "sched_debug", "kmsg",
		"latency_stats", "sysrq-trigger", "bootconfig",
	};
	char path[] = "/tmp/cloche-procfs-XXXXXX";
	unsigned found = 0;
	int dir;

	assert_non_null(mkdtemp(path));
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(procfs_look(dir, false), 0);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		unsigned one;

		close(openat(dir, names[i], O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
		assert_int_equal(procfs_look(dir, false), 0);
		assert_int_not_equal(procfs_look(dir, true), 0);
		assert_int_equal(fchmodat(dir, names[i], 0444, 0), 0);
		one = procfs_look(dir, false);
		assert_int_not_equal(one, 0);
		assert_int_equal(found & one, 0);
		found |= one;
		assert_int_equal(unlinkat(dir, names[i], 0), 0);
	}
	close(dir);
	assert_int_equal(rmdir(path), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_readable_file_is_hidden),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
