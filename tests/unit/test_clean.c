/* base/clean: what a model and a terminal are not shown. */
#include "base/clean.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void check(const char *in, size_t len, const char *out, const struct cleaned *want)
{
	auto_buf struct buf b = {0};
	auto_list struct list values = {0};
	struct cleaned n = {0};

	list_add(&values, "hunter2hunter2");
	list_add(&values, "short");
	clean_text(&b, in, len, &values, &n);
	buf_add(&b, "", 1);
	assert_string_equal(buf_head(&b), out);
	assert_int_equal(n.invalid, want->invalid);
	assert_int_equal(n.control, want->control);
	assert_int_equal(n.invisible, want->invisible);
	assert_int_equal(n.secrets, want->secrets);
}

#define CHECK(in, out, ...) check(in, sizeof(in) - 1, out, &(struct cleaned){__VA_ARGS__})

static void test_characters(void **state)
{
	CHECK("a\tb\r\nc\n", "a\tb\nc\n", 0);
	CHECK("gr\xc3\xbc\xc3\x9f \xf0\x9f\x99\x82", "gr\xc3\xbc\xc3\x9f \xf0\x9f\x99\x82", 0);
	CHECK("a\xff\xc0\x80z", "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz", .invalid = 3);
	CHECK("a\0b\x7f", "a?b?", .control = 2);
	CHECK("safe\rrm -rf", "safe\nrm -rf", .control = 1);
	CHECK("a\xc2\x9b"
	      "31mb",
	      "a?31mb", .control = 1);
	CHECK("a\xe2\x80\xae"
	      "b\xe2\x80\x8b"
	      "c\xf3\xa0\x81\xa1",
	      "abc", .invisible = 3);
}

static void test_escapes(void **state)
{
	CHECK("\033[31;1mred\033[0m", "red", .control = 2);
	CHECK("\033]0;title\007x", "x", .control = 1);
	CHECK("\033]52;c;ZXZpbA==\033\\x", "x", .control = 1);
	CHECK("\033]8;;http://x\nshown", "\nshown", .control = 1);
	CHECK("\033P+q\033[31mx", "x", .control = 2);
	CHECK("\033cx", "x", .control = 1);
	CHECK("x\033", "x", .control = 1);
	CHECK("\033[", "", .control = 1);
	CHECK("\033\nx", "\nx", .control = 1);
}

static void test_secrets(void **state)
{
	CHECK("key=AKIAABCDEFGHIJKLMNOP.", "key=[secret removed].", .secrets = 1);
	CHECK("AKIASHORT xAKIAABCDEFGHIJKLMNOP", "AKIASHORT xAKIAABCDEFGHIJKLMNOP", 0);
	CHECK("ghp_0123456789abcdefghijABCDEFGHIJ0123", "[secret removed]", .secrets = 1);
	CHECK("sk-ant-api03-0123456789abcdef", "[secret removed]", .secrets = 1);
	CHECK("-----BEGIN EC PRIVATE KEY-----\nabc\n-----END EC PRIVATE KEY-----\nz",
	      "[secret removed]\nz", .secrets = 1);
	CHECK("-----BEGIN PRIVATE KEY-----\nabc", "[secret removed]", .secrets = 1);
	CHECK("-----BEGIN CERTIFICATE-----\nabc\n", "-----BEGIN CERTIFICATE-----\nabc\n", 0);
	CHECK("xhunter2hunter2x short", "x[secret removed]x short", .secrets = 1);
	/* What is not seen does not divide it. */
	CHECK("hunter2\xe2\x80\x8bhunter2", "[secret removed]", .invisible = 1, .secrets = 1);
	CHECK("hunter2\033[0mhunter2", "[secret removed]", .control = 1, .secrets = 1);
}

static void test_work_is_bounded(void **state)
{
	const size_t len = 4u << 20;
	auto_free char *text = must_alloc(malloc(len));
	auto_buf struct buf b = {0};
	struct cleaned n = {0};

	memset(text, '-', len);
	clean_text(&b, text, len, NULL, &n);
	assert_int_equal(b.len, len);
	assert_false(cleaned_any(&n));
}

static void test_values_of_variables(void **state)
{
	auto_list struct list env = {0}, values = {0};

	list_add(&env, "API_KEY=one");
	list_add(&env, "HOME=/x_TOKEN=no");
	list_add(&env, "DB_PASSWORD=two=2");
	clean_values_of(&env, &values);
	assert_int_equal(values.count, 2);
	assert_string_equal(values.items[0], "one");
	assert_string_equal(values.items[1], "two=2");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_characters),
		cmocka_unit_test(test_escapes),
		cmocka_unit_test(test_secrets),
		cmocka_unit_test(test_work_is_bounded),
		cmocka_unit_test(test_values_of_variables),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
