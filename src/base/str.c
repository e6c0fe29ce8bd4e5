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

/*
 * Characters that a terminal obeys, and characters that are invisible: they reverse text, make names look
 * alike, or hide words for a model from the reader. Unicode calls most of them default-ignorable.
 */
static const struct {
	uint32_t first, last;
} unshowable[] = {
	{0x0000, 0x001f},   /* control characters */
	{0x007f, 0x009f},   /* more of them; U+009B begins escape sequences */
	{0x00ad, 0x00ad},   /* soft hyphen */
	{0x034f, 0x034f},   /* grapheme joiner */
	{0x061c, 0x061c},   /* Arabic letter mark: direction */
	{0x115f, 0x1160},   /* Hangul fillers: blank letters */
	{0x17b4, 0x17b5},   /* Khmer vowels that are not drawn */
	{0x180b, 0x180f},   /* Mongolian selectors and separator */
	{0x200b, 0x200f},   /* zero width; direction. Two of them join letters, see joins() */
	{0x2028, 0x202e},   /* separators of lines and paragraphs; direction */
	{0x2060, 0x206f},   /* word joiner, operators that are not drawn, isolates */
	{0x3164, 0x3164},   /* Hangul filler */
	{0xfe00, 0xfe0f},   /* variation selectors. Two of them choose the style of emoji */
	{0xfeff, 0xfeff},   /* byte order mark */
	{0xffa0, 0xffa0},   /* Hangul filler, half width */
	{0xfff0, 0xfffb},   /* annotations */
	{0x1bca0, 0x1bca3}, /* controls of shorthand */
	{0x1d173, 0x1d17a}, /* controls of musical notation */
	{0xe0000, 0xe0fff}, /* tags, which spell out ASCII unseen; more variation selectors */
};

static bool is_unshowable(uint32_t c)
{
	for (size_t i = 0; i < ARRAY_LEN(unshowable) && c >= unshowable[i].first; i++)
		if (c <= unshowable[i].last)
			return true;
	return false;
}

static bool is_joiner(uint32_t c)
{
	return c == 0x200c || c == 0x200d;
}

static bool is_style(uint32_t c)
{
	return c == 0xfe0e || c == 0xfe0f;
}

/*
 * Joiners and styles compose emoji, and words of Persian and Indian scripts. So one of each is allowed
 * behind a character that is not ASCII; a joiner needs such a character behind it, too. That is too little
 * to hide words in, and no name in ASCII gets a lookalike. Flags made of tags, and keycaps, are not shown.
 */
static bool joins(uint32_t before, uint32_t c, uint32_t after)
{
	if (before < 0x80 || is_joiner(before))
		return false;
	if (is_style(c))
		return !is_style(before);
	return is_joiner(c) && after >= 0x80 && !is_unshowable(after);
}

void str_sanitise(char *dst, size_t size, const char *src, size_t len)
{
	uint32_t before = 0; /* the last character that was kept */
	size_t out = 0;

	for (size_t i = 0; i < len && out + 5 < size;) {
		size_t n = utf8_sequence(src + i, len - i), next = i + (n ? n : 1);
		uint32_t c = utf8_value(src + i, n);
		uint32_t after = utf8_value(src + next, utf8_sequence(src + next, len - next));

		if (n > 0 && (!is_unshowable(c) || joins(before, c, after))) {
			memcpy(dst + out, src + i, n);
			out += n;
			before = c;
		} else {
			dst[out++] = '?';
			before = 0;
		}
		i = next;
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
