/* wire/websocket: frames both ways, and what is refused. */
#include "wire/websocket.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t mask[WS_MASK] = {0x37, 0xfa, 0x21, 0x3d};

static void test_handshake(void **state)
{
	char accept[WS_ACCEPT];

	(void)state;
	/* The example of RFC 6455, 1.3. */
	ws_accept("dGhlIHNhbXBsZSBub25jZQ==", accept);
	assert_string_equal(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
	assert_true(ws_key_is_valid("dGhlIHNhbXBsZSBub25jZQ=="));
	assert_false(ws_key_is_valid(""));
	assert_false(ws_key_is_valid("dGhlIHNhbXBsZSBub25jZQ"));
	assert_false(ws_key_is_valid("dGhlIHNhbXBsZSBub25jZSE="));
	assert_false(ws_key_is_valid("dGhlIHNhbXBsZSBub25jZ!=="));
}

static void test_lengths(void **state)
{
	static const size_t lengths[] = {0, 1, 125, 126, 127, 65535, 65536, 100000};
	char *bytes = malloc(100000);

	(void)state;
	memset(bytes, 'x', 100000);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		for (int masked = 0; masked < 2; masked++) {
			struct ws_reader r = {.is_server = masked, .max = 100000};
			struct ws_message m;

			ws_write(&r.in, WS_BINARY, bytes, lengths[i], masked ? mask : NULL);
			assert_int_equal(ws_next(&r, &m), 1);
			assert_int_equal(m.opcode, WS_BINARY);
			assert_int_equal(m.len, lengths[i]);
			assert_memory_equal(m.bytes, bytes, m.len);
			assert_int_equal(ws_next(&r, &m), 0);
			ws_reader_done(&r);
		}
	}
	free(bytes);
}

/* A ping may come between the fragments of a message. */
static void test_fragments(void **state)
{
	struct ws_reader r = {.max = 6};
	struct ws_message m;

	(void)state;
	ws_feed(&r,
		"\x01\x03"
		"abc"
		"\x89\x02"
		"hi"
		"\x80\x03"
		"def"
		"\x82\x01"
		"z",
		17);
	assert_int_equal(ws_next(&r, &m), 1);
	assert_int_equal(m.opcode, WS_PING);
	assert_memory_equal(m.bytes, "hi", 2);
	assert_int_equal(ws_next(&r, &m), 1);
	assert_int_equal(m.opcode, WS_TEXT);
	assert_int_equal(m.len, 6);
	assert_memory_equal(m.bytes, "abcdef", 6);
	assert_int_equal(ws_next(&r, &m), 1);
	assert_memory_equal(m.bytes, "z", 1);
	assert_int_equal(ws_next(&r, &m), 0);
	ws_reader_done(&r);
}

static void test_refused(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
		enum ws_code code;
		const char *why;
	} rows[] = {
		{"\x82\x81"
		 "abcdz",
		 7, WS_PROTOCOL, "a server that masks"},
		{"\xc2\x01z", 3, WS_PROTOCOL, "a reserved bit"},
		{"\x83\x01z", 3, WS_PROTOCOL, "a reserved opcode"},
		{"\x8b\x01z", 3, WS_PROTOCOL, "a reserved control opcode"},
		{"\x80\x01z", 3, WS_PROTOCOL, "a continuation of nothing"},
		{"\x02\x01z\x82\x01z", 6, WS_PROTOCOL, "a message within another"},
		{"\x09\x01z", 3, WS_PROTOCOL, "a ping in fragments"},
		{"\x89\x7e\x00\x80", 4, WS_PROTOCOL, "a long ping"},
		{"\x82\x7e\x00\x7d", 4, WS_PROTOCOL, "more bytes for a length than it takes"},
		{"\x82\x7f\x00\x00\x00\x00\x00\x00\xff\xff", 10, WS_PROTOCOL, "the same with 8"},
		{"\x82\x7f\x80\x00\x00\x00\x00\x00\x00\x00", 10, WS_PROTOCOL, "a negative length"},
		{"\x82\x0b", 2, WS_TOO_BIG, "too long, before its bytes are there"},
		{"\x02\x06"
		 "abcdef"
		 "\x80\x05",
		 10, WS_TOO_BIG, "too long in fragments"},
		{"\x82\x7f\x00\x00\x00\x7f\xff\xff\xff\xff", 10, WS_TOO_BIG, "far too long"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct ws_reader r = {.max = 10};
		struct ws_message m;
		int rc;

		ws_feed(&r, rows[i].bytes, rows[i].len);
		while ((rc = ws_next(&r, &m)) > 0)
			;
		if (rc == 0 || m.code != rows[i].code)
			fail_msg("%s: %d", rows[i].why, rc ? (int)m.code : 0);
		ws_reader_done(&r);
	}
}

static void test_clients_mask(void **state)
{
	struct ws_reader r = {.is_server = true, .max = 10};
	struct ws_message m;

	(void)state;
	ws_feed(&r, "\x82\x01z", 3);
	assert_int_equal(ws_next(&r, &m), -1);
	assert_int_equal(m.code, WS_PROTOCOL);
	ws_reader_done(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_handshake),    cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_fragments),    cmocka_unit_test(test_refused),
		cmocka_unit_test(test_clients_mask),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
