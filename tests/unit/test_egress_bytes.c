/* wire/dns and wire/tls_hello: what a sandbox's first bytes are taken for. */
#include "wire/dns.h"
#include "wire/tls_hello.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* ---- DNS ---- */

static const unsigned char plain[] = "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
				     "\x07"
				     "Example\x03"
				     "com\x00\x00\x01\x00\x01";

static int read_query(const unsigned char *bytes, size_t len, struct dns_query *q)
{
	return dns_query_read(bytes, len, q);
}

static void test_query(void **state)
{
	unsigned char bytes[600];
	struct dns_query q;
	size_t len = sizeof(plain) - 1;

	(void)state;
	assert_int_equal(read_query(plain, len, &q), 1);
	assert_string_equal(q.name, "Example.com");
	assert_int_equal(q.type, DNS_A);
	assert_true(q.is_text);
	assert_int_equal(q.udp_size, 512);
	/* Too short to answer; an answer; another opcode; two questions; class CHAOS; cut. */
	assert_int_equal(read_query(plain, 11, &q), 0);
	memcpy(bytes, plain, len);
	bytes[2] |= 0x80;
	assert_int_equal(read_query(bytes, len, &q), 0);
	bytes[2] = 0x29;
	assert_int_equal(read_query(bytes, len, &q), -1);
	assert_int_equal(q.rcode, DNS_NOTIMP);
	bytes[2] = 1;
	bytes[5] = 2;
	assert_int_equal(read_query(bytes, len, &q), -1);
	assert_int_equal(q.rcode, DNS_FORMERR);
	bytes[5] = 1;
	bytes[len - 1] = 3;
	assert_int_equal(read_query(bytes, len, &q), -1);
	assert_int_equal(q.rcode, DNS_REFUSED);
	for (size_t cut = 12; cut < len; cut++) {
		assert_int_equal(read_query(plain, cut, &q), -1);
		assert_int_equal(q.rcode, DNS_FORMERR);
	}
	/* A pointer, a dot and a zero byte in a label. */
	bytes[len - 1] = 1;
	bytes[12] = 0xc0;
	assert_int_equal(read_query(bytes, len, &q), -1);
	bytes[12] = 7;
	bytes[15] = '.';
	assert_int_equal(read_query(bytes, len, &q), 1);
	assert_false(q.is_text);
	bytes[15] = '\0';
	assert_int_equal(read_query(bytes, len, &q), 1);
	assert_false(q.is_text);
	assert_int_equal(strlen(q.name), strlen("Example.com"));
}

/* 255 bytes of name are the most. */
static void test_long_name(void **state)
{
	unsigned char bytes[400] = {0x12, 0x34, 1, 0, 0, 1};
	struct dns_query q;
	size_t at = 12;

	(void)state;
	for (int i = 0; i < 3; i++) {
		bytes[at] = 63;
		memset(bytes + at + 1, 'a', 63);
		at += 64;
	}
	bytes[at] = 61;
	memset(bytes + at + 1, 'b', 61);
	memcpy(bytes + at + 62, "\0\0\1\0\1", 5);
	assert_int_equal(read_query(bytes, at + 67, &q), 1);
	assert_int_equal(strlen(q.name), 253);
	bytes[at] = 62;
	memset(bytes + at + 1, 'b', 62);
	memcpy(bytes + at + 63, "\0\0\1\0\1", 5);
	assert_int_equal(read_query(bytes, at + 68, &q), -1);
}

static void test_answer(void **state)
{
	static const unsigned char address[4] = {198, 18, 0, 1};
	auto_buf struct buf out = {0};
	struct dns_query q;
	char text[600];

	(void)state;
	read_query(plain, sizeof(plain) - 1, &q);
	dns_answer_begin(&out, &q, DNS_OK);
	dns_answer_address(&out, address, 4, 60);
	dns_answer_end(&out, &q, 512);
	assert_int_equal(out.len, sizeof(plain) - 1 + 16);
	assert_int_equal((unsigned char)buf_head(&out)[2], 0x81);
	assert_int_equal((unsigned char)buf_head(&out)[3], 0x80);
	assert_int_equal(buf_head(&out)[7], 1);
	assert_memory_equal(buf_head(&out) + out.len - 4, address, 4);
	/* What does not fit is left out, and said to be cut. */
	memset(text, 'x', sizeof(text));
	dns_answer_text(&out, text, sizeof(text), 60);
	dns_answer_end(&out, &q, 512);
	assert_int_equal(out.len, sizeof(plain) - 1);
	assert_int_equal(buf_head(&out)[2] & 2, 2);
	assert_int_equal(buf_head(&out)[7], 0);
}

static void test_reverse(void **state)
{
	static const unsigned char v4[16] = {
		[10] = 0xff, [11] = 0xff, [12] = 198, [13] = 18, [15] = 7};
	unsigned char address[16];
	char v6[80] = "";

	(void)state;
	assert_true(dns_reverse_address("7.0.18.198.in-addr.arpa", address));
	assert_memory_equal(address, v4, 16);
	assert_false(dns_reverse_address("256.0.18.198.in-addr.arpa", address));
	assert_false(dns_reverse_address("1.7.0.18.198.in-addr.arpa", address));
	assert_false(dns_reverse_address("0.18.198.in-addr.arpa", address));
	assert_false(dns_reverse_address("x.in-addr.arpa", address));
	for (int i = 0; i < 32; i++)
		strcat(v6, i == 0 ? "b." : i == 31 ? "f." : "0.");
	strcat(v6, "ip6.arpa");
	assert_true(dns_reverse_address(v6, address));
	assert_int_equal(address[15], 0x0b);
	assert_int_equal(address[0], 0xf0);
	assert_false(dns_reverse_address(v6 + 2, address));
}

/* ---- TLS ---- */

/* A ClientHello with these extensions, in one record. */
static size_t make_hello(unsigned char *ret, const unsigned char *extensions, size_t len)
{
	size_t body = 2 + 32 + 1 + 4 + 2 + 2 + len, at = 0;

	memcpy(ret, "\x16\x03\x01", 3);
	ret[3] = (unsigned char)((body + 4) >> 8);
	ret[4] = (unsigned char)(body + 4);
	ret[5] = 1;
	ret[6] = 0;
	ret[7] = (unsigned char)(body >> 8);
	ret[8] = (unsigned char)body;
	memcpy(ret + 9, "\x03\x03", 2);
	memset(ret + 11, 'r', 32);
	at = 43;
	memcpy(ret + at, "\0\0\x02\x13\x01\x01\0", 7);
	at += 7;
	ret[at++] = (unsigned char)(len >> 8);
	ret[at++] = (unsigned char)len;
	memcpy(ret + at, extensions, len);
	return at + len;
}

#define NAME_A                                                                                     \
	"\0\0\0\x08\0\x06\0\0\x03"                                                                 \
	"a.b"
#define BYTES(text) (const unsigned char *)(text), sizeof(text) - 1

static void test_hello(void **state)
{
	unsigned char bytes[400], split[4000];
	struct tls_hello_found found = {0};
	size_t len = make_hello(bytes, BYTES("\0\x0b\0\x02\x01\0" NAME_A)), used = 0;

	(void)state;
	assert_int_equal(tls_hello_read(bytes, len, &found), TLS_NAMED);
	assert_string_equal(found.name, "a.b");
	assert_int_equal(found.len, len);
	for (size_t cut = 0; cut < len; cut++)
		assert_int_equal(tls_hello_read(bytes, cut, &found), TLS_MORE);
	/* One byte in each record. */
	for (size_t i = 5; i < len; i++, used += 6) {
		memcpy(split + used, "\x16\x03\x01\0\x01", 5);
		split[used + 5] = bytes[i];
		assert_int_equal(tls_hello_read(split, used + 5, &found), TLS_MORE);
	}
	assert_int_equal(tls_hello_read(split, used, &found), TLS_NAMED);
	assert_string_equal(found.name, "a.b");
	/* Without a name. */
	len = make_hello(bytes, BYTES("\0\x0b\0\x02\x01\0"));
	assert_int_equal(tls_hello_read(bytes, len, &found), TLS_NO_NAME);
	assert_int_equal(tls_hello_read(BYTES("\x80\x2e\x01\x03\x01\0"), &found), TLS_NO_NAME);
	/* Not TLS at all. */
	assert_int_equal(tls_hello_read(BYTES("GET / HTTP/1.1\r\n"), &found), TLS_NOT);
	assert_int_equal(tls_hello_read(BYTES("\x16\x02"), &found), TLS_NOT);
	assert_int_equal(tls_hello_read(BYTES("\0\0\0\x08\x04\xd2\x16\x2f"), &found), TLS_NOT);
}

static void test_malformed_hello(void **state)
{
	unsigned char bytes[400];
	struct tls_hello_found found = {0};
	size_t len;

	(void)state;
	/* Two names: servers could take either. */
	len = make_hello(bytes, BYTES(NAME_A NAME_A));
	assert_int_equal(tls_hello_read(bytes, len, &found), TLS_MALFORMED);
	len = make_hello(bytes, BYTES("\0\0\0\x0e\0\x0c\0\0\x03"
				      "a.b\0\0\x03"
				      "c.d"));
	assert_int_equal(tls_hello_read(bytes, len, &found), TLS_MALFORMED);
	/* A zero byte in it; an empty one; a length beyond the extension. */
	len = make_hello(bytes, BYTES("\0\0\0\x08\0\x06\0\0\x03"
				      "a\0b"));
	assert_int_equal(tls_hello_read(bytes, len, &found), TLS_MALFORMED);
	len = make_hello(bytes, BYTES("\0\0\0\x05\0\x03\0\0\0"));
	assert_int_equal(tls_hello_read(bytes, len, &found), TLS_MALFORMED);
	len = make_hello(bytes, BYTES("\0\0\0\x08\0\x06\0\0\x09"
				      "a.b"));
	assert_int_equal(tls_hello_read(bytes, len, &found), TLS_MALFORMED);
	/* Another record or message than a hello. */
	assert_int_equal(tls_hello_read(BYTES("\x15\x03\x01\0\x02\x01\0"), &found), TLS_MALFORMED);
	len = make_hello(bytes, BYTES(NAME_A));
	bytes[5] = 16;
	assert_int_equal(tls_hello_read(bytes, len, &found), TLS_MALFORMED);
	/* Longer than anyone needs. */
	bytes[5] = 1;
	bytes[6] = 1;
	assert_int_equal(tls_hello_read(bytes, len, &found), TLS_MALFORMED);
}

static void test_retry(void **state)
{
	unsigned char bytes[60] =
		"\x16\x03\x03\0\x58\x02\0\0\x54\x03\x03"
		"\xcf\x21\xad\x74\xe5\x9a\x61\x11\xbe\x1d\x8c\x02\x1e\x65\xb8\x91"
		"\xc2\xa2\x11\x16\x7a\xbb\x8c\x5e\x07\x9e\x09\xe2\xc8\xa8\x33\x9c";

	(void)state;
	assert_int_equal(tls_server_retries(bytes, sizeof(bytes)), 1);
	assert_int_equal(tls_server_retries(bytes, 20), -1);
	assert_int_equal(tls_server_retries(bytes, 0), -1);
	bytes[20] ^= 1;
	assert_int_equal(tls_server_retries(bytes, sizeof(bytes)), 0);
	assert_int_equal(tls_server_retries(BYTES("\x15\x03\x03")), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_query),  cmocka_unit_test(test_long_name),
		cmocka_unit_test(test_answer), cmocka_unit_test(test_reverse),
		cmocka_unit_test(test_hello),  cmocka_unit_test(test_malformed_hello),
		cmocka_unit_test(test_retry),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
