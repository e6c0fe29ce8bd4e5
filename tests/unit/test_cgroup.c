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

/* Of a v1 hierarchy with one file, after an update; the file's text before. */
static int update_one(enum cgroup_controller which, const char *name, const char *before,
		      bool all_foreign, char after[64])
{
	const char *const files[] = {name, NULL};
	struct cgroup c = CGROUP_NONE;
	char path[64];
	int rc;

	c.version = 1;
	c.all_foreign = all_foreign;
	c.dirs[which] = make_dir(path, files);
	assert_int_equal(io_write_at(c.dirs[which], name, before), 0);
	rc = cgroup_update(&c, &limits);
	snprintf(after, 64, "%s", text_of(c.dirs[which], name));
	close(c.dirs[which]);
	remove_dir(path);
	return rc;
}

static void test_v1_limits_processors(void **state)
{
	char text[64];

	assert_int_equal(update_one(CGROUP_CPU, "cpu.cfs_quota_us", "", false, text), 0);
	assert_string_equal(text, "50000");
}

/* pid 1 of a sandbox is ours, and not one of those that were asked for. */
static void test_v1_limits_processes(void **state)
{
	char text[64];

	assert_int_equal(update_one(CGROUP_PIDS, "pids.max", "", false, text), 0);
	assert_string_equal(text, "11");
	assert_int_equal(update_one(CGROUP_PIDS, "pids.max", "", true, text), 0);
	assert_string_equal(text, "10");
}

/* A file that keeps a part of its old text stands in for a limit that was not taken. */
static void test_a_limit_that_was_not_taken(void **state)
{
	char text[64];

	assert_int_equal(update_one(CGROUP_PIDS, "pids.max", "9999", false, text), -1);
	assert_string_equal(text, "1199");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_v2_has_no_swap),
		cmocka_unit_test(test_v1_limits_memory_and_swap_together),
		cmocka_unit_test(test_v1_without_swap_accounting),
		cmocka_unit_test(test_v1_limits_processors),
		cmocka_unit_test(test_v1_limits_processes),
		cmocka_unit_test(test_a_limit_that_was_not_taken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
