/* What a service answers, and what broker and role say to each other: good, bad, cut anywhere. */
#include "base/auto.h"
#include "base/str.h"
#include "wire/connect.h"
#include "wire/service.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* Last: it wants to know what comes before. */
#include <cmocka.h>

static int parse(const char *text, struct service_sandbox *ret)
{
	struct err e = {0};
	int rc = service_sandbox_parse(text, strlen(text), ret, &e);

	assert_int_equal(rc < 0, e.kind != ERR_NONE);
	return rc;
}

static void test_sandbox(void **state)
{
	static const char *const bad[] = {
		"",
		"null",
		"[]",
		"{}",
		"<html>",
		"{\"sandboxID\":3}",
		"{\"sandboxID\":\"\"}",
		"{\"sandboxID\":\"a/b\"}",
		"{\"sandboxID\":\"../x\"}",
		"{\"sandboxID\":\"a b\"}",
		"{\"sandboxID\":\"a\\r\\nX: y\"}",
		"{\"sandboxID\":\"ok\",\"envdAccessToken\":3}",
		"{\"sandboxID\":\"ok\",\"envdAccessToken\":\"a\\nb\"}",
		"{\"sandboxID\":\"ok\"",
	};
	char text[1024], name[REMOTE_ID + 1];
	struct service_sandbox s;

	(void)state;
	assert_int_equal(
		parse("{\"sandboxID\":\"i3-x_Y\",\"envdAccessToken\":\"t\",\"more\":{}}", &s), 0);
	assert_string_equal(s.name, "i3-x_Y");
	assert_string_equal(s.token, "t");
	assert_int_equal(parse("{\"sandboxID\":\"i\",\"envdAccessToken\":null}", &s), 0);
	assert_string_equal(s.token, "");
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(parse(bad[i], &s), -1);
	memset(name, 'a', sizeof(name));
	name[REMOTE_ID] = '\0';
	snprintf(text, sizeof(text), "{\"sandboxID\":\"%s\"}", name);
	assert_int_equal(parse(text, &s), -1);
	snprintf(text, sizeof(text), "{\"sandboxID\":\"%s\"}", name + 1);
	assert_int_equal(parse(text, &s), 0);
	snprintf(text, sizeof(text), "{\"sandboxID\":\"i\",\"envdAccessToken\":\"%0300d\"}", 0);
	assert_int_equal(parse(text, &s), -1);
}

static void test_list(void **state)
{
	static const char all[] = "[3,{},{\"sandboxID\":\"x\"},"
				  "{\"sandboxID\":\"y\",\"metadata\":{\"cloche\":\"other\"}},"
				  "{\"sandboxID\":\"../z\",\"metadata\":{\"cloche\":\"id\"}},"
				  "{\"sandboxID\":\"z\",\"metadata\":{\"cloche\":\"id\"}}]";
	char name[REMOTE_ID];
	struct err e = {0};

	(void)state;
	assert_int_equal(service_list_parse(all, strlen(all), "id", name, &e), 1);
	assert_string_equal(name, "z");
	assert_int_equal(service_list_parse(all, strlen(all), "none", name, &e), 0);
	assert_int_equal(service_list_parse("{}", 2, "id", name, &e), -1);
	assert_int_equal(service_list_parse("", 0, "id", name, &e), -1);
}

static void test_refusal(void **state)
{
	static const struct {
		long status;
		const char *body, *says;
		enum err_kind kind;
	} rows[] = {
		{401, "{\"code\":401,\"message\":\"no\\u001b[31m\"}", "key: no?", ERR_DENIED},
		{404, "{\"message\":\"template 'x' not found\"}", "template 'x'", ERR_NOT_FOUND},
		{418, "teapot", "status 418", ERR_SYSTEM},
		{429, "", "fewer", ERR_LIMIT},
		{500, "{\"message\":3}", "status 500", ERR_SYSTEM},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct err e = {0};

		assert_int_equal(service_refusal("do it", rows[i].status, rows[i].body,
						 strlen(rows[i].body), &e),
				 -1);
		assert_int_equal(e.kind, rows[i].kind);
		assert_non_null(strstr(e.msg, rows[i].says));
		assert_null(strchr(e.msg, '\033'));
	}
}

static void put(struct buf *b, uint8_t flags, const char *text)
{
	connect_put(b, flags, text, strlen(text));
}

/* Byte by byte, as the worst network would. */
static void test_events(void **state)
{
	static const enum service_event_kind wanted[] = {
		SERVICE_START,	 SERVICE_OUT,	  SERVICE_ERR,	SERVICE_NOTHING, SERVICE_OUT,
		SERVICE_NOTHING, SERVICE_NOTHING, SERVICE_EXIT, SERVICE_END};
	struct buf all = {0}, in = {0}, out = {0};
	struct service_event ev;
	struct err e = {0};
	size_t n = 0;

	(void)state;
	put(&all, 0, "{\"event\":{\"start\":{\"pid\":7}}}");
	put(&all, 0, "{\"event\":{\"data\":{\"stdout\":\"aGVsbG8=\"}}}");
	put(&all, 0, "{\"event\":{\"data\":{\"stderr\":\"IQ==\"}}}");
	put(&all, 0, "{\"event\":{\"keepalive\":{}}}");
	put(&all, 0, "{\"event\":{\"data\":{\"stdout\":\"\"}}}");
	put(&all, 0, "{\"event\":{\"data\":{\"pty\":\"IQ==\"}}}");
	put(&all, 0, "{}");
	put(&all, 0, "{\"event\":{\"end\":{\"status\":\"exit status 3\"}}}");
	put(&all, CONNECT_END, "{\"error\":{\"message\":\"gone\"}}");
	for (size_t i = 0; i < all.len; i++) {
		buf_add(&in, buf_head(&all) + i, 1);
		while (service_event_next(&in, &out, &ev, &e) > 0) {
			assert_true(n < ARRAY_LEN(wanted));
			assert_int_equal(ev.kind, wanted[n]);
			if (ev.kind == SERVICE_START)
				assert_int_equal(ev.pid, 7);
			if (ev.kind == SERVICE_EXIT)
				assert_string_equal(ev.text, "exit status 3");
			if (ev.kind == SERVICE_END)
				assert_string_equal(ev.text, "gone");
			n++;
		}
		assert_int_equal(e.kind, ERR_NONE);
	}
	assert_int_equal(n, ARRAY_LEN(wanted));
	assert_int_equal(out.len, 6);
	assert_memory_equal(buf_head(&out), "hello!", 6);
	assert_int_equal(in.len, 0);
	buf_done(&all);
	buf_done(&in);
	buf_done(&out);
}

static void test_bad_events(void **state)
{
	static const char *const bad[] = {
		"[]",
		"{",
		"{\"event\":{\"start\":{}}}",
		"{\"event\":{\"start\":{\"pid\":0}}}",
		"{\"event\":{\"start\":{\"pid\":99999999999}}}",
		"{\"event\":{\"data\":{\"stdout\":\"?\"}}}",
	};
	struct service_event ev;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct buf in = {0}, out = {0};
		struct err e = {0};

		put(&in, 0, bad[i]);
		assert_int_equal(service_event_next(&in, &out, &ev, &e), -1);
		assert_int_equal(e.kind, ERR_SYSTEM);
		buf_done(&in);
		buf_done(&out);
	}
	struct buf huge = {0}, out = {0};
	struct err e = {0};

	buf_add(&huge, "\0\x7f\xff\xff\xff", 5);
	assert_int_equal(service_event_next(&huge, &out, &ev, &e), -1);
	buf_done(&huge);
}

static void test_messages(void **state)
{
	static struct ipc m = {.type = IPC_REMOTE_CREATE, .serial = 9}, got, bad;
	size_t size = ipc_size(IPC_REMOTE_CREATE);
	int pair[2], fd;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
	memcpy(m.remote.id, "abcdefghijklmnopqrst", 21);
	assert_int_equal(ipc_send(pair[0], &m, pair[1]), 0);
	assert_int_equal(ipc_receive(pair[1], &got, &fd), 1);
	assert_true(fd >= 0);
	close(fd);
	assert_memory_equal(&m, &got, size);
	assert_int_equal(ipc_receive(pair[1], &got, &fd), -1);
	assert_int_equal(errno, EAGAIN);
	for (int i = 0; i < 6; i++) {
		bad = m;
		if (i == 0)
			bad.type = IPC_REMOTE_GONE + 1;
		if (i == 1)
			bad.remote.id[3] = '/';
		if (i == 2)
			memcpy(bad.remote.name, "a/b", 4);
		if (i == 3)
			memset(bad.remote.name, 'a', sizeof(bad.remote.name));
		if (i == 4)
			memset(bad.err.msg, 'a', sizeof(bad.err.msg));
		if (i == 5)
			bad.err.kind = ERR_KIND_COUNT;
		assert_int_equal(send(pair[0], &bad, size, 0), size);
		assert_int_equal(ipc_receive(pair[1], &got, &fd), -1);
		assert_int_equal(errno, EBADMSG);
	}
	assert_int_equal(send(pair[0], &m, size - 1, 0), size - 1);
	assert_int_equal(ipc_receive(pair[1], &got, &fd), -1);
	close(pair[0]);
	assert_int_equal(ipc_receive(pair[1], &got, &fd), 0);
	close(pair[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sandbox),	   cmocka_unit_test(test_list),
		cmocka_unit_test(test_refusal),	   cmocka_unit_test(test_events),
		cmocka_unit_test(test_bad_events), cmocka_unit_test(test_messages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
