/* The reader of archives, with archives that nobody but an attacker would write. Nothing is extracted. */
#include "guest/files/tar_tree.h"

#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const char zeros[TAR_BLOCK * 2];

/* A header; returns its place, for seal(). */
static char *add_header(struct buf *b, char type, const char *name, unsigned mode, unsigned size)
{
	char h[TAR_BLOCK] = "";

	snprintf(h, 100, "%s", name);
	snprintf(h + 100, 8, "%07o", mode);
	snprintf(h + 124, 12, "%011o", size);
	snprintf(h + 136, 12, "%011o", 1);
	h[156] = type;
	memcpy(h + 257, "ustar\00000", 8);
	snprintf(h + 329, 8, "%07o", 1);
	snprintf(h + 337, 8, "%07o", 3);
	buf_add(b, h, sizeof(h));
	return buf_head(b) + b->len - TAR_BLOCK;
}

/* Its checksum. */
static void seal(char *h)
{
	unsigned sum = 0;

	memset(h + 148, ' ', 8);
	for (size_t i = 0; i < TAR_BLOCK; i++)
		sum += (unsigned char)h[i];
	snprintf(h + 148, 8, "%06o", sum);
}

static void add_data(struct buf *b, const char *bytes, size_t len)
{
	buf_add(b, bytes, len);
	buf_add(b, zeros, (TAR_BLOCK - len % TAR_BLOCK) % TAR_BLOCK);
}

/* An extended header of these records, "KEY=VALUE" each. */
static void add_pax(struct buf *b, const char *const *records)
{
	char text[1024] = "", line[256];
	size_t len;

	for (; *records; records++) {
		len = strlen(*records) + 5; /* two digits, a blank, a newline: all are short */
		len = strlen(*records) + (len > 99 ? 5 : 4);
		snprintf(line, sizeof(line), "%zu %s\n", len, *records);
		assert_int_equal(strlen(line), len);
		strcat(text, line);
	}
	seal(add_header(b, 'x', "pax", 0644, (unsigned)strlen(text)));
	add_data(b, text, strlen(text));
}

static ssize_t read_buf(void *arg, void *bytes, size_t len)
{
	struct buf *b = arg;
	size_t n = len < b->len ? len : b->len;

	if (n)
		memcpy(bytes, buf_head(b), n);
	buf_drop(b, n);
	return (ssize_t)n;
}

/* Judges all of it and frees it; what was refused, and why. */
static const char *judge(struct buf *b, bool strict)
{
	static struct err e;
	struct tar_in in = {.read = read_buf, .arg = b};
	struct tar_extract x = {.root = -1, .strict = strict, .dry = true};
	int rc;

	e = (struct err){0};
	buf_add(b, zeros, sizeof(zeros));
	rc = tar_extract(&x, &in, &e);
	buf_done(b);
	return rc < 0 ? e.msg : "";
}

static void assert_says(const char *said, const char *what)
{
	if (*what ? !strstr(said, what) : *said)
		fail_msg("'%s' instead of '%s'", said, what);
}

static void test_strict(void **state)
{
	static const struct {
		char type;
		unsigned mode;
		const char *says;
	} rows[] = {
		{'0', 0755, ""},	{'5', 01777, ""},	{'0', 04755, "set-id"},
		{'0', 02755, "set-id"}, {'5', 02755, "set-id"}, {'3', 0644, "is a device"},
		{'4', 0644, "device"},	{'V', 0644, "unknown"}, {'6', 0644, ""},
		{'2', 0777, ""},	{'0', 06755, "set-id"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		for (int strict = 0; strict < 2; strict++) {
			struct buf b = {0};

			seal(add_header(&b, rows[i].type, "name", rows[i].mode, 0));
			assert_says(judge(&b, strict), strict ? rows[i].says : "");
		}
}

static void test_attributes(void **state)
{
	static const char *const names[] = {"user.ok", "security.capability",
					    "trusted.overlay.opaque", "system.posix_acl_access"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		char record[128];
		struct buf b = {0};

		snprintf(record, sizeof(record), "SCHILY.xattr.%s=value", names[i]);
		add_pax(&b, (const char *const[]){record, NULL});
		seal(add_header(&b, '0', "name", 0644, 0));
		assert_says(judge(&b, true), i ? names[i] : "");
	}
}

static void test_checksum(void **state)
{
	struct buf b = {0};
	char *h = add_header(&b, '0', "name", 0644, 0);

	(void)state;
	seal(h);
	h[0] = 'N';
	assert_says(judge(&b, false), "a header");
}

/* A map of holes: COUNT, then offset and size of each range of data. */
static void test_maps(void **state)
{
	static const struct {
		const char *map, *says;
	} rows[] = {
		{"1\n0\n10\n", ""},
		{"2\n0\n5\n90\n5\n", ""},
		{"1\n95\n10\n", "map of holes"},		   /* ends behind the end */
		{"1\n101\n10\n", "map of holes"},		   /* begins there */
		{"2\n50\n5\n0\n5\n", "map of holes"},		   /* backwards */
		{"2\n0\n10\n5\n0\n", "map of holes"},		   /* over each other */
		{"1\n0\n11\n", "map of holes"},			   /* more than there is */
		{"99999999\n", "map of holes"},			   /* too many */
		{"1\n0\n999999999999999999999\n", "map of holes"}, /* no number */
		{"1\n18446744073709551615\n10\n", "map of holes"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct buf b = {0};

		add_pax(&b, (const char *const[]){"GNU.sparse.major=1", "GNU.sparse.minor=0",
						  "GNU.sparse.name=sparse",
						  "GNU.sparse.realsize=100", NULL});
		seal(add_header(&b, '0', "name", 0644, TAR_BLOCK + 10));
		add_data(&b, rows[i].map, strlen(rows[i].map));
		add_data(&b, "0123456789", 10);
		assert_says(judge(&b, false), rows[i].says);
	}
}

static void test_sizes(void **state)
{
	struct buf b = {0};

	(void)state;
	seal(add_header(&b, 'x', "pax", 0644, TAR_MAX_PAX + 1));
	assert_says(judge(&b, false), "an extended header is too large");
	seal(add_header(&b, '0', "name", 0644, 4000));
	assert_says(judge(&b, false), "ends too early");
	seal(add_header(&b, '0', "../name", 0644, 0));
	assert_says(judge(&b, false), "leads out");
}

/* Headers count as well, since a layer keeps them. */
static void test_bytes_in_all(void **state)
{
	struct buf b = {0};
	struct err e = {0};
	struct tar_in in = {.read = read_buf, .arg = &b, .most = 4 * TAR_BLOCK};
	struct tar_extract x = {.root = -1, .dry = true};

	(void)state;
	seal(add_header(&b, 'g', "pax", 0644, TAR_BLOCK));
	buf_add(&b, zeros, TAR_BLOCK);
	buf_add(&b, zeros, sizeof(zeros));
	assert_int_equal(tar_extract(&x, &in, &e), 0);
	buf_done(&b);
	in = (struct tar_in){.read = read_buf, .arg = &b, .most = 4 * TAR_BLOCK};
	for (int i = 0; i < 3; i++) {
		seal(add_header(&b, 'g', "pax", 0644, TAR_BLOCK));
		buf_add(&b, zeros, TAR_BLOCK);
	}
	assert_int_equal(tar_extract(&x, &in, &e), -1);
	assert_string_equal(e.msg, "the archive has too many bytes");
	buf_done(&b);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_strict),	 cmocka_unit_test(test_attributes),
		cmocka_unit_test(test_checksum), cmocka_unit_test(test_maps),
		cmocka_unit_test(test_sizes),	 cmocka_unit_test(test_bytes_in_all),
	};

	return cmocka_run_group_tests_name("tar", tests, NULL, NULL);
}
