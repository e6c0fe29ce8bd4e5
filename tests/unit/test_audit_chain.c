/* Forged audit files, made with the chain itself: what verify must not believe. */
#include "audit/audit.h"
#include "audit/chain.h"
#include "base/buf.h"

#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct chain_key no_key;

/* verify refuses a file of these bytes, and says why. */
static void assert_refused(const struct buf *b, const char *why)
{
	char file[] = "/tmp/cloche-chain-XXXXXX", *files[] = {file};
	auto_close int fd = mkstemp(file);
	struct audit_verdict v;
	struct err e = {0};
	int rc;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, buf_head(b), b->len), b->len);
	rc = audit_verify(files, 1, NULL, NULL, &v, &e);
	unlink(file);
	assert_int_equal(rc, -1);
	if (!strstr(e.msg, why))
		fail_msg("'%s' is not in '%s'", why, e.msg);
}

/* Of several lines that are no records a repair explains the last one; the others are foreign. */
static void test_one_torn_line_at_a_time(void **state)
{
	struct audit_entry entry = {.who = "daemon", .what = "audit.repair", .verdict = "done"};
	char digest[CHAIN_HASH];
	struct buf b = {0};
	struct chain c;

	chain_init(&c, &no_key);
	chain_add(&c, &b, &(struct audit_entry){.who = "tok1"}, NULL);
	buf_add(&b, "foreign\ntorn\n", 13);
	chain_digest("torn", 4, digest);
	chain_add(&c, &b, &entry, digest);
	assert_refused(&b, "not a record");
	buf_done(&b);
}

/* Without a key anybody can make the hash of a changed record; the record behind it then does not fit. */
static void test_a_new_hash_does_not_help(void **state)
{
	struct buf b = {0};
	struct chain c, before;

	chain_init(&c, &no_key);
	before = c;
	chain_add(&c, &b, &(struct audit_entry){.who = "tok1"}, NULL);
	buf_done(&b);
	chain_add(&before, &b, &(struct audit_entry){.who = "tok2"}, NULL);
	chain_add(&c, &b, &(struct audit_entry){.who = "tok1"}, NULL);
	assert_refused(&b, "record 2 does not continue the one before it");
	buf_done(&b);
}

/* A log that was begun anew in the middle: its first record has an ancestor. */
static void test_the_first_record_has_no_ancestor(void **state)
{
	struct buf b = {0};
	struct chain c;

	chain_init(&c, &no_key);
	chain_digest("another log", 11, c.head);
	chain_add(&c, &b, &(struct audit_entry){.who = "tok1"}, NULL);
	assert_refused(&b, "the first record was changed");
	buf_done(&b);
}

/* The key itself is in the hash, not only its id; and no byte of a line is left out. */
static void test_the_hash_needs_the_whole_key(void **state)
{
	struct chain_view v;
	struct chain_key key = {.is_set = true, .id = "01234567"}, other;
	struct buf b = {0};
	struct chain c;
	size_t len;

	memset(key.bytes, 7, sizeof(key.bytes));
	chain_init(&c, &key);
	chain_add(&c, &b, &(struct audit_entry){.who = "tok1"}, NULL);
	len = b.len - 1;
	assert_true(chain_parse(buf_head(&b), len, &v));
	assert_int_equal(chain_check(&key, buf_head(&b), &v), CHAIN_GOOD);
	other = key;
	other.bytes[CHAIN_KEY - 1] ^= 1;
	assert_int_equal(chain_check(&other, buf_head(&b), &v), CHAIN_BAD);
	assert_false(chain_parse(buf_head(&b), len + 1, &v));
	assert_false(chain_parse(buf_head(&b), len - 1, &v));
	buf_done(&b);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_torn_line_at_a_time),
		cmocka_unit_test(test_a_new_hash_does_not_help),
		cmocka_unit_test(test_the_first_record_has_no_ancestor),
		cmocka_unit_test(test_the_hash_needs_the_whole_key),
	};

	if (sodium_init() < 0)
		return 1;
	return cmocka_run_group_tests_name("audit chain", tests, NULL, NULL);
}
