/*
 * Theory of operation. One function looks at the next character and says what is wrong with it, if anything. Texts
 * of one line (str_sanitise) and whole outputs (clean_text) differ only in what they do with the answer. Secrets are
 * found by a table of forms, and by value.
 */
#include "base/clean.h"

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

/* ---- one character ---- */

enum finding { GOOD, INVALID, CONTROL, INVISIBLE };

/* The character at `text`, whose length is *ret_len. before: the last one that was good, or 0. */
static enum finding look(const char *text, size_t left, uint32_t before, size_t *ret_len,
			 uint32_t *ret)
{
	size_t n = utf8_sequence(text, left);
	uint32_t c = utf8_value(text, n), after;

	*ret_len = n ? n : 1;
	*ret = c;
	if (!n)
		return INVALID;
	if (c < 0x20 || (c >= 0x7f && c <= 0x9f))
		return CONTROL;
	if (!is_unshowable(c))
		return GOOD;
	after = utf8_value(text + n, utf8_sequence(text + n, left - n));
	return joins(before, c, after) ? GOOD : INVISIBLE;
}

void str_sanitise(char *dst, size_t size, const char *src, size_t len)
{
	uint32_t before = 0, c;
	size_t out = 0, n;

	for (size_t i = 0; i < len && out + 5 < size; i += n) {
		if (look(src + i, len - i, before, &n, &c) == GOOD) {
			memcpy(dst + out, src + i, n);
			out += n;
			before = c;
		} else {
			dst[out++] = '?';
			before = 0;
		}
	}
	if (size)
		dst[out] = '\0';
}

/* ---- whole texts ---- */

/* How long is the escape sequence that begins here? ECMA-48: CSI, strings with an end, and two bytes. */
static size_t escape_length(const char *text, size_t left)
{
	size_t n = 2;

	if (left < 2)
		return left;
	if (text[1] == '[') {
		while (n < left && text[n] >= 0x20 && text[n] <= 0x3f)
			n++;
		return n < left && text[n] >= 0x40 && text[n] <= 0x7e ? n + 1 : n;
	}
	if (!strchr("]PX^_", text[1]))
		return text[1] >= 0x20 && text[1] <= 0x7e ? 2 : 1;
	/* To BEL or ESC \\, but not beyond the line: a string that does not end must not hide the rest. */
	for (; n < left && text[n] != '\n'; n++) {
		if (text[n] == '\a')
			return n + 1;
		if (text[n] == '\033')
			return n + 1 < left && text[n + 1] == '\\' ? n + 2 : n;
	}
	return n;
}

/* Takes one control character or sequence; returns how many bytes it has. */
static size_t take_control(struct buf *to, const char *text, size_t left, struct cleaned *n)
{
	if (*text == '\n' || *text == '\t') {
		buf_add(to, text, 1);
		return 1;
	}
	if (*text == '\r' && left > 1 && text[1] == '\n')
		return 1;
	n->control++;
	if (*text == '\033')
		return escape_length(text, left);
	/* What stands behind a carriage return would be written over what stands before it. */
	buf_add(to, *text == '\r' ? "\n" : "?", 1);
	return (unsigned char)*text >= 0x80 ? 2 : 1;
}

static void clean_characters(struct buf *to, const char *text, size_t len, struct cleaned *n)
{
	uint32_t before = 0, c;
	size_t used;

	for (size_t i = 0; i < len; i += used) {
		size_t plain = 0;

		while (i + plain < len && text[i + plain] >= ' ' && text[i + plain] < 0x7f)
			plain++;
		if (plain) {
			buf_add(to, text + i, plain);
			before = ' ';
			used = plain;
			continue;
		}
		switch (look(text + i, len - i, before, &used, &c)) {
		case GOOD:
			buf_add(to, text + i, used);
			before = c;
			continue;
		case INVALID:
			buf_add(to, "\xef\xbf\xbd", 3);
			n->invalid++;
			break;
		case CONTROL:
			used = take_control(to, text + i, len - i, n);
			break;
		case INVISIBLE:
			n->invisible++;
			break;
		}
		before = 0;
	}
}

/* ---- secrets ---- */

#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define WORD STR_ALNUM "_-"

/* What keys of well-known services look like: a prefix, then so many of these letters. */
static const struct {
	const char *prefix, *letters;
	size_t least;
} forms[] = {
	{"AKIA", UPPER STR_DIGITS, 16},
	{"ASIA", UPPER STR_DIGITS, 16},
	{"ghp_", STR_ALNUM, 30},
	{"gho_", STR_ALNUM, 30},
	{"ghu_", STR_ALNUM, 30},
	{"ghs_", STR_ALNUM, 30},
	{"ghr_", STR_ALNUM, 30},
	{"github_pat_", WORD, 22},
	{"glpat-", WORD, 20},
	{"sk-ant-", WORD, 20},
	{"sk-proj-", WORD, 20},
	{"sk-", STR_ALNUM, 32},
	{"xoxb-", WORD, 20},
	{"xoxp-", WORD, 20},
	{"AIza", WORD, 35},
	{"npm_", STR_ALNUM, 36},
	{"pypi-", WORD, 50},
	{"hf_", STR_ALNUM, 30},
	{"e2b_", STR_DIGITS "abcdef", 40},
};

static const char key_begin[] = "-----BEGIN ", key_kind[] = "PRIVATE KEY-----",
		  key_end[] = "-----END ";

/* A private key in PEM, with its last line. */
static size_t pem_length(const char *text, size_t left)
{
	const char *eol, *end;
	size_t n;

	if (left < sizeof(key_begin) || memcmp(text, key_begin, sizeof(key_begin) - 1) != 0)
		return 0;
	eol = memchr(text, '\n', left);
	if (!eol || !memmem(text, (size_t)(eol - text), key_kind, sizeof(key_kind) - 1))
		return 0;
	end = memmem(text + 1, left - 1, key_end, sizeof(key_end) - 1);
	if (!end)
		return left;
	n = (size_t)(end - text);
	eol = memchr(end, '\n', left - n);
	return eol ? (size_t)(eol - text) : left;
}

static size_t form_length(const char *text, size_t left)
{
	for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
		size_t p = strlen(forms[i].prefix), n = p;

		if (left <= p || memcmp(text, forms[i].prefix, p) != 0)
			continue;
		while (n < left && text[n] && strchr(forms[i].letters, text[n]))
			n++;
		if (n - p >= forms[i].least)
			return n;
	}
	return 0;
}

static size_t value_length(const char *text, size_t left, const struct list *values)
{
	for (size_t i = 0; values && i < values->count; i++) {
		size_t n = strlen(values->items[i]);

		if (n >= CLEAN_VALUE_MIN && n <= left && memcmp(text, values->items[i], n) == 0)
			return n;
	}
	return 0;
}

static void remove_secrets(struct buf *to, const char *text, size_t len, const struct list *values,
			   struct cleaned *n)
{
	static const char put[] = "[secret removed]";
	size_t done = 0;

	for (size_t i = 0; i < len;) {
		bool begins = i == 0 || !strchr(STR_ALNUM, text[i - 1]) || !text[i - 1];
		size_t found = value_length(text + i, len - i, values);

		if (!found && begins && text[i] == '-')
			found = pem_length(text + i, len - i);
		if (!found && begins)
			found = form_length(text + i, len - i);
		if (!found) {
			i++;
			continue;
		}
		buf_add(to, text + done, i - done);
		buf_add(to, put, sizeof(put) - 1);
		i += found;
		done = i;
		n->secrets++;
	}
	buf_add(to, text + done, len - done);
}

void clean_text(struct buf *to, const char *text, size_t len, const struct list *values,
		struct cleaned *n)
{
	auto_buf struct buf plain = {0};

	/* Characters first: what is invisible must not divide a secret. */
	clean_characters(&plain, text, len, n);
	if (plain.len)
		remove_secrets(to, buf_head(&plain), plain.len, values, n);
}

bool cleaned_any(const struct cleaned *n)
{
	return n->invalid || n->control || n->invisible || n->secrets;
}

/* PASSWORD=..., API_KEY=... */
void clean_values_of(const struct list *env, struct list *ret)
{
	static const char *const names[] = {"KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL"};

	for (size_t i = 0; i < env->count; i++) {
		const char *equals = strchr(env->items[i], '=');

		for (size_t j = 0; equals && j < ARRAY_LEN(names); j++)
			if (memmem(env->items[i], (size_t)(equals - env->items[i]), names[j],
				   strlen(names[j]))) {
				list_add(ret, equals + 1);
				break;
			}
	}
}
