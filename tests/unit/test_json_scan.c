/* base/json_scan: the same verdict wherever the text is cut. */
#include "base/json_scan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool is_whole(const char *text, size_t cut)
{
	struct json_scan s = {0};
	size_t len = strlen(text);

	json_scan_feed(&s, text, cut);
	json_scan_feed(&s, text + cut, len - cut);
	return json_scan_is_whole(&s);
}

static void check(const char *text, bool expected)
{
	for (size_t cut = 0; cut <= strlen(text); cut++)
		if (is_whole(text, cut) != expected)
			fail_msg("%s, cut at %zu", text, cut);
}

static void test_good(void **state)
{
	static const char *const texts[] = {
		"{}",
		"[]",
		" { \"a\" : [1, -0, 0.5e+7, 10E3, true, false, null] } ",
		"0",
		"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00eF\"",
		"[[],{},[{}]]",
		"{\"\":\"\"}",
		"-12.25",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		check(texts[i], true);
}

static void test_bad(void **state)
{
	static const char *const texts[] = {
		"",	      "{",	 "[1,]",	 "{\"a\"}", "{\"a\":}",
		"{\"a\":1,}", "[1 2]",	 "{1:2}",	 "01",	    "1.",
		"-",	      "1e",	 "tru",		 "truex",   "nul",
		"\"\n\"",     "\"\\x\"", "\"\\u12g4\"",	 "[1}",	    "{\"a\":1]",
		"{}{}",	      "]",	 "\"\xc3\xa9\"", "NaN",	    "[,]",
		"+1",	      ".5",	 "\"a",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		check(texts[i], false);
}

static void test_bounds(void **state)
{
	char text[2 * JSON_SCAN_DEPTH + 3] = "";
	struct json_scan s = {0};

	(void)state;
	memset(text, '[', JSON_SCAN_DEPTH);
	memset(text + JSON_SCAN_DEPTH, ']', JSON_SCAN_DEPTH);
	check(text, true);
	memset(text, '[', JSON_SCAN_DEPTH + 1);
	memset(text + JSON_SCAN_DEPTH + 1, ']', JSON_SCAN_DEPTH + 1);
	check(text, false);
	json_scan_feed(&s, "{\"a\":[1,2,{}]}", 14);
	assert_int_equal(s.values, 6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
