/* What verify.c takes for a proof of the disk limit. */
#include "kern/mount.h"
#include "sandbox/inside/verify.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_disk_is_as_large_as_it_should_be),
		cmocka_unit_test(test_a_tmpfs_is_as_large_as_it_should_be),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
