/* Replaces variables. Work and size are bounded, since defaults may hold variables again. */
#include "image/build/expand.h"

#include <ctype.h>

#define RESULT_MAX (64u << 10)
#define DEPTH 8

struct expanding {
	const struct list *const *lists;
	bool keeps_quotes;
	struct buf out;
	struct err *e;
};

const char *variables_find(const struct list *const *lists, const char *name, size_t len)
{
	for (; *lists; lists++)
		for (size_t i = 0; i < (*lists)->count; i++) {
			const char *pair = (*lists)->items[i];

			if (strncmp(pair, name, len) == 0 && pair[len] == '=')
				return pair + len + 1;
		}
	return NULL;
}

static size_t name_length(const char *s)
{
	size_t n = 0;

	if (isdigit((unsigned char)*s))
		return 0;
	while (isalnum((unsigned char)s[n]) || s[n] == '_')
		n++;
	return n;
}

static int put(struct expanding *x, const char *s, size_t len)
{
	if (x->out.len + len > RESULT_MAX)
		return err_set(x->e, ERR_LIMIT, "a value is longer than 64 KB");
	buf_add(&x->out, s, len);
	return 0;
}

static int walk(struct expanding *x, const char *s, const char *end, unsigned depth);

/* The brace that closes what was opened before s, or NULL. */
static const char *closing_brace(const char *s, const char *end)
{
	for (unsigned open = 1; s < end; s++) {
		if (*s == '\\' && s + 1 < end)
			s++;
		else if (*s == '{')
			open++;
		else if (*s == '}' && --open == 0)
			return s;
	}
	return NULL;
}

/* Behind "${"; returns what follows the brace, or NULL. */
static const char *put_braced(struct expanding *x, const char *s, const char *end, unsigned depth)
{
	size_t len = name_length(s);
	const char *close = closing_brace(s, end), *rest = s + len, *value;
	bool counts_empty;

	if (!close || len == 0 || depth == DEPTH) {
		err_set(x->e, ERR_INVALID, "'${%.40s' is malformed", s);
		return NULL;
	}
	value = variables_find(x->lists, s, len);
	if (rest == close)
		return put(x, value ? value : "", value ? strlen(value) : 0) < 0 ? NULL : close + 1;
	counts_empty = *rest == ':';
	rest += counts_empty;
	if (*rest != '-' && *rest != '+') {
		err_set(x->e, ERR_INVALID, "'${%.40s': only :- and :+ are known here", s);
		return NULL;
	}
	if (value && counts_empty && !*value)
		value = NULL;
	if ((*rest == '+') == (value != NULL))
		return walk(x, rest + 1, close, depth + 1) < 0 ? NULL : close + 1;
	if (*rest == '-' && put(x, value, strlen(value)) < 0)
		return NULL;
	return close + 1;
}

/* At a '$'; returns what follows the variable, or NULL. */
static const char *put_variable(struct expanding *x, const char *s, const char *end, unsigned depth)
{
	size_t len = name_length(s + 1);
	const char *value;

	if (s[1] == '{')
		return put_braced(x, s + 2, end, depth);
	if (len == 0)
		return put(x, s, 1) < 0 ? NULL : s + 1;
	value = variables_find(x->lists, s + 1, len);
	return value && put(x, value, strlen(value)) < 0 ? NULL : s + 1 + len;
}

static int walk(struct expanding *x, const char *s, const char *end, unsigned depth)
{
	char quote = 0;

	while (s < end) {
		bool escapes = *s == '\\' && s + 1 < end && quote != '\'';

		/* Between double quotes a backslash is meant for $, ", and itself. */
		if (escapes && quote == '"' && !strchr("$\"\\", s[1]))
			escapes = false;
		if (x->keeps_quotes && escapes && s[1] != '$' && s[1] != '\\')
			escapes = false;
		if (escapes) {
			if (put(x, s + 1, 1) < 0)
				return -1;
			s += 2;
		} else if (!x->keeps_quotes && (quote ? *s == quote : *s == '"' || *s == '\'')) {
			quote = quote ? 0 : *s;
			s++;
		} else if (*s == '$' && quote != '\'') {
			s = put_variable(x, s, end, depth);
			if (!s)
				return -1;
		} else if (put(x, s++, 1) < 0) {
			return -1;
		}
	}
	return 0;
}

static char *expand(struct expanding *x, const char *s)
{
	int rc = walk(x, s, s + strlen(s), 0);

	buf_add(&x->out, "", 1);
	if (rc == 0)
		return x->out.data;
	buf_done(&x->out);
	return NULL;
}

char *expand_word(const char *word, const struct list *const *lists, struct err *e)
{
	return expand(&(struct expanding){.lists = lists, .e = e}, word);
}

char *expand_text(const char *text, const struct list *const *lists, struct err *e)
{
	return expand(&(struct expanding){.lists = lists, .keeps_quotes = true, .e = e}, text);
}
