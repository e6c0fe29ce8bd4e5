/* Streams of keys/stream.h: what was changed, cut off or closed with another key does not open. */
#include "keys/stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <sodium.h>
#include <sys/mman.h>

static const unsigned char key[SEALED_KEY] = {1}, other[SEALED_KEY] = {2};

static int write_stream(size_t size, size_t step)
{
	int fd = memfd_create("stream", MFD_CLOEXEC);
	struct err e = {0};
	struct sealed *s = sealed_begin(fd, key, "head", 4, &e);
	char *bytes = malloc(size + 1);

	for (size_t i = 0; i < size; i++)
		bytes[i] = (char)(i * 7 % 251);
	assert_non_null(s);
	for (size_t at = 0; at < size; at += step)
		assert_int_equal(
			sealed_write(s, bytes + at, step < size - at ? step : size - at, &e), 0);
	assert_int_equal(sealed_end(s, &e), 0);
	sealed_free(s);
	free(bytes);
	return fd;
}

/* How many bytes come out; -1: an error before the end. */
static ssize_t read_stream(int fd, const unsigned char *with, const char *head, struct err *e)
{
	struct sealed *s;
	char bytes[1000];
	ssize_t n = -1, all = 0;

	lseek(fd, 0, SEEK_SET);
	s = sealed_open(fd, with, head, 4, e);
	while (s && (n = sealed_read(s, bytes, sizeof(bytes), e)) > 0) {
		for (ssize_t i = 0; i < n; i++)
			assert_int_equal(bytes[i], (char)((size_t)(all + i) * 7 % 251));
		all += n;
	}
	sealed_free(s);
	return n < 0 ? -1 : all;
}

static void test_there_and_back(void **state)
{
	static const size_t sizes[] = {0, 1, 65535, 65536, 65537, 200000, 131072};
	struct err e = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
		for (size_t step = 100; step <= 200000; step *= 10) {
			int fd = write_stream(sizes[i], step);

			assert_int_equal(read_stream(fd, key, "head", &e), sizes[i]);
			close(fd);
		}
}

static void test_another_key_or_head(void **state)
{
	int fd = write_stream(1000, 1000);
	struct err e = {0};

	(void)state;
	assert_int_equal(read_stream(fd, other, "head", &e), -1);
	assert_int_equal(e.kind, ERR_DENIED);
	assert_int_equal(read_stream(fd, key, "haed", &e), -1);
	close(fd);
}

static void test_a_flipped_bit(void **state)
{
	int fd = write_stream(70000, 70000);
	off_t size = lseek(fd, 0, SEEK_END);
	struct err e = {0};
	unsigned char c;

	(void)state;
	for (off_t at = 0; at < size; at += at < 60 || at > size - 60 ? 1 : 997) {
		assert_int_equal(pread(fd, &c, 1, at), 1);
		c ^= 4;
		assert_int_equal(pwrite(fd, &c, 1, at), 1);
		assert_int_equal(read_stream(fd, key, "head", &e), -1);
		c ^= 4;
		assert_int_equal(pwrite(fd, &c, 1, at), 1);
	}
	assert_int_equal(read_stream(fd, key, "head", &e), 70000);
	close(fd);
}

static void test_cut_off_or_longer(void **state)
{
	static const off_t cuts[] = {0, 1, 23, 24, 25, 40, 41, 65536, 24 + 65553, 70040};
	struct err e = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cuts); i++) {
		int fd = write_stream(70000, 70000);

		assert_int_equal(ftruncate(fd, cuts[i]), 0);
		assert_int_equal(read_stream(fd, key, "head", &e), -1);
		close(fd);
	}
	for (size_t size = 65535; size <= 65537; size++) {
		int fd = write_stream(size, size);

		lseek(fd, 0, SEEK_END);
		assert_int_equal(write(fd, "x", 1), 1);
		assert_int_equal(read_stream(fd, key, "head", &e), -1);
		close(fd);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_there_and_back),
		cmocka_unit_test(test_another_key_or_head),
		cmocka_unit_test(test_a_flipped_bit),
		cmocka_unit_test(test_cut_off_or_longer),
	};

	if (sodium_init() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
