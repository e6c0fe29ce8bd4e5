#include "base/jsonr.h"

/* The text that is still to be read. */
struct json_text {
	const char *at, *end;
};

static void skip_spaces(struct json_text *t)
{
	while (t->at < t->end && strchr(" \t\r\n", *t->at) && *t->at)
		t->at++;
}

static bool take_char(struct json_text *t, char c)
{
	if (t->at == t->end || *t->at != c)
		return false;
	t->at++;
	return true;
}

static bool take_word(struct json_text *t, const char *word)
{
	size_t len = strlen(word);

	if ((size_t)(t->end - t->at) < len || memcmp(t->at, word, len) != 0)
		return false;
	t->at += len;
	return true;
}

/* The four digits of \uXXXX, or -1. */
static long take_unit(struct json_text *t)
{
	long unit = 0;

	if (t->end - t->at < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		int digit = str_hex_digit(*t->at++);

		if (digit < 0)
			return -1;
		unit = unit * 16 + digit;
	}
	return unit;
}

static size_t put_utf8(char *to, long c)
{
	size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
	static const unsigned char first[] = {0, 0, 0xc0, 0xe0, 0xf0};

	for (size_t i = n - 1; i > 0; i--, c >>= 6)
		to[i] = (char)(0x80 | (c & 63));
	to[0] = (char)(first[n] | c);
	return n;
}

/* The character that an escape behind a backslash means, or -1. Half of a surrogate pair is none. */
static long take_escape(struct json_text *t)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *known;
	long unit, low;

	if (t->at == t->end)
		return -1;
	if (*t->at != 'u') {
		known = *t->at ? strchr(from, *t->at) : NULL;
		t->at++;
		return known ? (unsigned char)to[known - from] : -1;
	}
	t->at++;
	unit = take_unit(t);
	if (unit < 0xd800 || unit > 0xdfff)
		return unit;
	if (unit > 0xdbff || !take_word(t, "\\u"))
		return -1;
	low = take_unit(t);
	if (low < 0xdc00 || low > 0xdfff)
		return -1;
	return 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
}

/* A whole string. Its text goes to `to` unless that is NULL; it is never longer than the source. */
static bool take_string(struct json_text *t, char *to, size_t *ret_len)
{
	size_t len = 0;

	if (!take_char(t, '"'))
		return false;
	while (t->at < t->end && *t->at != '"') {
		char utf8[4];
		size_t n = 1;
		long c;

		if ((unsigned char)*t->at < 0x20)
			return false;
		utf8[0] = *t->at++;
		if (utf8[0] == '\\') {
			c = take_escape(t);
			if (c < 0)
				return false;
			n = put_utf8(utf8, c);
		}
		if (to)
			memcpy(to + len, utf8, n);
		len += n;
	}
	*ret_len = len;
	return take_char(t, '"');
}

static bool take_digits(struct json_text *t)
{
	const char *from = t->at;

	while (t->at < t->end && *t->at >= '0' && *t->at <= '9')
		t->at++;
	return t->at > from;
}

static bool take_number(struct json_text *t)
{
	take_char(t, '-');
	if (!take_char(t, '0') && !take_digits(t))
		return false;
	if (take_char(t, '.') && !take_digits(t))
		return false;
	if (take_char(t, 'e') || take_char(t, 'E')) {
		if (!take_char(t, '+'))
			take_char(t, '-');
		return take_digits(t);
	}
	return true;
}

static bool take_value(struct json_text *t, int depth, struct jsonr *ret);

/* An object, from behind its bracket. The value of the member `wanted`, if any, goes to `found`. */
static bool take_object(struct json_text *t, int depth, const char *wanted, struct jsonr *found)
{
	skip_spaces(t);
	if (take_char(t, '}'))
		return true;
	do {
		struct json_text name;
		struct jsonr value;
		size_t len, want_len = wanted ? strlen(wanted) : 0;

		skip_spaces(t);
		name = *t;
		if (!take_string(t, NULL, &len))
			return false;
		skip_spaces(t);
		if (!take_char(t, ':') || !take_value(t, depth, &value))
			return false;
		/* The names that we look for need no escapes. */
		if (wanted && !found->at && len == want_len &&
		    memcmp(name.at + 1, wanted, len) == 0)
			*found = value;
		skip_spaces(t);
	} while (take_char(t, ','));
	return take_char(t, '}');
}

static bool take_array(struct json_text *t, int depth)
{
	struct jsonr value;

	skip_spaces(t);
	if (take_char(t, ']'))
		return true;
	do {
		if (!take_value(t, depth, &value))
			return false;
		skip_spaces(t);
	} while (take_char(t, ','));
	return take_char(t, ']');
}

/* One value, without the spaces before it. */
static bool take_value(struct json_text *t, int depth, struct jsonr *ret)
{
	size_t len;
	bool ok;

	skip_spaces(t);
	ret->at = t->at;
	if (t->at == t->end || depth == 0)
		return false;
	switch (*t->at) {
	case '{':
		t->at++;
		ok = take_object(t, depth - 1, NULL, NULL);
		break;
	case '[':
		t->at++;
		ok = take_array(t, depth - 1);
		break;
	case '"':
		ok = take_string(t, NULL, &len);
		break;
	default:
		ok = take_word(t, "true") || take_word(t, "false") || take_word(t, "null") ||
		     take_number(t);
	}
	ret->len = (size_t)(t->at - ret->at);
	return ok;
}

bool jsonr_member(const char *object, size_t len, const char *name, struct jsonr *ret)
{
	struct json_text t = {object, object + len};
	struct jsonr found = {0};

	skip_spaces(&t);
	if (!take_char(&t, '{') || !take_object(&t, JSONR_DEPTH, name, &found))
		return false;
	skip_spaces(&t);
	if (t.at != t.end || !found.at)
		return false;
	*ret = found;
	return true;
}

bool jsonr_item(const struct jsonr *array, const char **at, struct jsonr *ret)
{
	struct json_text t = {*at ? *at : array->at, array->at + array->len};
	struct jsonr value;

	if (array->len == 0 || array->at[0] != '[')
		return false;
	/* A bracket is in front of the first item, a comma in front of the others. */
	skip_spaces(&t);
	if (!take_char(&t, *at ? ',' : '[') || !take_value(&t, JSONR_DEPTH, &value))
		return false;
	*at = t.at;
	*ret = value;
	return true;
}

static bool is_word(const struct jsonr *v, const char *word)
{
	return v->len == strlen(word) && memcmp(v->at, word, v->len) == 0;
}

bool jsonr_is_null(const struct jsonr *v)
{
	return is_word(v, "null");
}

bool jsonr_bool(const struct jsonr *v, bool *ret)
{
	if (!is_word(v, "true") && !is_word(v, "false"))
		return false;
	*ret = v->at[0] == 't';
	return true;
}

bool jsonr_int(const struct jsonr *v, int64_t *ret)
{
	bool minus = v->len && v->at[0] == '-';
	int64_t n = 0;

	if (v->len == minus || v->len > 18)
		return false;
	for (size_t i = minus; i < v->len; i++) {
		if (v->at[i] < '0' || v->at[i] > '9')
			return false;
		n = n * 10 + (v->at[i] - '0');
	}
	*ret = minus ? -n : n;
	return true;
}

char *jsonr_string(const struct jsonr *v, size_t *ret_len)
{
	struct json_text t = {v->at, v->at + v->len};
	char *text;
	size_t len;

	if (v->len < 2 || v->at[0] != '"')
		return NULL;
	text = must_alloc(malloc(v->len));
	if (!take_string(&t, text, &len)) {
		free(text);
		return NULL;
	}
	text[len] = '\0';
	if (ret_len)
		*ret_len = len;
	return text;
}
