/* Cgroups: which files get which limits, in directories that stand in for the kernel's. */
#include "kern/cgroup.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const struct limits limits = {.memory_bytes = 64 << 20, .cpus_milli = 500, .pids = 10};

static int make_dir(char *path, const char *const *files)
{
	int dir;

	strcpy(path, "/tmp/cloche-cgroup-XXXXXX");
	assert_non_null(mkdtemp(path));
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(dir >= 0);
	for (; *files; files++)
		close(openat(dir, *files, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	return dir;
}

static void remove_dir(const char *path)
{
	auto_free char *command = str_format("rm -r %s", path);

	assert_int_equal(system(command), 0);
}

static const char *text_of(int dir, const char *name)
{
	static char text[64];

	memset(text, 0, sizeof(text));
	return io_read_at(dir, name, text, sizeof(text)) < 0 ? "none" : text;
}

static void test_v2_has_no_swap(void **state)
{
	static const char *const files[] = {"memory.max", "memory.swap.max", "cpu.max", "pids.max",
					    NULL};
	struct cgroup c = CGROUP_NONE;
	char path[64];

	c.version = 2;
	c.dirs[0] = make_dir(path, files);
	assert_int_equal(cgroup_update(&c, &limits), 0);
	assert_string_equal(text_of(c.dirs[0], "memory.max"), "67108864");
	assert_string_equal(text_of(c.dirs[0], "memory.swap.max"), "0");
	assert_true(c.layers & LAYER_BIT(LAYER_MEMORY));
	close(c.dirs[0]);
	remove_dir(path);
}

static void test_v1_limits_memory_and_swap_together(void **state)
{
	static const char *const files[] = {"memory.limit_in_bytes", "memory.memsw.limit_in_bytes",
					    "memory.swappiness", NULL};
	struct cgroup c = CGROUP_NONE;
	char path[64];

	c.version = 1;
	c.dirs[CGROUP_MEMORY] = make_dir(path, files);
	assert_int_equal(cgroup_update(&c, &limits), 0);
	assert_string_equal(text_of(c.dirs[CGROUP_MEMORY], "memory.limit_in_bytes"), "67108864");
	assert_string_equal(text_of(c.dirs[CGROUP_MEMORY], "memory.memsw.limit_in_bytes"),
			    "67108864");
	close(c.dirs[CGROUP_MEMORY]);
	remove_dir(path);
}

/* Kernels without swap accounting: nothing of the cgroup is swapped out. */
static void test_v1_without_swap_accounting(void **state)
{
	static const char *const files[] = {"memory.limit_in_bytes", "memory.swappiness", NULL};
	struct cgroup c = CGROUP_NONE;
	char path[64];

	c.version = 1;
	c.dirs[CGROUP_MEMORY] = make_dir(path, files);
	assert_int_equal(cgroup_update(&c, &limits), 0);
	assert_string_equal(text_of(c.dirs[CGROUP_MEMORY], "memory.swappiness"), "0");
	close(c.dirs[CGROUP_MEMORY]);
	remove_dir(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_v2_has_no_swap),
		cmocka_unit_test(test_v1_limits_memory_and_swap_together),
		cmocka_unit_test(test_v1_without_swap_accounting),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
