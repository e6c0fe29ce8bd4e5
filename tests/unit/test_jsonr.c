/* base/jsonr: members of one object, strictly. */
#include "base/jsonr.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool find(const char *text, const char *name, struct jsonr *ret)
{
	return jsonr_member(text, strlen(text), name, ret);
}

static void finds_members(void **state)
{
	static const char text[] =
		" {\"a\" : 1 , \"b\":[1,{\"a\":2}],\"c\":{\"d\":null},\"e\":\"x\"}\n";
	struct jsonr v;
	int64_t n;

	(void)state;
	assert_true(find(text, "a", &v) && jsonr_int(&v, &n) && n == 1);
	assert_true(find(text, "b", &v) && v.len == 11);
	assert_true(find(text, "c", &v) && v.len == 10);
	assert_true(find(text, "e", &v) && v.len == 3);
	assert_false(find(text, "d", &v));
	assert_false(find(text, "", &v));
	assert_true(find("{\"a\":1,\"a\":2}", "a", &v) && jsonr_int(&v, &n) && n == 1);
	assert_true(find("{\"\":true}", "", &v));
}

static void reads_values(void **state)
{
	struct jsonr v;
	int64_t n = 7;
	bool b = false;

	(void)state;
	assert_true(find("{\"x\":-123}", "x", &v) && jsonr_int(&v, &n) && n == -123);
	assert_true(find("{\"x\":1.5}", "x", &v) && !jsonr_int(&v, &n));
	assert_true(find("{\"x\":1e3}", "x", &v) && !jsonr_int(&v, &n));
	assert_true(find("{\"x\":99999999999999999999}", "x", &v) && !jsonr_int(&v, &n));
	assert_true(find("{\"x\":\"1\"}", "x", &v) && !jsonr_int(&v, &n) && !jsonr_bool(&v, &b));
	assert_int_equal(n, -123);
	assert_true(find("{\"x\":true}", "x", &v) && jsonr_bool(&v, &b) && b);
	assert_true(find("{\"x\":false}", "x", &v) && jsonr_bool(&v, &b) && !b);
	assert_true(find("{\"x\":null}", "x", &v) && jsonr_is_null(&v) && !jsonr_string(&v, NULL));
}

static void expect_text(const char *json, const char *text, size_t len)
{
	struct jsonr v;
	size_t got_len;
	char *got;

	assert_true(find(json, "x", &v));
	got = jsonr_string(&v, &got_len);
	assert_non_null(got);
	assert_int_equal(got_len, len);
	assert_memory_equal(got, text, len + 1);
	free(got);
}

static void reads_strings(void **state)
{
	(void)state;
	expect_text("{\"x\":\"\"}", "", 0);
	expect_text("{\"x\":\"a\\n\\t\\\"\\\\\\/\\b\\f\\r\"}", "a\n\t\"\\/\b\f\r", 9);
	expect_text("{\"x\":\"\\u00e9\\u20ac\\ud83d\\ude00\\u0041\"}",
		    "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"
		    "A",
		    10);
	expect_text("{\"x\":\"\xc3\xa9\"}", "\xc3\xa9", 2);
	expect_text("{\"x\":\"a\\u0000b\"}", "a\0b", 3);
}

static void reads_arrays(void **state)
{
	static const char text[] = "{\"x\":[ 1, [2,3] ,\"4\"],\"y\":[],\"z\":1}";
	const char *at = NULL;
	struct jsonr all, v;
	size_t lens[3], count = 0;

	(void)state;
	assert_true(find(text, "x", &all));
	while (count < 3 && jsonr_item(&all, &at, &v))
		lens[count++] = v.len;
	assert_int_equal(count, 3);
	assert_false(jsonr_item(&all, &at, &v));
	assert_int_equal(lens[0] * 100 + lens[1] * 10 + lens[2], 153);
	at = NULL;
	assert_true(find(text, "y", &all));
	assert_false(jsonr_item(&all, &at, &v));
	assert_true(find(text, "z", &all));
	assert_false(jsonr_item(&all, &at, &v));
}

static void refuses_what_is_not_json(void **state)
{
	static const char *const bad[] = {"",
					  "x",
					  "[]",
					  "{",
					  "{\"x\"",
					  "{\"x\":",
					  "{\"x\":1",
					  "{\"x\":1,}",
					  "{\"x\":1}}",
					  "{\"x\":1} y",
					  "{x:1}",
					  "{\"x\":01}",
					  "{\"x\":.5}",
					  "{\"x\":1.}",
					  "{\"x\":+1}",
					  "{\"x\":tru}",
					  "{\"x\":\"a}",
					  "{\"x\":\"\\q\"}",
					  "{\"x\":\"\\u12\"}",
					  "{\"x\":\"\\ud800\"}",
					  "{\"x\":\"\\ud800\\u0041\"}",
					  "{\"x\":\"\\udc00\"}",
					  "{\"x\":\"a\nb\"}",
					  "{\"x\":[1,]}",
					  "{\"x\":[1 2]}",
					  "{\"x\":{\"y\"}}",
					  "{\"x\":1 \"y\":2}",
					  "{,\"x\":1}",
					  "{\"x\":-}",
					  "{\"x\":1e}"};
	struct jsonr v;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		if (find(bad[i], "x", &v))
			fail_msg("it took %s", bad[i]);
}

static void is_not_led_too_deep(void **state)
{
	char text[256];
	struct jsonr v;

	(void)state;
	for (int depth = JSONR_DEPTH - 2; depth < JSONR_DEPTH + 2; depth++) {
		memset(text, 0, sizeof(text));
		strcpy(text, "{\"x\":");
		memset(text + 5, '[', (size_t)depth);
		memset(text + 5 + depth, ']', (size_t)depth);
		strcat(text, "}");
		assert_int_equal(find(text, "x", &v), depth <= JSONR_DEPTH);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finds_members),
		cmocka_unit_test(reads_values),
		cmocka_unit_test(reads_strings),
		cmocka_unit_test(reads_arrays),
		cmocka_unit_test(refuses_what_is_not_json),
		cmocka_unit_test(is_not_led_too_deep),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
