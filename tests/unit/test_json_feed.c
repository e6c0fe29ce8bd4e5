/* wire/json_feed: JSON in pieces, counted while it is built. */
#include "wire/json_feed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static json_t *read_pieces(const char *text, size_t len, size_t step, struct err *e)
{
	struct json_feed *f = json_feed_new(JSON_FEED_VALUES, false);
	json_t *value = NULL;
	int rc = 0;

	for (size_t at = 0; at < len && rc == 0; at += step)
		rc = json_feed_add(f, text + at, len - at < step ? len - at : step, e);
	if (rc == 0)
		value = json_feed_end(f, e);
	json_feed_free(f);
	return value;
}

static void test_as_jansson(void **state)
{
	static const char *const rows[] = {
		"{}",
		"[]",
		"1",
		"-0",
		"true",
		" [1, 2.5, -3e2, \"a\\u00e9\\ud83d\\ude00\\n\"] ",
		"{\"a\":{\"b\":[{},[]]},\"c\":null}",
		"\"\xc3\xa9\"",
		/* refused */
		"",
		" ",
		"{",
		"[1,",
		"[1,]",
		"{\"a\":}",
		"{\"a\"}",
		"{a:1}",
		"{\"a\":1,}",
		"nul",
		"tru e",
		"01",
		"1.",
		"1e",
		"--1",
		"+1",
		".5",
		"1 2",
		"[1 2]",
		"]",
		"[}",
		"\"a",
		"\"\\x\"",
		"\"\\u12\"",
		"\"\\ud83d\"",
		"\"\\ud83dx\"",
		"\"\\udc00\"",
		"\"\\u0000\"",
		"\"\xff\"",
		"\"\xc3\"",
		"\"\t\"",
		"{\"a\":1,\"a\":2}",
		"{\"a\":1,\"\\u0061\":2}",
		"9223372036854775808",
		"1e999",
		"{'a':1}",
		"[1]x",
		"NaN",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		size_t len = strlen(rows[i]);
		json_t *wanted =
			json_loadb(rows[i], len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);

		for (size_t step = 1; step < 100; step += 33) {
			struct err e = {0};
			json_t *found = read_pieces(rows[i], len, step, &e);

			assert_int_equal(!!wanted, !!found);
			assert_true(found || (e.kind == ERR_INVALID && e.msg[0]));
			if (wanted)
				assert_true(json_equal(wanted, found));
			json_decref(found);
		}
		json_decref(wanted);
	}
}

/* So many values of one byte each, in an array. */
static char *array_of(size_t count)
{
	char *text = malloc(2 * count + 2);

	for (size_t i = 0; i < count; i++)
		memcpy(text + 2 * i, i ? ",1" : "[1", 2);
	memcpy(text + 2 * count, "]", 2);
	return text;
}

static void test_bounds(void **state)
{
	struct err e = {0};
	char *text = array_of(JSON_FEED_VALUES - 1), deep[2 * JSON_FEED_DEPTH + 3] = "";
	json_t *value = read_pieces(text, strlen(text), 4096, &e);

	(void)state;
	assert_non_null(value);
	json_decref(value);
	free(text);
	text = array_of(JSON_FEED_VALUES);
	assert_null(read_pieces(text, strlen(text), 4096, &e));
	assert_int_equal(e.kind, ERR_LIMIT);
	assert_int_equal(e.errnum, E2BIG);
	free(text);
	memset(deep, '[', JSON_FEED_DEPTH);
	memset(deep + JSON_FEED_DEPTH, ']', JSON_FEED_DEPTH);
	value = read_pieces(deep, strlen(deep), 1, &e);
	assert_non_null(value);
	json_decref(value);
	memset(deep, '[', JSON_FEED_DEPTH + 1);
	memset(deep + JSON_FEED_DEPTH + 1, ']', JSON_FEED_DEPTH + 1);
	e = (struct err){0};
	assert_null(read_pieces(deep, strlen(deep), 1, &e));
	assert_int_equal(e.kind, ERR_INVALID);
}

/* A long string is taken over, not copied: it has the length, the end and the bytes that a short one has. */
static void test_long_strings(void **state)
{
	for (size_t len = 60000; len < 400000; len += 66677) {
		char *text = malloc(len + 64);
		size_t n = (size_t)sprintf(text, "[\"");
		json_t *value;
		const char *found;
		struct err e = {0};

		memset(text + n, 'a', len);
		n += len;
		n += (size_t)sprintf(text + n, "\\n\", \"b\"]");
		value = read_pieces(text, n, 4096, &e);
		assert_non_null(value);
		assert_int_equal(json_string_length(json_array_get(value, 0)), len + 1);
		found = json_string_value(json_array_get(value, 0));
		assert_int_equal(strspn(found, "a"), len);
		assert_string_equal(found + len, "\n");
		assert_string_equal(json_string_value(json_array_get(value, 1)), "b");
		json_decref(value);
		free(text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_long_strings),
		cmocka_unit_test(test_as_jansson),
		cmocka_unit_test(test_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
