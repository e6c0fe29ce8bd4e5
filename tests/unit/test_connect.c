#include "base/auto.h"
#include "base/str.h"
#include "wire/connect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct buf bytes_of(const char *bytes, size_t len)
{
	struct buf b = {0};

	buf_add(&b, bytes, len);
	return b;
}

static void puts_an_envelope(void **state)
{
	struct buf out = {0};

	(void)state;
	connect_put_json(&out, json_pack("{s:i}", "a", 1));
	assert_int_equal(out.len, 5 + 7);
	assert_memory_equal(buf_head(&out), "\0\0\0\0\7{\"a\":1}", 12);
	buf_done(&out);
}

static void puts_ends(void **state)
{
	struct buf out = {0};

	(void)state;
	connect_put_end(&out, CONNECT_OK, NULL);
	assert_memory_equal(buf_head(&out), "\2\0\0\0\2{}", 7);
	buf_drop(&out, out.len);
	connect_put_end(&out, CONNECT_NOT_FOUND, "no \x1b such \xff thing");
	assert_int_equal(buf_head(&out)[0], 2);
	buf_add(&out, "", 1);
	assert_string_equal(
		buf_head(&out) + 5,
		"{\"error\":{\"code\":\"not_found\",\"message\":\"no ? such ? thing\"}}");
	buf_done(&out);
}

static void reads_bytewise(void **state)
{
	static const char text[] = "\0\0\0\0\2{}\2\0\0\0\0";
	struct connect_envelope v;
	struct buf in = {0};
	struct err e = {0};

	(void)state;
	for (size_t i = 0; i < 7; i++) {
		assert_int_equal(connect_next(&in, 100, &v, &e), 0);
		buf_add(&in, text + i, 1);
	}
	assert_int_equal(connect_next(&in, 100, &v, &e), 1);
	assert_int_equal(v.flags, 0);
	assert_int_equal(v.len, 2);
	assert_int_equal(v.size, 7);
	buf_drop(&in, v.size);
	buf_add(&in, text + 7, 5);
	assert_int_equal(connect_next(&in, 100, &v, &e), 1);
	assert_int_equal(v.flags, CONNECT_END);
	assert_int_equal(v.len, 0);
	buf_done(&in);
}

static void refuses_envelopes(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
		enum err_kind kind;
		const char *says;
	} rows[] = {
		{"\1", 1, ERR_INVALID, "compressed"},
		{"\4", 1, ERR_INVALID, "flags 0x04"},
		{"\xff\xff\xff\xff\xff", 5, ERR_INVALID, "compressed"},
		{"\0\xff\xff\xff\xff", 5, ERR_LIMIT, "4294967295"},
		{"\0\0\0\0\x65", 5, ERR_LIMIT, "101"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct buf in = bytes_of(rows[i].bytes, rows[i].len);
		struct connect_envelope v;
		struct err e = {0};

		assert_int_equal(connect_next(&in, 100, &v, &e), -1);
		assert_int_equal(e.kind, rows[i].kind);
		assert_non_null(strstr(e.msg, rows[i].says));
		buf_done(&in);
	}
}

static void takes_one_only(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
		const char *says; /* NULL: fine */
	} rows[] = {
		{"\0\0\0\0\2{}", 7, NULL},
		{"\0\0\0\0\0", 5, NULL},
		{"", 0, "ends within"},
		{"\0\0\0\0\3{}", 7, "ends within"},
		{"\0\0\0\0\2{}x", 8, "more than one"},
		{"\2\0\0\0\2{}", 7, "end of stream"},
		{"\0\0\0\0\2[]", 7, "not a JSON object"},
		{"\0\0\0\0\2{]", 7, "not JSON"},
		{"\0\0\0\0\4{}{}", 9, "not JSON"},
		{"\0\0\0\0\4\"\xff\xfe\"", 9, "not JSON"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct buf in = bytes_of(rows[i].bytes, rows[i].len);
		struct err e = {0};
		json_t *m = connect_only(&in, 100, &e);

		if (rows[i].says)
			assert_non_null(strstr(e.msg, rows[i].says));
		assert_int_equal(m != NULL, rows[i].says == NULL);
		json_decref(m);
		buf_done(&in);
	}
}

static void maps_codes(void **state)
{
	struct err e = {.kind = ERR_NOT_FOUND};

	(void)state;
	assert_string_equal(connect_code_name(connect_code_of(&e)), "not_found");
	assert_int_equal(connect_code_status(CONNECT_ALREADY_EXISTS), 409);
	assert_int_equal(connect_code_status(CONNECT_UNAUTHENTICATED), 401);
	assert_int_equal(connect_code_status(CONNECT_CANCELED), 499);
	e.kind = (enum err_kind)99;
	assert_int_equal(connect_code_of(&e), CONNECT_INTERNAL);
}

static void reads_timeouts(void **state)
{
	struct err e = {0};
	uint64_t ms = 7;

	(void)state;
	assert_int_equal(connect_timeout(NULL, &ms, &e), 0);
	assert_int_equal(ms, 0);
	assert_int_equal(connect_timeout("9999999999", &ms, &e), 0);
	assert_true(ms == 9999999999u);
	assert_int_equal(connect_timeout("10000000000", &ms, &e), -1);
	assert_int_equal(connect_timeout("-1", &ms, &e), -1);
	assert_int_equal(connect_timeout("1s", &ms, &e), -1);
	assert_true(ms == 9999999999u);
}

static void reads_base64_of_all_kinds(void **state)
{
	static const struct {
		const char *text;
		const char *bytes; /* NULL: refused */
	} rows[] = {
		{"", ""},
		{"YQ==", "a"},
		{"YQ", "a"},
		{"YWI=", "ab"},
		{"YWI", "ab"},
		{"YWJj", "abc"},
		{"YWJjZA==", "abcd"},
		{"-_-_", "\xfb\xff\xbf"},
		{"+/+/", "\xfb\xff\xbf"},
		{"Y", NULL},
		{"YQ=", NULL},
		{"YWJj=", NULL},
		{"YQ===", NULL},
		{"Y Q=", NULL},
		{"=", NULL},
		{"YQ==YQ==", NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct buf out = {0};
		int rc = connect_bytes(rows[i].text, strlen(rows[i].text), &out);

		assert_int_equal(rc, rows[i].bytes ? 0 : -1);
		assert_int_equal(out.len, rows[i].bytes ? strlen(rows[i].bytes) : 0);
		if (out.len)
			assert_memory_equal(buf_head(&out), rows[i].bytes, out.len);
		buf_done(&out);
	}
}

static void base64_goes_round(void **state)
{
	char all[256];

	(void)state;
	for (size_t i = 0; i < sizeof(all); i++)
		all[i] = (char)i;
	for (size_t len = 0; len <= sizeof(all); len++) {
		json_t *text = connect_from_bytes(all, len);
		struct buf out = {0};

		assert_int_equal(
			connect_bytes(json_string_value(text), json_string_length(text), &out), 0);
		assert_int_equal(out.len, len);
		if (len)
			assert_memory_equal(buf_head(&out), all, len);
		buf_done(&out);
		json_decref(text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(puts_an_envelope),  cmocka_unit_test(puts_ends),
		cmocka_unit_test(reads_bytewise),    cmocka_unit_test(refuses_envelopes),
		cmocka_unit_test(takes_one_only),    cmocka_unit_test(maps_codes),
		cmocka_unit_test(reads_timeouts),    cmocka_unit_test(reads_base64_of_all_kinds),
		cmocka_unit_test(base64_goes_round),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
