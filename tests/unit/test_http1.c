/* wire/http1: requests of clients and answers from inside, read strictly. */
#include "wire/http1.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Reads one answer in pieces of `step` bytes; NULL: it was refused. */
static char *read_answer(const char *text, size_t step, bool no_body)
{
	static struct http1_head h;
	size_t len = strlen(text), head = http1_head_length(text, len);
	char *bytes = strdup(text), *content = NULL;
	struct http1_body b;
	struct buf out = {0};
	struct err e = {0};
	bool ok = head && http1_head_read(bytes, head, &h, &e) == 0;

	if (ok)
		http1_body_begin(&b, &h, no_body);
	for (size_t at = head; ok && at < len; at += step) {
		size_t n = len - at < step ? len - at : step;

		ok = http1_body_feed(&b, text + at, n, &out) == 0;
	}
	if (ok && http1_body_end(&b))
		content = strndup(out.len ? buf_head(&out) : "", out.len);
	buf_done(&out);
	free(bytes);
	return content;
}

static void test_bodies(void **state)
{
	static const struct {
		const char *answer, *content;
	} rows[] = {
		{"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", "abc"},
		{"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", ""},
		{"HTTP/1.1 200 OK\r\n\r\nto the end", "to the end"},
		{"HTTP/1.1 204 No\r\n\r\n", ""},
		{"HTTP/1.1 200\r\nTransfer-Encoding: "
		 "chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
		 "abcde"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: "
		 "chunked\r\n\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
		 "0123456789"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: "
		 "chunked\r\n\r\n1\r\na\r\n0\r\nX-Sum: 1\r\nY:\r\n\r\n",
		 "a"},
		/* refused */
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: "
		 "chunked\r\n\r\n0\r\nGET / HTTP/1.1\r\n\r\n",
		 NULL},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: a\n\r\n\r\n", NULL},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n X: a\r\n\r\n", NULL},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX Y: a\r\n\r\n", NULL},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX\1: a\r\n\r\n", NULL},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: a\r\n", NULL},
		{"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", NULL},
		{"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd", NULL},
		{"HTTP/1.1 204 No\r\n\r\nx", NULL},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", NULL},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcX", NULL},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n", NULL},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nmore", NULL},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
		 NULL},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", NULL},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n"
		 "0\r\n\r\n",
		 NULL},
		{"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n"
		 "0\r\n\r\n",
		 NULL},
		{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 1\r\n\r\nx", NULL},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
		 "10000000000000003\r\nabc\r\n0\r\n\r\n",
		 NULL},
		{"HTTP/1.1 200 O\nX: y\r\n\r\n", NULL},
		{"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", NULL},
		{"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\nx", NULL},
		{"HTTP/1.1 200 OK\r\nX: a\r\n folded\r\n\r\n", NULL},
		{"HTTP/1.1 200 OK\r\nX : a\r\n\r\n", NULL},
		{"HTTP/1.1 200 OK\r\nX: a\nY: b\r\n\r\n", NULL},
		{"HTTP/2 200 OK\r\n\r\n", NULL},
		{"HTTP/1.1 999 OK\r\n\r\n", NULL},
		{"HTTP/1.1 20 OK\r\n\r\n", NULL},
		{"garbage\r\n\r\n", NULL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		for (size_t step = 1; step < 100; step += 49) {
			char *content = read_answer(rows[i].answer, step, false);

			if (rows[i].content)
				assert_string_equal(content, rows[i].content);
			else
				assert_null(content);
			free(content);
		}
	}
}

static void test_head_answers(void **state)
{
	char *content = read_answer("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", 1, true);

	(void)state;
	assert_string_equal(content, "");
	free(content);
}

static void test_fields(void **state)
{
	char bytes[] = "HTTP/1.1 200 OK\r\nA:  b c \t\r\nUpgrade: x\r\n\r\n";
	struct http1_head h;
	struct err e = {0};

	(void)state;
	assert_int_equal(http1_head_length(bytes, 10), 0);
	assert_int_equal(http1_head_read(bytes, strlen(bytes), &h, &e), 0);
	assert_int_equal(h.count, 2);
	assert_string_equal(h.fields[0].name, "A");
	assert_string_equal(h.fields[0].value, "b c");
	assert_true(http1_is_hop_header("transfer-encoding"));
	assert_false(http1_is_hop_header("X"));
	assert_true(http1_list_has("close, X-One", "x-one"));
	assert_true(http1_list_has(",, \tx-one ,Upgrade", "Upgrade"));
	assert_false(http1_list_has("close, X-One", "X-On"));
	assert_false(http1_list_has("close, X-One", "One"));
	assert_false(http1_list_has("", "X"));
	assert_false(http1_list_has(", ,", ""));
	assert_true(http1_unescape("a%2Fb+c", 7, true, bytes));
	assert_string_equal(bytes, "a/b c");
	assert_false(http1_unescape("a%00b", 5, true, bytes));
	assert_false(http1_unescape("a%2", 3, true, bytes));
}

/* Heads of requests, byte by byte; what may not be read in two ways is refused. */
static void test_requests(void **state)
{
	static const struct {
		const char *text;
		bool ok;
		int64_t length;
		bool chunked;
	} rows[] = {
		{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", true, -1, false},
		{"GET / HTTP/1.0\r\n\r\n", true, -1, false},
		{"POST /a?b HTTP/1.1\r\nContent-Length: 12\r\n\r\n", true, 12, false},
		{"POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n", true, -1, true},
		/* refused */
		{"GET / HTTP/1.1\nHost: a\n\n", false, 0, false},
		{"GET / HTTP/1.1\r\nHost: a\n\r\n", false, 0, false},
		{"GET / HTTP/1.1\r\nHost: a\rb: c\r\n\r\n", false, 0, false},
		{"GET / HTTP/1.1\r\n\rHost: a\r\n\r\n", false, 0, false},
		{"GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", false, 0, false},
		{"GET / HTTP/1.1\r\nA : b\r\n\r\n", false, 0, false},
		{"GET / HTTP/1.1\r\nA\r\n\r\n", false, 0, false},
		{"GET  / HTTP/1.1\r\n\r\n", false, 0, false},
		{"GET / HTTP/1.2\r\n\r\n", false, 0, false},
		{"GET /\r\n\r\n", false, 0, false},
		{" / HTTP/1.1\r\n\r\n", false, 0, false},
		{"G@T / HTTP/1.1\r\n\r\n", false, 0, false},
		{"GET /\x7f HTTP/1.1\r\n\r\n", false, 0, false},
		{"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", false, 0, false},
		{"GET / HTTP/1.1\r\nAuthorization: a\r\nauthorization: b\r\n\r\n", false, 0, false},
		{"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", false, 0,
		 false},
		{"POST / HTTP/1.1\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n",
		 false, 0, false},
		{"POST / HTTP/1.1\r\nTransfer-Encoding: identity\r\n\r\n", false, 0, false},
		{"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", false, 0, false},
		{"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", false, 0, false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		size_t len = strlen(rows[i].text), scanned = 0;
		char *bytes = strdup(rows[i].text);
		struct http1_head h;
		struct err e = {0};
		ssize_t found = 0;

		for (size_t n = 1; n <= len && !found; n++)
			found = http1_request_length(bytes, n, &scanned);
		if (found > 0)
			found = http1_request_read(bytes, (size_t)found, &h, &e);
		assert_int_equal(found == 0, rows[i].ok);
		if (rows[i].ok) {
			assert_int_equal(h.length, rows[i].length);
			assert_int_equal(h.chunked, rows[i].chunked);
		}
		free(bytes);
	}
	{
		size_t scanned = 0;

		assert_int_equal(http1_request_length("GET /\0", 6, &scanned), -1);
	}
}

/* Whole answers, fed whole and byte by byte. */
static void test_answers(void **state)
{
	static const struct {
		const char *answer;
		int rc, end, status;
		const char *content;
	} rows[] = {
		{"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", 1, 1, 200, "abc"},
		{"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: 1\r\n\r\nx", 1, 1,
		 404, "x"},
		{"HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\n\r\n\x82", 1, 1, 101, "\x82"},
		{"HTTP/1.1 200 OK\r\n\r\nto the end", 0, 1, 200, "to the end"},
		{"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", 0, -1, 200, "ab"},
		{"HTTP/1.1 200 OK\r\nContent-", 0, -1, 0, ""},
		{"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab", -1, 0, 0, NULL},
		{"SSH-2.0-x\r\n\r\n", -1, 0, 0, NULL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		size_t len = strlen(rows[i].answer);

		for (size_t step = 1; step <= len; step += len - 1) {
			struct http1_answer a = {0};
			struct buf body = {0};
			int rc = 0;

			for (size_t at = 0; at < len && rc >= 0; at += step)
				rc = http1_answer_feed(&a, rows[i].answer + at,
						       len - at < step ? len - at : step, &body);
			assert_int_equal(rc, rows[i].rc);
			if (rc >= 0) {
				assert_int_equal(http1_answer_end(&a), rows[i].end);
				assert_int_equal(a.has_head ? a.head.status : 0, rows[i].status);
				assert_int_equal(body.len, strlen(rows[i].content));
				assert_memory_equal(body.len ? buf_head(&body) : "",
						    rows[i].content, body.len);
			}
			http1_answer_done(&a);
			buf_done(&body);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_requests), cmocka_unit_test(test_answers),
		cmocka_unit_test(test_bodies),	 cmocka_unit_test(test_head_answers),
		cmocka_unit_test(test_fields),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
