/* net/name: one canonical form of names and addresses, and kinds of addresses. Case 46 of the attacks. */
#include "net/name.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static int host(const char *text, size_t len, char *ret)
{
	struct network n = {0};
	struct err e = {0};
	char name[NET_NAME] = "untouched", digits[NET_ADDRESS_TEXT];
	int is = net_host(text, len, name, &n, &e);

	if (is < 0) {
		assert_int_equal(e.kind, ERR_INVALID);
		assert_true(e.msg[0] && str_is_printable(e.msg));
		assert_string_equal(name, "untouched");
		return -1;
	}
	net_address_text(n.address, false, digits);
	strcpy(ret, is == NET_IS_NAME ? name : digits);
	return is;
}

static void test_names(void **state)
{
	static const struct {
		const char *text, *name;
	} rows[] = {
		{"example.com", "example.com"},
		{"EXAMPLE.Com", "example.com"},
		{"example.com.", "example.com"},
		{"_dmarc.example.com", "_dmarc.example.com"},
		{"a-b.c--d.example", "a-b.c--d.example"},
		{"localhost", "localhost"},
		{"1.example", "1.example"},
		{"0xg", "0xg"},
		{"xn--bcher-kva.example", "xn--bcher-kva.example"},
		{"XN--Bcher-KVA.example", "xn--bcher-kva.example"},
		/* As other programs write them (libidn2). */
		{"b\xc3\xbc"
		 "cher.example",
		 "xn--bcher-kva.example"},
		{"B\xc3\x9c"
		 "CHER.example",
		 "xn--bcher-kva.example"},
		{"m\xc3\xa5"
		 "nedsskinnsj\xc3\xb8.no",
		 "xn--mnedsskinnsj-tcb1z.no"},
		{"\xd0\xbf\xd1\x80\xd0\xb8\xd0\xbc\xd0\xb5\xd1\x80.\xd1\x80\xd1\x84",
		 "xn--e1afmkfd.xn--p1ai"},
		{"\xd0\x9f\xd0\xa0\xd0\x98\xd0\x9c\xd0\x95\xd0\xa0.\xd0\xa0\xd0\xa4",
		 "xn--e1afmkfd.xn--p1ai"},
		{"\xe4\xbe\x8b\xe3\x81\x88.\xe3\x83\x86\xe3\x82\xb9\xe3\x83\x88",
		 "xn--r8jz45g.xn--zckzah"},
		{"\xce\x95\xce\xbb\xce\xbb\xce\xac\xce\xb4\xce\xb1.gr", "xn--hxakic4aa.gr"},
	};
	char name[NET_NAME];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		assert_int_equal(host(rows[i].text, strlen(rows[i].text), name), NET_IS_NAME);
		assert_string_equal(name, rows[i].name);
		/* What is canonical stays as it is. */
		assert_int_equal(host(rows[i].name, strlen(rows[i].name), name), NET_IS_NAME);
		assert_string_equal(name, rows[i].name);
	}
}

#define BYTES(text)                                                                                \
	{                                                                                          \
		text, sizeof(text) - 1                                                             \
	}
static const struct {
	const char *text;
	size_t len;
} refused[] = {
	BYTES(""),
	BYTES("."),
	BYTES(".."),
	BYTES("a..b"),
	BYTES(".example.com"),
	BYTES("example.com.."),
	BYTES("evil.com\0.allowed.com"),
	BYTES("allowed.com\0"),
	BYTES("allowed.com\r\n"),
	BYTES("allowed.com\t"),
	BYTES(" allowed.com"),
	BYTES("allowed.com "),
	BYTES("allowed%00.com"),
	BYTES("allowed.com%2eevil.com"),
	BYTES("user@allowed.com"),
	BYTES("evil.com#allowed.com"),
	BYTES("evil.com/allowed.com"),
	BYTES("evil.com?allowed.com"),
	BYTES("evil.com\\allowed.com"),
	BYTES("allowed.com:443"),
	BYTES("allowed.com;"),
	BYTES("-allowed.com"),
	BYTES("allowed-.com"),
	BYTES("*.allowed.com"),
	BYTES("allo\x7fwed.com"),
	/* Not UTF-8; overlong dot; surrogate. */
	BYTES("allowed\xff.com"),
	BYTES("allowed\xc0\xae"
	      "com"),
	BYTES("\xed\xa0\x80.com"),
	/* Wide letters and dots turn into ASCII in some programs: a wide a, three dots, a wide slash. */
	BYTES("\xef\xbd\x81llowed.com"),
	BYTES("allowed\xe3\x80\x82"
	      "com"),
	BYTES("allowed\xef\xbc\x8e"
	      "com"),
	BYTES("allowed\xef\xbd\xa1"
	      "com"),
	BYTES("evil.com\xef\xbc\x8f.allowed.com"),
	/* Soft hyphen, joiner, combining acute, sharp s, final sigma, dotted I, long s, circled 1. */
	BYTES("allo\xc2\xadwed.com"),
	BYTES("allo\xe2\x80\x8dwed.com"),
	BYTES("allowe\xcc\x81.com"),
	BYTES("stra\xc3\x9f"
	      "e.de"),
	BYTES("\xcf\x82.gr"),
	BYTES("\xc4\xb0.com"),
	BYTES("\xc5\xbf.com"),
	BYTES("\xe2\x91\xa0.com"),
	/* The first letter is Cyrillic, the rest Latin. */
	BYTES("\xd0\xb0llowed.com"),
	/* Addresses that programs read differently. */
	BYTES("0177.0.0.1"),
	BYTES("0x7f.0.0.1"),
	BYTES("0x7f000001"),
	BYTES("2130706433"),
	BYTES("017700000001"),
	BYTES("127.1"),
	BYTES("127.0.1"),
	BYTES("127.0.0.01"),
	BYTES("127.0.0.1."),
	BYTES("127.0.0.256"),
	BYTES("1.2.3.4.5"),
	BYTES("example.1"),
	BYTES("0x"),
	BYTES("10.0.0.0/8"),
	BYTES("[127.0.0.1]"),
	BYTES("[::1"),
	BYTES("::1]"),
	BYTES("[]"),
	BYTES("[::1]x"),
	BYTES("fe80::1%eth0"),
	BYTES("[fe80::1%25eth0]"),
	BYTES("::ffff:127.0.0.01"),
	BYTES("1::2::3"),
	BYTES("::1/128"),
	BYTES("::1\0"),
};

static void test_refused(void **state)
{
	char name[NET_NAME], long_name[300];

	for (size_t i = 0; i < ARRAY_LEN(refused); i++)
		if (host(refused[i].text, refused[i].len, name) != -1)
			fail_msg("row %zu was taken: '%s'", i, refused[i].text);

	memset(long_name, 'a', sizeof(long_name));
	assert_int_equal(host(long_name, 63, name), NET_IS_NAME);
	assert_int_equal(host(long_name, 64, name), -1);
	for (size_t i = 49; i < sizeof(long_name); i += 50)
		long_name[i] = '.';
	assert_int_equal(host(long_name, 253, name), NET_IS_NAME);
	assert_int_equal(host(long_name, 254, name), -1);
	/* Short as text, too long as xn--. */
	for (size_t i = 0; i < 120; i += 2)
		memcpy(long_name + i, i % 4 ? "\xd0\xb0" : "\xd1\x8f", 2);
	assert_int_equal(host(long_name, 120, name), -1);
}

static void test_addresses(void **state)
{
	static const struct {
		const char *text, *address;
		enum net_address_kind kind;
	} rows[] = {
		{"8.8.8.8", "8.8.8.8", NET_PUBLIC_ADDRESS},
		{"127.0.0.1", "127.0.0.1", NET_LOOPBACK_ADDRESS},
		{"::ffff:127.0.0.1", "127.0.0.1", NET_LOOPBACK_ADDRESS},
		{"[::FFFF:7f00:1]", "127.0.0.1", NET_LOOPBACK_ADDRESS},
		{"0.0.0.0", "0.0.0.0", NET_RESERVED_ADDRESS},
		{"10.255.255.255", "10.255.255.255", NET_PRIVATE_ADDRESS},
		{"11.0.0.0", "11.0.0.0", NET_PUBLIC_ADDRESS},
		{"172.15.255.255", "172.15.255.255", NET_PUBLIC_ADDRESS},
		{"172.16.0.0", "172.16.0.0", NET_PRIVATE_ADDRESS},
		{"172.31.255.255", "172.31.255.255", NET_PRIVATE_ADDRESS},
		{"172.32.0.0", "172.32.0.0", NET_PUBLIC_ADDRESS},
		{"192.168.1.1", "192.168.1.1", NET_PRIVATE_ADDRESS},
		{"100.64.0.1", "100.64.0.1", NET_CGNAT_ADDRESS},
		{"100.127.255.255", "100.127.255.255", NET_CGNAT_ADDRESS},
		{"100.128.0.0", "100.128.0.0", NET_PUBLIC_ADDRESS},
		{"100.100.100.200", "100.100.100.200", NET_CGNAT_ADDRESS},
		{"169.254.169.254", "169.254.169.254", NET_LINK_LOCAL_ADDRESS},
		{"168.63.129.16", "168.63.129.16", NET_LINK_LOCAL_ADDRESS},
		{"192.0.0.192", "192.0.0.192", NET_RESERVED_ADDRESS},
		{"192.0.2.1", "192.0.2.1", NET_RESERVED_ADDRESS},
		{"198.18.0.1", "198.18.0.1", NET_RESERVED_ADDRESS},
		{"198.19.255.255", "198.19.255.255", NET_RESERVED_ADDRESS},
		{"198.51.100.1", "198.51.100.1", NET_RESERVED_ADDRESS},
		{"203.0.113.1", "203.0.113.1", NET_RESERVED_ADDRESS},
		{"224.0.0.1", "224.0.0.1", NET_MULTICAST_ADDRESS},
		{"240.0.0.1", "240.0.0.1", NET_RESERVED_ADDRESS},
		{"255.255.255.255", "255.255.255.255", NET_RESERVED_ADDRESS},
		{"::", "::", NET_RESERVED_ADDRESS},
		{"::1", "::1", NET_LOOPBACK_ADDRESS},
		{"::127.0.0.1", "::127.0.0.1", NET_LOOPBACK_ADDRESS},
		{"::8.8.8.8", "::8.8.8.8", NET_RESERVED_ADDRESS},
		{"64:ff9b::10.0.0.1", "64:ff9b::a00:1", NET_PRIVATE_ADDRESS},
		{"64:ff9b::8.8.8.8", "64:ff9b::808:808", NET_PUBLIC_ADDRESS},
		{"64:ff9b:1::8.8.8.8", "64:ff9b:1::808:808", NET_PRIVATE_ADDRESS},
		{"2002:7f00:1::1", "2002:7f00:1::1", NET_LOOPBACK_ADDRESS},
		{"2002:a9fe:a9fe::", "2002:a9fe:a9fe::", NET_LINK_LOCAL_ADDRESS},
		{"2002:808:808::1", "2002:808:808::1", NET_PUBLIC_ADDRESS},
		/* Teredo: 10.0.0.1 and 8.8.8.8, inverted. */
		{"2001::f5ff:fffe", "2001::f5ff:fffe", NET_PRIVATE_ADDRESS},
		{"2001::f7f7:f7f7", "2001::f7f7:f7f7", NET_PUBLIC_ADDRESS},
		{"2001:db8::1", "2001:db8::1", NET_RESERVED_ADDRESS},
		{"2001:10::1", "2001:10::1", NET_RESERVED_ADDRESS},
		{"2001:4860:4860::8888", "2001:4860:4860::8888", NET_PUBLIC_ADDRESS},
		{"2606:4700::1", "2606:4700::1", NET_PUBLIC_ADDRESS},
		{"3fff::1", "3fff::1", NET_RESERVED_ADDRESS},
		{"fd00:ec2::254", "fd00:ec2::254", NET_PRIVATE_ADDRESS},
		{"fe80::1", "fe80::1", NET_LINK_LOCAL_ADDRESS},
		{"fec0::1", "fec0::1", NET_PRIVATE_ADDRESS},
		{"ff02::1", "ff02::1", NET_MULTICAST_ADDRESS},
		{"100::1", "100::1", NET_RESERVED_ADDRESS},
		{"5f00::1", "5f00::1", NET_RESERVED_ADDRESS},
		{"4000::1", "4000::1", NET_RESERVED_ADDRESS},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char name[NET_NAME], digits[NET_ADDRESS_TEXT];
		struct network n;
		struct err e = {0};

		if (net_host(rows[i].text, strlen(rows[i].text), name, &n, &e) != NET_IS_ADDRESS)
			fail_msg("%s: %s", rows[i].text, e.msg);
		assert_int_equal(n.bits, 128);
		net_address_text(n.address, false, digits);
		assert_string_equal(digits, rows[i].address);
		if (net_address_kind(n.address) != rows[i].kind)
			fail_msg("%s is %s", rows[i].text,
				 net_address_kind_name(net_address_kind(n.address)));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_addresses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
