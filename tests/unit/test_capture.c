/* Files captured from a workspace: the merged view, globs, limits, hostile trees. */
#include "base/auto.h"
#include "sandbox/workspace/capture.h"
#include "workspace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>

static struct captured capture(const struct capture_view *v, const char *globs,
			       const struct capture_limits *limits)
{
	char *copy = strdup(globs), *save = NULL;
	struct list l = {0};
	struct captured c;
	struct err e;

	for (char *g = strtok_r(copy, " ", &save); g; g = strtok_r(NULL, " ", &save))
		list_add(&l, g);
	if (capture_files(v, &l, limits, &c, &e) < 0)
		fail_msg("%s", e.msg);
	list_done(&l);
	free(copy);
	return c;
}

static void expect_captured(const struct capture_view *v, const char *globs, const char *want)
{
	struct captured c = capture(v, globs, NULL);
	char got[4096] = "";

	for (size_t i = 0; i < c.count; i++)
		snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s=%.*s ", c.items[i].path,
			 (int)c.items[i].size, c.items[i].data);
	assert_string_equal(got, want);
	captured_done(&c);
}

static void test_capture_merged_view(void **state)
{
	struct workspace *w = *state;
	struct capture_view v = {w->upper, w->lower};
	bool marked;

	put("lower/a.csv", "low");
	put("lower/b.csv", "low");
	put("lower/gone.csv", "low");
	put("lower/d/old.csv", "low");
	put("upper/b.csv", "up");
	put("upper/c.csv", "up");
	whiteout("upper/gone.csv");
	put("upper/d/new.csv", "up");
	expect_captured(&v, "*.csv", "a.csv=low b.csv=up c.csv=up ");
	expect_captured(&v, "d/*", "d/new.csv=up d/old.csv=low ");
	marked = opaque("upper/d");
	expect_captured(&v, "d/*", marked ? "d/new.csv=up " : "d/new.csv=up d/old.csv=low ");
}

static void test_capture_globs(void **state)
{
	struct workspace *w = *state;
	struct capture_view v = {-1, w->lower};

	put("lower/x", "1");
	put("lower/.hid", "2");
	put("lower/a/x", "3");
	put("lower/a/b/x", "4");
	put("lower/a/b/y1", "5");
	put("lower/.cache/x", "6");
	expect_captured(&v, "x", "x=1 ");
	expect_captured(&v, "*", "x=1 ");
	expect_captured(&v, ".*", ".hid=2 ");
	expect_captured(&v, "**", "a/b/x=4 a/b/y1=5 a/x=3 x=1 ");
	expect_captured(&v, "**/x", "a/b/x=4 a/x=3 x=1 ");
	expect_captured(&v, "a/**/x", "a/b/x=4 a/x=3 ");
	expect_captured(&v, "**/**/b/**", "a/b/x=4 a/b/y1=5 ");
	expect_captured(&v, "a/?/[yz][0-9]", "a/b/y1=5 ");
	expect_captured(&v, ".cache/x", ".cache/x=6 ");
	expect_captured(&v, "/workspace/a/x ./x", "a/x=3 x=1 ");
	expect_captured(&v, "a", "");
	expect_captured(&v, "none nothing/*", "");
}

static void test_capture_refuses_bad_globs(void **state)
{
	static const char *const bad[] = {"/etc/passwd", "../x",       "a/../../x", "",
					  "/",		 "/workspace/"};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct list l = {0};
		struct err e;

		list_add(&l, bad[i]);
		assert_int_equal(capture_check(&l, &e), -1);
		assert_int_equal(e.kind, ERR_INVALID);
		assert_string_equal(e.field, "capture");
		list_done(&l);
	}
}

static void test_capture_hostile_tree(void **state)
{
	struct workspace *w = *state;
	struct capture_view v = {w->upper, w->lower};

	put("secret/file", "secret");
	put("lower/shadowed/file", "hidden");
	assert_int_equal(symlink("/etc/passwd", "upper/passwd"), 0);
	assert_int_equal(symlink("../secret", "upper/dir"), 0);
	assert_int_equal(symlink("../secret", "upper/shadowed"), 0);
	assert_int_equal(mkfifo("upper/fifo", 0644), 0);
	mknod("upper/zero", S_IFCHR | 0666, makedev(1, 5));
	put("upper/ok", "ok");
	expect_captured(&v, "** dir/file shadowed/file passwd fifo", "ok=ok ");
}

static void test_capture_limits(void **state)
{
	struct workspace *w = *state;
	struct capture_view v = {w->upper, w->lower};
	struct capture_limits limits = {.files = 2, .bytes = 5, .entries = 100};
	struct captured c;

	put("upper/a", "1234");
	put("upper/b", "5678");
	put("upper/c", "9");
	c = capture(&v, "*", &limits);
	assert_int_equal(c.count, 2);
	assert_true(c.cut);
	assert_false(c.items[0].truncated);
	assert_true(c.items[1].truncated);
	assert_int_equal(c.items[1].size, 1);
	assert_int_equal(c.items[1].real_size, 4);
	captured_done(&c);
	assert_int_equal(truncate("upper/b", 1LL << 40), 0);
	limits.files = 3;
	c = capture(&v, "b c", &limits);
	assert_int_equal(c.items[0].size, 5);
	assert_true(c.items[1].truncated && c.items[1].size == 0);
	captured_done(&c);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, workspace_make, workspace_drop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_capture_merged_view),
		TEST(test_capture_globs),
		TEST(test_capture_refuses_bad_globs),
		TEST(test_capture_hostile_tree),
		TEST(test_capture_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
