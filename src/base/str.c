#include "base/str.h"

#include "base/auto.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *must_alloc(void *p)
{
	static const char text[] = "cloche: out of memory\n";

	if (p)
		return p;
	if (write(2, text, sizeof(text) - 1) < 0)
		_exit(125);
	_exit(125);
}

char *str_copy(const char *s)
{
	return must_alloc(strdup(s));
}

char *str_format(const char *fmt, ...)
{
	char *s = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&s, fmt, ap) < 0)
		s = NULL;
	va_end(ap);
	return must_alloc(s);
}

bool str_starts(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_equal(const char *a, const char *b)
{
	return strcmp(a, b) == 0;
}

bool path_below(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	if (str_equal(dir, "/"))
		return true;
	return strncmp(path, dir, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

bool path_is_inside(const char *path)
{
	if (!*path || *path == '/')
		return false;
	for (const char *at = path; at;) {
		size_t len = strcspn(at, "/");

		if (len == 0 || (len == 1 && at[0] == '.') ||
		    (len == 2 && strncmp(at, "..", 2) == 0))
			return false;
		at = at[len] ? at + len + 1 : NULL;
	}
	return true;
}

bool path_clean(const char *path, char *dst, size_t size)
{
	size_t out = 0, n;

	if (path[0] != '/' || size < 2)
		return false;
	for (; *path; path += n) {
		path += strspn(path, "/");
		n = strcspn(path, "/");
		if (n == 0 || (n == 1 && path[0] == '.'))
			continue;
		if ((n == 2 && path[0] == '.' && path[1] == '.') || out + n + 2 > size)
			return false;
		dst[out++] = '/';
		memcpy(dst + out, path, n);
		out += n;
	}
	if (out == 0)
		dst[out++] = '/';
	dst[out] = '\0';
	return true;
}

/* Control characters of one or two bytes, and what turns or breaks lines in a terminal. */
static bool is_unshowable(const char *s, size_t n)
{
	const unsigned char *p = (const unsigned char *)s;

	if (n == 1)
		return p[0] < 0x20 || p[0] == 0x7f;
	if (n == 2)
		return p[0] == 0xc2 && p[1] < 0xa0;
	/* U+200B..U+200F, U+2028..U+202E, U+2066..U+2069: zero width, separators, direction */
	if (n == 3 && p[0] == 0xe2 && p[1] == 0x80)
		return (p[2] >= 0x8b && p[2] <= 0x8f) || (p[2] >= 0xa8 && p[2] <= 0xae);
	return n == 3 && p[0] == 0xe2 && p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9;
}

void str_sanitise(char *dst, size_t size, const char *src, size_t len)
{
	size_t out = 0;

	for (size_t i = 0; i < len && out + 5 < size;) {
		size_t n = utf8_sequence(src + i, len - i);

		if (n == 0 || is_unshowable(src + i, n)) {
			dst[out++] = '?';
			i += n ? n : 1;
			continue;
		}
		memcpy(dst + out, src + i, n);
		out += n;
		i += n;
	}
	if (size)
		dst[out] = '\0';
}

unsigned str_distance(const char *a, const char *b)
{
	unsigned row[40];
	size_t n = strlen(b);

	if (strlen(a) >= ARRAY_LEN(row) || n >= ARRAY_LEN(row))
		return 99;
	for (size_t j = 0; j <= n; j++)
		row[j] = (unsigned)j;
	for (size_t i = 1; a[i - 1]; i++) {
		unsigned diagonal = row[0];

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= n; j++) {
			unsigned cost = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			if (row[j] + 1 < cost)
				cost = row[j] + 1;
			if (row[j - 1] + 1 < cost)
				cost = row[j - 1] + 1;
			row[j] = cost;
		}
	}
	return row[n];
}
