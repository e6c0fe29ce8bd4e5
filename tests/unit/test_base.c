/* base: errors, strings, UTF-8, lists, and the parsers of sizes and times. */
#include "base/clock.h"
#include "base/auto.h"
#include "base/err.h"
#include "base/fd_message.h"
#include "base/glob.h"
#include "base/list.h"
#include "base/parse.h"
#include "base/str.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

static void test_err(void **state)
{
	struct err e = {.field = "old", .errnum = 7};

	(void)state;
	assert_int_equal(err_set(&e, ERR_DENIED, "no %d", 5), -1);
	assert_int_equal(e.kind, ERR_DENIED);
	assert_string_equal(e.msg, "no 5");
	assert_string_equal(e.field, "");
	assert_int_equal(e.errnum, 0);
	assert_int_equal(err_field(&e, ERR_INVALID, "memory", "memory: %s", "bad"), -1);
	assert_string_equal(e.field, "memory");
	errno = ENOENT;
	assert_int_equal(err_sys(&e, "cannot open %s", "x"), -1);
	assert_int_equal(e.kind, ERR_SYSTEM);
	assert_int_equal(e.errnum, ENOENT);
	assert_string_equal(e.msg, "cannot open x: No such file or directory");
	assert_int_equal(err_wrap(&e, "policy %s", "p"), -1);
	assert_string_equal(e.msg, "policy p: cannot open x: No such file or directory");
	assert_int_equal(e.errnum, ENOENT);
}

static void test_err_long(void **state)
{
	static char text[4000];
	struct err e = {0};

	(void)state;
	memset(text, 'x', sizeof(text) - 1);
	err_field(&e, ERR_INVALID, text, "%s", text);
	assert_int_equal(strlen(e.msg), sizeof(e.msg) - 1);
	assert_int_equal(strlen(e.field), sizeof(e.field) - 1);
	err_wrap(&e, "%s", text);
	assert_int_equal(strlen(e.msg), sizeof(e.msg) - 1);
	errno = EIO;
	err_sys(&e, "%s", text);
	assert_int_equal(strlen(e.msg), sizeof(e.msg) - 1);
}

static void test_err_names(void **state)
{
	(void)state;
	for (int i = 0; i < ERR_KIND_COUNT; i++) {
		assert_non_null(err_kind_name(i));
		for (int j = 0; j < i; j++)
			assert_string_not_equal(err_kind_name(i), err_kind_name(j));
	}
	assert_string_equal(err_kind_name(ERR_NOT_FOUND), "not_found");
	assert_string_equal(err_kind_name(ERR_KIND_COUNT), "unknown");
}

static void test_list(void **state)
{
	struct list l = {0};

	(void)state;
	for (int i = 0; i < 100; i++) {
		char text[16];

		snprintf(text, sizeof(text), "%d", i);
		list_add(&l, text);
		assert_null(l.items[l.count]);
	}
	assert_int_equal(l.count, 100);
	assert_string_equal(l.items[99], "99");
	list_done(&l);
	assert_int_equal(l.count, 0);
	assert_null(l.items);
	list_done(&l);
}

static void test_auto(void **state)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC), kept;

	(void)state;
	{
		auto_close int scoped = fd;

		assert_true(fcntl(scoped, F_GETFD) >= 0);
	}
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	{
		auto_close int scoped = open("/dev/null", O_RDONLY | O_CLOEXEC);
		auto_free char *s = str_copy("x"), *mine = take_ptr(s);

		assert_null(s);
		assert_string_equal(mine, "x");
		kept = take_fd(&scoped);
		assert_int_equal(scoped, -1);
	}
	assert_true(fcntl(kept, F_GETFD) >= 0);
	close_fd(&kept);
	assert_int_equal(kept, -1);
	close_fd(&kept);
}

static void test_strings(void **state)
{
	auto_free char *s = str_format("%s-%d", "a", 1);

	(void)state;
	assert_string_equal(s, "a-1");
	assert_true(str_starts("abc", "ab"));
	assert_true(str_starts("abc", ""));
	assert_false(str_starts("ab", "abc"));
	assert_true(str_equal("", ""));
	assert_false(str_equal("a", "A"));
}

static void test_path_below(void **state)
{
	(void)state;
	assert_true(path_below("/a/b", "/a"));
	assert_true(path_below("/a", "/a"));
	assert_true(path_below("/a", "/"));
	assert_true(path_below("/", "/"));
	assert_false(path_below("/ab", "/a"));
	assert_false(path_below("/", "/a"));
	assert_false(path_below("/a", "/a/b"));
}

struct path_case {
	const char *in, *out; /* out NULL: refused */
};

static void test_link_leads_out(void **state)
{
	assert_true(path_link_leads_out("/a", 5));
	assert_true(path_link_leads_out("..", 0));
	assert_true(path_link_leads_out("../../a", 1));
	/* The name may be a link itself. */
	assert_true(path_link_leads_out("a/..", 5));
	assert_true(path_link_leads_out("../a/./../b", 5));
	assert_false(path_link_leads_out("../a", 1));
	assert_false(path_link_leads_out("./.././a/b", 1));
	assert_false(path_link_leads_out("..a/b..", 0));
}

static void test_path_clean(void **state)
{
	static const struct path_case cases[] = {
		{"/", "/"},	      {"//", "/"},	 {"/.", "/"},
		{"/a", "/a"},	      {"/a/", "/a"},	 {"//a//b/", "/a/b"},
		{"/a/./b/.", "/a/b"}, {"/...", "/..."},	 {"/..a/a..", "/..a/a.."},
		{"", NULL},	      {"a", NULL},	 {"./a", NULL},
		{"/..", NULL},	      {"/a/../b", NULL}, {"/a/..", NULL},
	};
	char out[16], small[4];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_int_equal(path_clean(cases[i].in, out, sizeof(out)), cases[i].out != NULL);
		if (cases[i].out)
			assert_string_equal(out, cases[i].out);
	}
	assert_true(path_clean("/ab", small, sizeof(small)));
	assert_string_equal(small, "/ab");
	assert_false(path_clean("/abc", small, sizeof(small)));
	assert_false(path_clean("/a/b", small, sizeof(small)));
	assert_false(path_clean("/", small, 1));
}

static void assert_sanitised(const char *in, size_t len, const char *out)
{
	char buf[64];

	str_sanitise(buf, sizeof(buf), in, len);
	assert_string_equal(buf, out);
}

/* What nobody sees; each between two letters. */
static void test_sanitise_unseen(void **state)
{
	static const char *const unseen[] = {
		u8"a\u00adb",	  u8"a\u034fb",	    u8"a\u061cb",     u8"a\u115fb",
		u8"a\u180eb",	  u8"a\u200bb",	    u8"a\u200cb",     u8"a\u200db",
		u8"a\u200eb",	  u8"a\u2028b",	    u8"a\u202eb",     u8"a\u2060b",
		u8"a\u2064b",	  u8"a\u2069b",	    u8"a\u3164b",     u8"a\ufe00b",
		u8"a\ufe0fb",	  u8"a\ufeffb",	    u8"a\uffa0b",     u8"a\ufff9b",
		u8"a\U000e0001b", u8"a\U000e0041b", u8"a\U000e007fb", u8"a\U000e0100b",
		u8"a\U000e01efb", u8"a\U0001d173b",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(unseen); i++)
		assert_sanitised(unseen[i], strlen(unseen[i]), "a?b");
}

static void test_sanitise_joined(void **state)
{
	static const struct {
		const char *in, *out;
	} rows[] = {
		{u8"\U0001f469\u200d\U0001f4bb", NULL},	  /* a woman at a computer */
		{u8"\u2764\ufe0f\u200d\U0001f525", NULL}, /* a heart on fire */
		{u8"\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", NULL}, /* Persian */
		{u8"\U0001f469\u200d", u8"\U0001f469?"},
		{u8"\u200d\U0001f4bb", u8"?\U0001f4bb"},
		{u8"\U0001f469\u200d\u200d\U0001f4bb", u8"\U0001f469??\U0001f4bb"},
		{u8"\U0001f600\ufe0f\ufe0f\ufe0e",
		 u8"\U0001f600\ufe0f??"}, /* bytes behind a face */
		{u8"\U0001f600\U000e0100\U000e0101", u8"\U0001f600??"},
		{u8"AGENTS\u200d.md", "AGENTS?.md"},
		{u8"\u00e9\u200da", u8"\u00e9?a"},
		{u8"\u00e9\u200d\u202e", u8"\u00e9??"},
		{u8"\u4e00\u9fff\uac00\U0001f3f4", NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_sanitised(rows[i].in, strlen(rows[i].in),
				 rows[i].out ? rows[i].out : rows[i].in);
}

static void test_sanitise(void **state)
{
	char small[8], none = 'x';

	(void)state;
	assert_sanitised("plain", 5, "plain");
	assert_sanitised("a\0b", 3, "a?b");
	assert_sanitised("\033[31m\n\x7f", 7, "?[31m??");
	assert_sanitised("\xc3\xa9", 2, "\xc3\xa9");
	assert_sanitised("\xf0\x9f\x98\x80", 4, "\xf0\x9f\x98\x80");
	assert_sanitised("\xc2\x9b", 2, "?");		     /* a C1 control: CSI */
	assert_sanitised("\xe2\x80\xae", 3, "?");	     /* right-to-left override */
	assert_sanitised("\xe2\x81\xa6", 3, "?");	     /* isolate */
	assert_sanitised("\xe2\x80\x93", 3, "\xe2\x80\x93"); /* a dash is fine */
	assert_sanitised("\xff\xc3", 2, "??");
	str_sanitise(small, sizeof(small), "0123456789", 10);
	assert_true(strlen(small) < sizeof(small));
	assert_true(str_starts("0123456789", small));
	str_sanitise(&none, 0, "abc", 3);
	assert_int_equal(none, 'x');
}

struct utf8_case {
	const char *bytes;
	size_t len, expected;
};

static void test_utf8(void **state)
{
	static const struct utf8_case cases[] = {
		{"", 0, 0},
		{"a", 1, 1},
		{"\0", 1, 1},
		{"\x7f", 1, 1},
		{"\x80", 1, 0},
		{"\xc0\x80", 2, 0},
		{"\xc1\xbf", 2, 0},
		{"\xc2\x80", 2, 2},
		{"\xc2", 1, 0},
		{"\xc2\x41", 2, 0},
		{"\xe0\x80\x80", 3, 0},
		{"\xe0\xa0\x80", 3, 3},
		{"\xed\x9f\xbf", 3, 3},
		{"\xed\xa0\x80", 3, 0},
		{"\xef\xbf\xbf", 3, 3},
		{"\xef\xbf", 2, 0},
		{"\xf0\x80\x80\x80", 4, 0},
		{"\xf0\x90\x80\x80", 4, 4},
		{"\xf4\x8f\xbf\xbf", 4, 4},
		{"\xf4\x90\x80\x80", 4, 0},
		{"\xf5\x80\x80\x80", 4, 0},
		{"\xff", 1, 0},
		{"\xf0\x9f\x98", 3, 0},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if (utf8_sequence(cases[i].bytes, cases[i].len) != cases[i].expected)
			fail_msg("case %zu", i);
}

struct number_case {
	const char *text;
	uint64_t value;
};

typedef int parser(const char *s, uint64_t *ret, struct err *e);

static void check_good(parser *parse, const struct number_case *cases, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct err e = {0};
		uint64_t n = 0;

		if (parse(cases[i].text, &n, &e) < 0 || n != cases[i].value)
			fail_msg("'%s' gave %llu: %s", cases[i].text, (unsigned long long)n, e.msg);
	}
}

static void check_bad(parser *parse, const char *const *cases, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct err e = {0};
		uint64_t n = 42;

		if (parse(cases[i], &n, &e) == 0)
			fail_msg("'%s' was taken as %llu", cases[i], (unsigned long long)n);
		assert_int_equal(e.kind, ERR_INVALID);
		assert_int_equal(n, 42);
	}
}

/* Refused by each of the four. */
static const char *const never[] = {
	"",   " ",   "-1",   "+1",    "1 ",
	" 1", "1,5", "0x10", "1e3",   "ten",
	".",  ".5",  "1.",   "1..2",  "1.2.3",
	"--", "\n1", "1\n",  "1\xff", "99999999999999999999999999",
};

static void test_parse_rate(void **state)
{
	static const struct number_case good[] = {
		{"100Mbit", 12500000}, {"10MB", 10000000}, {"1kbit", 125}, {"1.5Kbit", 187},
		{"2Gbit", 250000000},  {"1M", 1 << 20},	   {"64K", 65536}, {"1000", 1000},
		{"1GB", 1000000000},   {"0.5KB", 500},
	};
	static const char *const bad[] = {"", "Mbit", "1Mb", "1mbit/s", "-1Mbit", "1 Mbit", "1e6"};

	(void)state;
	check_good(parse_rate, good, ARRAY_LEN(good));
	check_bad(parse_rate, bad, ARRAY_LEN(bad));
}

static void test_parse_size(void **state)
{
	static const struct number_case good[] = {
		{"0", 0},	   {"1", 1},	       {"4096", 4096},
		{"1K", 1024},	   {"1k", 1024},       {"512M", 512 << 20},
		{"1G", 1 << 30},   {"2T", 2ULL << 40}, {"1.5K", 1536},
		{"0.5G", 1 << 29}, {"1MiB", 1 << 20},  {"1t", 1ULL << 40},
		{"007", 7},	   {"0.0001", 0},      {"1.9999", 1},
	};
	static const char *const bad[] = {"12Q", "1KB", "1MM",	     "1 M",
					  "M",	 "1Ki", "20000000T", "99999999999999999T"};

	(void)state;
	check_good(parse_size, good, ARRAY_LEN(good));
	check_bad(parse_size, bad, ARRAY_LEN(bad));
	check_bad(parse_size, never, ARRAY_LEN(never));
}

static void test_parse_time(void **state)
{
	static const struct number_case good[] = {
		{"500ms", 500},	 {"60s", 60000}, {"60", 60000}, {"1.5s", 1500}, {"5m", 300000},
		{"2h", 7200000}, {"0.5ms", 0},	 {"0.25", 250}, {"0", 0},
	};
	static const char *const bad[] = {
		"1d", "1min", "5 m", "1S", "ms", "1m30s", "9999999999999999h"};

	(void)state;
	check_good(parse_time, good, ARRAY_LEN(good));
	check_bad(parse_time, bad, ARRAY_LEN(bad));
	check_bad(parse_time, never, ARRAY_LEN(never));
}

static void test_parse_count_and_milli(void **state)
{
	static const struct number_case counts[] = {{"0", 0}, {"256", 256}, {"4194304", 4194304}};
	static const struct number_case millis[] = {
		{"1", 1000}, {"1.5", 1500}, {"0.25", 250}, {"0.0009", 0}, {"2.0", 2000},
	};
	static const char *const bad[] = {"1.0", "1K", "5s"};
	static const char *const bad_milli[] = {"1K", "5s", "50%"};

	(void)state;
	check_good(parse_count, counts, ARRAY_LEN(counts));
	check_bad(parse_count, bad, ARRAY_LEN(bad));
	check_bad(parse_count, never, ARRAY_LEN(never));
	check_good(parse_milli, millis, ARRAY_LEN(millis));
	check_bad(parse_milli, bad_milli, ARRAY_LEN(bad_milli));
	check_bad(parse_milli, never, ARRAY_LEN(never));
}

static void test_utc_text(void **state)
{
	static const struct {
		uint64_t seconds;
		uint32_t ns;
		int digits;
		const char *text;
	} rows[] = {
		{0, 0, 0, "1970-01-01T00:00:00Z"},
		{1700000000, 987654321, 3, "2023-11-14T22:13:20.987Z"},
		{1700000000, 1000, 6, "2023-11-14T22:13:20.000001Z"},
		{1700000000, 5, 9, "2023-11-14T22:13:20.000000005Z"},
		{UINT64_MAX / 2, 0, 0, ""},
	};
	char text[UTC_TEXT];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_string_equal(utc_text(rows[i].seconds, rows[i].ns, rows[i].digits, text),
				    rows[i].text);
}

static void test_glob(void **state)
{
	static const struct {
		const char *pattern, *path;
		bool matches;
	} rows[] =
		{
			{"*.c", "a/b.c", true},	     {"a/*.c", "a/b/c.c", false},
			{"a/**/c.c", "a/c.c", true}, {"a/**/c.c", "a/x/y/c.c", true},
			{"**", "x/y", true},	     {"[a-c]?", "b1", true},
			{"[!a-c]?", "b1", false},    {"[]x]", "]", true},
			{"a\\*", "a*", true},	     {"a\\*", "ab", false},
			{"?", "/", false},	     {"", "", true},
			{"[", "a", false},	     {"**/*.py", "x.py", true},
			{"[x", "[x", true},	     {"[[:digit:]_]", "7", true},
			{"[[:digit:]_]", "_", true}, {"[![:digit:]]", "7", false},
			{"[[:none:]]", "n", false},  {"*", ".x", true},
		},
	  names[] = {
		  {"*", "a", true},	{"*", ".a", false},	 {".*", ".a", true},
		  {"\\.*", ".a", true}, {"?a", ".a", false},	 {"[.]a", ".a", false},
		  {"a*", "a.b", true},	{"*.[ch]", "x.c", true},
	  };
	char stars[200], as[2000];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_int_equal(glob_match(rows[i].pattern, rows[i].path, false), rows[i].matches);
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		assert_int_equal(glob_match_name(names[i].pattern, names[i].path),
				 names[i].matches);
	assert_true(glob_match("README*", "readme.md", true));
	/* Bounded, whatever it is. */
	for (size_t i = 0; i + 1 < sizeof(stars); i++)
		stars[i] = i % 2 ? 'a' : '*';
	stars[sizeof(stars) - 1] = '\0';
	memset(as, 'a', sizeof(as));
	as[sizeof(as) - 2] = 'b';
	as[sizeof(as) - 1] = '\0';
	glob_match(stars, as, false);
	auto_free char *deep = malloc(400001), *set = malloc(100001);
	memset(deep, '*', 400000);
	memset(set, ':', 100000);
	for (size_t i = 0; i < 100000; i += 2)
		set[i] = '[';
	deep[400000] = set[100000] = '\0';
	assert_false(glob_match_name(deep, "a"));
	assert_false(glob_match_name(set, "a"));
}

static int open_fds(void)
{
	int count = 0;

	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void test_fd_message(void **state)
{
	int pair[2], sent[3], got[4], before;
	char text[4] = "";

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	for (size_t i = 0; i < ARRAY_LEN(sent); i++)
		sent[i] = fcntl(pair[0], F_DUPFD_CLOEXEC, 3);
	before = open_fds();
	assert_int_equal(fd_message_send(pair[0], "abc", 4, sent, 3, 0), 0);
	assert_int_equal(fd_message_receive(pair[1], text, sizeof(text), got, 4, 0), 4);
	assert_string_equal(text, "abc");
	assert_int_equal(got[3], -1);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(fcntl(got[i], F_GETFD), FD_CLOEXEC);
		close_fd(&got[i]);
	}
	/* Too many descriptors, or too long: refused, and nothing stays open. */
	assert_int_equal(fd_message_send(pair[0], "abc", 4, sent, 3, 0), 0);
	assert_int_equal(fd_message_receive(pair[1], text, sizeof(text), got, 2, 0), -1);
	assert_int_equal(errno, EBADMSG);
	assert_int_equal(got[0], -1);
	assert_int_equal(fd_message_send(pair[0], "abc", 4, sent, 1, 0), 0);
	assert_int_equal(fd_message_receive(pair[1], text, 3, got, 1, 0), -1);
	assert_int_equal(errno, EBADMSG);
	/* An empty message reads like the end, and its descriptors are closed. */
	assert_int_equal(fd_message_send(pair[0], "", 0, sent, 3, 0), 0);
	assert_int_equal(fd_message_receive(pair[1], text, 3, got, 4, 0), 0);
	assert_int_equal(open_fds(), before);
	assert_int_equal(fd_message_receive(pair[1], text, 3, got, 1, MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(fd_message_send(pair[0], "a", 1, sent, FD_MESSAGE_MAX + 1, 0), -1);
	close(pair[0]);
	for (size_t i = 0; i < ARRAY_LEN(sent); i++)
		close(sent[i]);
	assert_int_equal(fd_message_receive(pair[1], text, 3, got, 1, 0), 0);
	close(pair[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_utc_text),
		cmocka_unit_test(test_glob),
		cmocka_unit_test(test_fd_message),
		cmocka_unit_test(test_err),
		cmocka_unit_test(test_err_long),
		cmocka_unit_test(test_err_names),
		cmocka_unit_test(test_list),
		cmocka_unit_test(test_auto),
		cmocka_unit_test(test_strings),
		cmocka_unit_test(test_path_below),
		cmocka_unit_test(test_link_leads_out),
		cmocka_unit_test(test_path_clean),
		cmocka_unit_test(test_sanitise),
		cmocka_unit_test(test_sanitise_unseen),
		cmocka_unit_test(test_sanitise_joined),
		cmocka_unit_test(test_utf8),
		cmocka_unit_test(test_parse_size),
		cmocka_unit_test(test_parse_rate),
		cmocka_unit_test(test_parse_time),
		cmocka_unit_test(test_parse_count_and_milli),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
