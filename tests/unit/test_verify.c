/* What verify.c takes for a proof of the disk limit and of no_new_privs. */
#include "kern/mount.h"
#include "sandbox/inside/verify.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static bool is_proven(uint64_t tmpfs_bytes, uint64_t disk_bytes)
{
	auto_free char *size = str_format("%" PRIu64, tmpfs_bytes);
	const char *options[] = {"size", size, NULL};
	struct status_page page = {.proven = 0};
	struct sandbox_spec spec = {.limits.disk_bytes = disk_bytes};
	struct plan p = {.spec = &spec, .page = &page};
	struct err e = {0};
	auto_close int scratch = mount_new("tmpfs", 0, options, &e);

	if (scratch < 0)
		skip();
	return verify_privileges(&p, scratch) & LAYER_BIT(LAYER_DISK);
}

static void test_the_disk_is_as_large_as_it_should_be(void **state)
{
	assert_true(is_proven(64 << 20, 64 << 20));
	assert_true(is_proven(32 << 20, 64 << 20));
	assert_false(is_proven(256 << 20, 64 << 20));
}

/* Each writable place must be a tmpfs of its own size. */
static void test_a_tmpfs_is_as_large_as_it_should_be(void **state)
{
	static const char *const options[] = {"size", "1m", NULL};
	struct status_page page = {.proven = 0};
	struct sandbox_spec spec = {.limits.disk_bytes = 64 << 20};
	struct bind bind = {.writable = true};
	struct plan p = {.spec = &spec, .page = &page, .binds = &bind, .bind_count = 1};
	struct err e = {0};
	auto_close int scratch = mount_new("tmpfs", 0, options, &e);

	if (scratch < 0)
		skip();
	snprintf(bind.target, sizeof(bind.target), "/proc/self/fd/%d", scratch);
	bind.tmpfs_bytes = 1 << 20;
	assert_true(verify_privileges(&p, scratch) & LAYER_BIT(LAYER_DISK));
	bind.tmpfs_bytes = 1 << 19;
	assert_false(verify_privileges(&p, scratch) & LAYER_BIT(LAYER_DISK));
	bind.tmpfs_bytes = 0;
	assert_false(verify_privileges(&p, scratch) & LAYER_BIT(LAYER_DISK));
}

/* Is a writable place without a size of its own proven, if it is a tmpfs of that size? */
static bool is_proven_bare(const char *size)
{
	const char *options[] = {"size", size, NULL};
	struct status_page page = {.proven = 0};
	struct sandbox_spec spec = {.limits.disk_bytes = 64 << 20};
	struct bind bind = {.writable = true};
	struct plan p = {.spec = &spec, .page = &page, .binds = &bind, .bind_count = 1};
	struct err e = {0};
	auto_close int bound = mount_new("tmpfs", 0, options, &e);
	auto_close int scratch = mount_new("tmpfs", 0, (const char *[]){"size", "1m", NULL}, &e);

	if (scratch < 0 || bound < 0)
		skip();
	snprintf(bind.target, sizeof(bind.target), "/proc/self/fd/%d", bound);
	return verify_privileges(&p, scratch) & LAYER_BIT(LAYER_DISK);
}

/* A tmpfs of the host's may be remounted with another size; size=0 has no limit, and 0 blocks. */
static void test_a_tmpfs_of_the_host_is_not_bounded(void **state)
{
	assert_false(is_proven_bare("4k"));
	assert_false(is_proven_bare("0"));
}

static void test_a_disk_without_a_limit(void **state)
{
	assert_false(is_proven(0, 64 << 20));
}

static bool has_no_new_privs(void)
{
	struct status_page page = {.proven = 0};
	struct sandbox_spec spec = {.level = LEVEL_PROCESS};
	struct plan p = {.spec = &spec, .page = &page};

	return verify_privileges(&p, -1) & LAYER_BIT(LAYER_NO_NEW_PRIVS);
}

static void test_no_new_privs(void **state)
{
	int status = -1;
	pid_t pid;

	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 0)
		skip();
	assert_false(has_no_new_privs());
	pid = fork();
	if (pid == 0)
		_exit(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || !has_no_new_privs());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_disk_is_as_large_as_it_should_be),
		cmocka_unit_test(test_a_tmpfs_is_as_large_as_it_should_be),
		cmocka_unit_test(test_a_tmpfs_of_the_host_is_not_bounded),
		cmocka_unit_test(test_a_disk_without_a_limit),
		cmocka_unit_test(test_no_new_privs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
