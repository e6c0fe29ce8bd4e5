#include "base/auto.h"
#include "base/str.h"
#include "wire/multipart.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What came out, as one line: [name|filename] data; parts end with '.', all with '!', errors with '?'. */
static char *told_by(const char *body, size_t len, size_t step)
{
	struct multipart_event *v = must_alloc(calloc(1, sizeof(*v)));
	struct multipart m;
	struct buf out = {0};
	struct err e = {0};
	char head[512];
	int got = 0;

	assert_int_equal(multipart_init(&m, "multipart/form-data; boundary=\"b b\"", &e), 0);
	for (size_t at = 0; at < len && got == 0; at += step) {
		multipart_add(&m, body + at, len - at < step ? len - at : step);
		while ((got = multipart_next(&m, v, &e)) > 0) {
			if (v->kind == MULTIPART_PART) {
				snprintf(head, sizeof(head), "[%s|%s]", v->name, v->filename);
				buf_add(&out, head, strlen(head));
			} else if (v->kind == MULTIPART_DATA) {
				buf_add(&out, v->data, v->len);
				multipart_used(&m, v->len);
			} else {
				buf_add(&out, v->kind == MULTIPART_PART_END ? "." : "!", 1);
			}
			if (v->kind == MULTIPART_END)
				break;
		}
	}
	buf_add(&out, "?", got < 0);
	buf_add(&out, "", 1);
	multipart_done(&m);
	free(v);
	return out.data + out.at;
}

static void expect(const char *body, const char *wanted)
{
	for (size_t step = 1; step <= strlen(body) + 1; step++) {
		char *got = told_by(body, strlen(body), step);

		assert_string_equal(got, wanted);
		free(got);
	}
}

#define HEAD "Content-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n"

static void reads_parts(void **state)
{
	(void)state;
	expect("--b b\r\n" HEAD "\r\nhello\r\n--b b--\r\n", "[file|a]hello.!");
	expect("--b b\r\n" HEAD "\r\n\r\n--b b--", "[file|a].!");
	expect("preamble\r\n--b b\r\n" HEAD
	       "Content-Type: x\r\n\r\none\r\n--b b  \r\n\r\ntwo\r\n--b b--after",
	       "[file|a]one.[|]two.!");
	expect("--b b--", "!");
}

static void keeps_near_misses(void **state)
{
	(void)state;
	expect("--b b\r\n" HEAD "\r\n\r\n--b\r\n\r\n--b x\r\n--b b--\r\n",
	       "[file|a]\r\n--b\r\n\r\n--b x.!");
	expect("--b b\r\n" HEAD "\r\n--b b\r\n--b b--\r\n", "[file|a]--b b.!");
}

static void reads_names(void **state)
{
	(void)state;
	expect("--b b\r\nCONTENT-disposition: form-data; filename=\"/x/%22y%22%0A ; z\"; "
	       "name=file\r\n\r\n\r\n--b b--",
	       "[file|/x/\"y\"\n ; z].!");
	expect("--b b\r\nContent-Disposition: form-data; name=\"a\\\"b\"; "
	       "filename=c%41\r\n\r\n\r\n--b b--",
	       "[a\"b|c%41].!");
}

static void refuses(void **state)
{
	(void)state;
	expect("--b b-x", "?");
	expect("--b bx\r\n\r\n", "?");
	expect("--b b\r\nContent-Disposition: form-data; name=\"no end\r\n\r\n\r\n--b b--", "?");
}

static void refuses_types(void **state)
{
	static const char *const types[] = {
		"", "text/plain", "multipart/form-data",
		"multipart/form-data; boundary=", "multipart/form-data; boundary=\"x"};
	char large[200] = "multipart/form-data; boundary=";
	struct multipart m;
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		e = (struct err){0};
		assert_int_equal(multipart_init(&m, types[i], &e), -1);
		assert_int_equal(e.kind, ERR_INVALID);
	}
	assert_int_equal(multipart_init(&m, NULL, &e), -1);
	memset(large + strlen(large), 'x', 71);
	assert_int_equal(multipart_init(&m, large, &e), -1);
	large[strlen(large) - 1] = '\0';
	assert_int_equal(multipart_init(&m, large, &e), 0);
	multipart_done(&m);
}

static void bounds_headers(void **state)
{
	char *body = must_alloc(malloc(40000)), *got;

	(void)state;
	memset(body, 'h', 40000);
	memcpy(body, "--b b\r\n", 7);
	got = told_by(body, 40000, 1000);
	assert_string_equal(got, "?");
	free(got);
	free(body);
}

/* A body without parts comes as one part; also an empty one. */
static void reads_bare_bodies(void **state)
{
	static const char *const bodies[] = {"", "--b b\r\nno delimiter here"};
	struct multipart_event *v = must_alloc(calloc(1, sizeof(*v)));
	struct multipart m;
	struct err e = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
		size_t len = strlen(bodies[i]);

		multipart_init_bare(&m);
		assert_int_equal(multipart_next(&m, v, &e), 1);
		assert_int_equal(v->kind, MULTIPART_PART);
		assert_string_equal(v->name, "file");
		assert_string_equal(v->filename, "");
		assert_int_equal(multipart_next(&m, v, &e), 0);
		multipart_add(&m, bodies[i], len);
		if (len) {
			assert_int_equal(multipart_next(&m, v, &e), 1);
			assert_int_equal(v->kind, MULTIPART_DATA);
			assert_memory_equal(v->data, bodies[i], len);
			assert_int_equal(v->len, len);
			multipart_used(&m, len);
		}
		assert_int_equal(multipart_next(&m, v, &e), 0);
		m.is_complete = true;
		assert_int_equal(multipart_next(&m, v, &e), 1);
		assert_int_equal(v->kind, MULTIPART_PART_END);
		assert_int_equal(multipart_next(&m, v, &e), 1);
		assert_int_equal(v->kind, MULTIPART_END);
		multipart_done(&m);
	}
	free(v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_parts),	     cmocka_unit_test(keeps_near_misses),
		cmocka_unit_test(reads_names),	     cmocka_unit_test(refuses),
		cmocka_unit_test(refuses_types),     cmocka_unit_test(bounds_headers),
		cmocka_unit_test(reads_bare_bodies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
