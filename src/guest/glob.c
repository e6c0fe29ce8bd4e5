#include "guest/glob.h"

#include <ctype.h>
#include <string.h>

#define STEPS 200000

struct matcher {
	bool nocase;
	unsigned steps;
};

static int fold(const struct matcher *m, char c)
{
	return m->nocase ? tolower((unsigned char)c) : (unsigned char)c;
}

/* A bracket expression at p (behind '['); its end goes to ret_end, NULL if it has none. */
static bool match_set(const struct matcher *m, const char *p, char c, const char **ret_end)
{
	bool negated = *p == '!' || *p == '^', found = false, first = true;
	int wanted = fold(m, c);

	p += negated;
	for (; *p && (*p != ']' || first); first = false) {
		int low = fold(m, *p++), high = low;

		if (p[0] == '-' && p[1] && p[1] != ']') {
			high = fold(m, p[1]);
			p += 2;
		}
		found = found || (wanted >= low && wanted <= high);
	}
	*ret_end = *p ? p + 1 : NULL;
	return found != negated;
}

static bool match(struct matcher *m, const char *p, const char *s)
{
	for (; *p; p++, s++) {
		const char *end;

		if (++m->steps > STEPS)
			return false;
		if (p[0] == '*') {
			bool deep = p[1] == '*';

			p += deep ? 2 : 1;
			/* "a/ ** /b" also is "a/b". */
			if (deep && *p == '/' && match(m, p + 1, s))
				return true;
			for (;; s++) {
				if (match(m, p, s))
					return true;
				if (!*s || (!deep && *s == '/') || m->steps > STEPS)
					return false;
			}
		}
		if (!*s || (*s == '/' && *p != '/'))
			return false;
		if (*p == '[') {
			if (!match_set(m, p + 1, *s, &end) || !end)
				return false;
			p = end - 1;
		} else if (*p != '?') {
			if (*p == '\\' && p[1])
				p++;
			if (fold(m, *p) != fold(m, *s))
				return false;
		}
	}
	return !*s;
}

bool glob_match(const char *pattern, const char *path, bool nocase)
{
	struct matcher m = {.nocase = nocase};
	const char *slash = strrchr(path, '/');

	if (!strchr(pattern, '/') && slash)
		path = slash + 1;
	return match(&m, pattern, path);
}
