/* Groups of cgroups, in directories that stand in for the kernel's. */
#include "kern/cgroup_group.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>

#include <cmocka.h>

struct place {
	struct cgroup_place p;
	char path[64];
};

static int set_up(void **state)
{
	struct place *at = must_alloc(calloc(1, sizeof(*at)));

	strcpy(at->path, "/tmp/cloche-groups-XXXXXX");
	assert_non_null(mkdtemp(at->path));
	for (int i = 0; i < CGROUP_CONTROLLERS; i++)
		at->p.parents[i] = -1;
	at->p.parents[CGROUP_CPU] = open(at->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*state = at;
	return 0;
}

static int take_down(void **state)
{
	struct place *at = *state;
	auto_free char *command = str_format("rm -r %s", at->path);

	cgroup_place_close(&at->p);
	assert_int_equal(system(command), 0);
	free(at);
	return 0;
}

static bool has(const struct place *at, const char *name)
{
	return faccessat(at->p.parents[CGROUP_CPU], name, F_OK, 0) == 0;
}

static void make(const struct place *at, const char *name)
{
	int parent = at->p.parents[CGROUP_CPU];

	assert_int_equal(cgroup_group_make(parent, name), 0);
	assert_int_equal(mkdirat(parent, name, 0755), 0);
}

static void test_a_group_is_there_while_it_has_members(void **state)
{
	struct place *at = *state;

	make(at, "g-1/a");
	make(at, "g-1/b");
	assert_true(cgroup_try_remove_at(&at->p, "g-1/a"));
	assert_true(has(at, "g-1/b"));
	assert_true(cgroup_try_remove_at(&at->p, "g-1/b"));
	assert_false(has(at, "g-1"));
}

static void test_a_name_without_a_group(void **state)
{
	struct place *at = *state;

	make(at, "a");
	assert_true(cgroup_try_remove_at(&at->p, "a"));
	assert_false(has(at, "a"));
}

static const char *found(const struct place *at, const char *likely, const char *name)
{
	static char ret[CGROUP_NAME];

	cgroup_group_find(&at->p, "g-", likely, name, ret);
	return ret;
}

/* Where it was made depends on whose it was then, and on the version that made it. */
static void test_it_is_found(void **state)
{
	struct place *at = *state;

	make(at, "alone");
	make(at, "g-1/likely");
	make(at, "g-2/other");
	make(at, "x-3/foreign");
	make(at, "g-4/host-3");
	assert_string_equal(found(at, "g-1/likely", "likely"), "g-1/likely");
	assert_string_equal(found(at, "g-1/alone", "alone"), "alone");
	assert_string_equal(found(at, "g-1/other", "other"), "g-2/other");
	assert_string_equal(found(at, "g-1/foreign", "foreign"), "foreign");
	assert_string_equal(found(at, "g-1/host", "host"), "g-4/host");
	assert_string_equal(found(at, "g-1/none", "none"), "none");
}

static const char *text_of(const struct place *at, const char *name)
{
	static char text[64];

	memset(text, 0, sizeof(text));
	return io_read_at(at->p.parents[CGROUP_CPU], name, text, sizeof(text)) < 0 ? "none" : text;
}

/* On v2, also in a group that somebody else has only just made. */
static void test_a_group_hands_out_controllers(void **state)
{
	struct place *at = *state;
	int parent = at->p.parents[CGROUP_CPU];

	assert_int_equal(cgroup_group_make(parent, "g-1/a"), 0);
	close(openat(parent, "g-1/cgroup.subtree_control", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	assert_int_equal(cgroup_group_make(parent, "g-1/a"), 0);
	/* The kernel adds them up; here the last write is seen at the beginning. */
	assert_string_equal(text_of(at, "g-1/cgroup.subtree_control"), "+iomory +cpu +pids");
}

static void test_a_group_that_cannot_be_made(void **state)
{
	assert_int_equal(cgroup_group_make(-1, "g-1/a"), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_group_is_there_while_it_has_members, set_up,
						take_down),
		cmocka_unit_test_setup_teardown(test_a_name_without_a_group, set_up, take_down),
		cmocka_unit_test_setup_teardown(test_it_is_found, set_up, take_down),
		cmocka_unit_test_setup_teardown(test_a_group_hands_out_controllers, set_up,
						take_down),
		cmocka_unit_test(test_a_group_that_cannot_be_made),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
