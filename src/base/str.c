#include "base/base.h"

#include <stdarg.h>

void *must_alloc(void *p)
{
	static const char text[] = "cloche: out of memory\n";

	if (p)
		return p;
	if (write(2, text, sizeof(text) - 1) < 0)
		_exit(125);
	_exit(125);
}

void *array_room(void *items, size_t count, size_t *room, size_t item_size)
{
	if (count < *room)
		return items;
	*room = *room ? *room * 2 : 16;
	return must_alloc(reallocarray(items, *room, item_size));
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

bool str_has_end(const char *text, size_t size)
{
	return memchr(text, '\0', size) != NULL;
}

void str_append(char *text, size_t size, const char *between, const char *fmt, ...)
{
	size_t len = strlen(text);
	va_list ap;

	if (len)
		len += (size_t)snprintf(text + len, size - len, "%s", between);
	if (len >= size)
		return;
	va_start(ap, fmt);
	vsnprintf(text + len, size - len, fmt, ap);
	va_end(ap);
}

int str_hex_digit(char c)
{
	static const char digits[] = "0123456789abcdef0123456789ABCDEF";
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) % 16 : -1;
}

bool str_only(const char *s, const char *letters, size_t min, size_t max)
{
	size_t len = strlen(s);

	return len >= min && len <= max && strspn(s, letters) == len;
}

bool str_is_printable(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			return false;
	return true;
}

bool path_below(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	if (str_equal(dir, "/"))
		return true;
	return strncmp(path, dir, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

bool path_link_leads_out(const char *target, unsigned depth)
{
	unsigned ups = 0;
	bool has_name = false;

	if (target[0] == '/')
		return true;
	while (*target) {
		size_t len = strcspn(target, "/");
		bool is_up = len == 2 && memcmp(target, "..", 2) == 0;

		if (is_up && (has_name || ++ups > depth))
			return true;
		has_name |= !is_up && len > 0 && !(len == 1 && target[0] == '.');
		target += len + (target[len] == '/');
	}
	return false;
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
