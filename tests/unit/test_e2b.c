/* What of the E2B door needs no daemon: paths, signatures, escapes, times. */
#include "api/e2b/e2b_internal.h"
#include "base/auto.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void resolves_paths(void **state)
{
	static const struct {
		const char *path, *user, *wanted; /* NULL: refused */
	} rows[] = {
		{"", "user", "/home/user"},
		{NULL, "root", "/home/user"},
		{"a", "user", "/home/user/a"},
		{"./a/../b//c/", "user", "/home/user/b/c"},
		{"~", "user", "/home/user"},
		{"~/x", "root", "/root/x"},
		{"x", "root", "/root/x"},
		{"/a/./b", "user", "/a/b"},
		{"/..", "user", "/"},
		{"/../../x", "user", "/x"},
		{"//", "user", "/"},
		{"../../../etc", "user", "/etc"},
		{"...", "user", "/home/user/..."},
		{"~other/x", "user", NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct err e = {0};
		auto_free char *path = e2b_path(rows[i].path, rows[i].user, &e);

		if (rows[i].wanted)
			assert_string_equal(path, rows[i].wanted);
		else
			assert_null(path);
		assert_int_equal(e.kind, path ? ERR_NONE : ERR_INVALID);
	}
}

static void refuses_long_paths(void **state)
{
	struct err e = {0};
	char path[4100];

	(void)state;
	memset(path, 'x', sizeof(path));
	path[4099] = '\0';
	assert_null(e2b_path(path, "user", &e));
}

/* What a client would compute: sha256 of "path:operation:user:token[:expiry]". */
static void signs(void **state)
{
	char text[64];

	(void)state;
	e2b_sign("a.txt", "read", "", "token", NULL, text);
	assert_string_equal(text, "v1_0x52WB0sjuScrew6Oh9sqh6PEFj6DuL9U8NUzyn3tUI");
	e2b_sign("/x y", "write", "root", "t", "1700000000", text);
	assert_string_equal(text, "v1_T178gtV+816JVxUc/tNjw4QVo7qw/3O2rQoyoZXJcno");
}

static void reads_metadata(void **state)
{
	static const struct {
		const char *text, *wanted;
	} rows[] = {
		{"", ""},	    {"%41%62", "Ab"},	   {"%", "%"},	    {"%4", "%4"},
		{"%4x1", "%4x1"},   {"100%25", "100%"},	   {"%C3%A9", "é"}, {"%2541%2562", "Ab"},
		{"a+b%2B", "a b+"}, {"1%2B1%3D2", "1+1=2"}};
	char text[64];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		json_t *all;

		snprintf(text, sizeof(text), "x=1&&%%6B=%s&empty", rows[i].text);
		all = e2b_query_metadata(text);
		assert_int_equal(json_object_size(all), 3);
		assert_string_equal(json_string_value(json_object_get(all, "k")), rows[i].wanted);
		assert_string_equal(json_string_value(json_object_get(all, "empty")), "");
		json_decref(all);
	}
}

static void tells_times(void **state)
{
	json_t *t = e2b_time(1767323045123);

	(void)state;
	assert_string_equal(json_string_value(t), "2026-01-02T03:04:05.123Z");
	json_decref(t);
}

static void compares_secrets(void **state)
{
	(void)state;
	assert_true(e2b_same_secret("abc", "abc"));
	assert_false(e2b_same_secret("abc", "abd"));
	assert_false(e2b_same_secret("abc", "ab"));
	assert_false(e2b_same_secret("", ""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(resolves_paths), cmocka_unit_test(refuses_long_paths),
		cmocka_unit_test(signs),	  cmocka_unit_test(reads_metadata),
		cmocka_unit_test(tells_times),	  cmocka_unit_test(compares_secrets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
