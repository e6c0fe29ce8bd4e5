/* The one matcher of file name patterns. Its work is bounded, so that hostile patterns cost little. */
#include "base/glob.h"

#include <ctype.h>

#define STEPS 200000
#define DEPTH 256   /* stars inside one another */
#define CLASS_MAX 8 /* letters of a class name, and one more */

struct matcher {
	bool nocase;
	unsigned steps, depth;
};

static int fold(const struct matcher *m, char c)
{
	return m->nocase ? tolower((unsigned char)c) : (unsigned char)c;
}

static bool is_in_class(const char *name, size_t len, int c)
{
	static const struct {
		const char *name;
		int (*holds)(int c);
	} rows[] = {{"alnum", isalnum}, {"alpha", isalpha}, {"blank", isblank},
		    {"cntrl", iscntrl}, {"digit", isdigit}, {"graph", isgraph},
		    {"lower", islower}, {"print", isprint}, {"punct", ispunct},
		    {"space", isspace}, {"upper", isupper}, {"xdigit", isxdigit}};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (strlen(rows[i].name) == len && memcmp(rows[i].name, name, len) == 0)
			return rows[i].holds(c) != 0;
	return false;
}

/* The end of the class name at p ("[:name:]"), or NULL. */
static const char *class_end_of(const char *p)
{
	for (size_t i = 2; str_starts(p, "[:") && p[i] && i < 2 + CLASS_MAX; i++)
		if (p[i] == ':' && p[i + 1] == ']')
			return p + i;
	return NULL;
}

/* A bracket expression at p (behind '['); its end goes to ret_end, NULL if there is none. */
static bool match_set(struct matcher *m, const char *p, char c, const char **ret_end)
{
	bool negated = *p == '!' || *p == '^', found = false, first = true;
	int wanted = fold(m, c);

	p += negated;
	for (; *p && (*p != ']' || first); first = false) {
		const char *class_end = class_end_of(p);
		int low = fold(m, *p), high = low;

		m->steps++;
		if (class_end) {
			found |= is_in_class(p + 2, (size_t)(class_end - p - 2), (unsigned char)c);
			p = class_end + 2;
			continue;
		}
		p++;
		if (p[0] == '-' && p[1] && p[1] != ']') {
			high = fold(m, p[1]);
			p += 2;
		}
		found = found || (wanted >= low && wanted <= high);
	}
	*ret_end = *p ? p + 1 : NULL;
	return found != negated;
}

static bool match_from(struct matcher *m, const char *p, const char *s);

/* The rest of a pattern behind a star: one call deeper, within bounds. */
static bool match_rest(struct matcher *m, const char *p, const char *s)
{
	bool matches = ++m->depth <= DEPTH && match_from(m, p, s);

	m->depth--;
	return matches;
}

static bool match_from(struct matcher *m, const char *p, const char *s)
{
	for (; *p; p++, s++) {
		const char *end = NULL;
		bool in_set;

		if (++m->steps > STEPS)
			return false;
		if (p[0] == '*') {
			bool deep = p[1] == '*';

			p += deep ? 2 : 1;
			/* "a/ ** /b" also is "a/b". */
			if (deep && *p == '/' && match_rest(m, p + 1, s))
				return true;
			for (;; s++) {
				if (match_rest(m, p, s))
					return true;
				if (!*s || (!deep && *s == '/') || m->steps > STEPS)
					return false;
			}
		}
		if (!*s || (*s == '/' && *p != '/'))
			return false;
		in_set = *p == '[' && match_set(m, p + 1, *s, &end);
		if (end) { /* a '[' without its ']' stands for itself */
			if (!in_set)
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
	return match_from(&m, pattern, path);
}

bool glob_match_name(const char *pattern, const char *name)
{
	struct matcher m = {0};

	if (name[0] == '.' && pattern[pattern[0] == '\\'] != '.')
		return false;
	return match_from(&m, pattern, name);
}
