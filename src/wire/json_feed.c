/* A push parser for JSON. One state per place between two bytes, a stack of the containers that are open. */
#include "wire/json_feed.h"

#include <math.h>

#define NUMBER_MAX 400
#define LONG_STRING (64u << 10)

enum state {
	VALUE,	    /* a value must come */
	FIRST_ITEM, /* a value, or the end of an empty array */
	FIRST_NAME, /* a name, or the end of an empty object */
	NAME,	    /* a name must come */
	COLON,
	NEXT, /* a comma, or the end of the container */
	STRING,
	ESCAPE,
	UNICODE,   /* four digits */
	LOW_SLASH, /* the second half of a pair must come: \, u, four digits */
	LOW_U,
	NUMBER,
	WORD, /* true, false, null */
	DONE,
};

struct level {
	json_t *container;
	char *name; /* of the member whose value comes */
	size_t name_len;
};

struct json_feed {
	enum state state;
	struct level levels[JSON_FEED_DEPTH];
	size_t depth, values, max_values, offset;
	bool allow_nul, is_name, failed;
	json_t *root;
	struct buf text; /* of the string, number or word that is read */
	size_t checked;	 /* of it, for UTF-8 */
	unsigned digits, unit, high;
};

struct json_feed *json_feed_new(size_t max_values, bool allow_nul)
{
	struct json_feed *f = must_alloc(calloc(1, sizeof(*f)));

	f->max_values = max_values;
	f->allow_nul = allow_nul;
	return f;
}

void json_feed_free(struct json_feed *f)
{
	if (!f)
		return;
	for (size_t i = 0; i < f->depth; i++)
		free(f->levels[i].name);
	json_decref(f->root);
	buf_done(&f->text);
	free(f);
}

static int fail(struct json_feed *f, struct err *e, const char *why)
{
	f->failed = true;
	return err_set(e, ERR_INVALID, "the body is not JSON: byte %zu: %s", f->offset, why);
}

/* ---- values ---- */

/* Puts a value into the container that is open, which then owns it. */
static int place_value(struct json_feed *f, json_t *value, struct err *e)
{
	struct level *l = f->depth ? &f->levels[f->depth - 1] : NULL;

	if (++f->values > f->max_values) {
		json_decref(value);
		f->failed = true;
		err_set(e, ERR_LIMIT, "the body has more than %zu values", f->max_values);
		e->errnum = E2BIG;
		return -1;
	}
	must_alloc(value);
	f->state = NEXT;
	if (!l) {
		f->root = value;
		f->state = DONE;
	} else if (json_is_array(l->container)) {
		json_array_append_new(l->container, value);
	} else {
		json_object_setn_new_nocheck(l->container, l->name, l->name_len, value);
		free(take_ptr(l->name));
	}
	return 0;
}

static int open_container(struct json_feed *f, bool is_object, struct err *e)
{
	json_t *value = is_object ? json_object() : json_array();

	if (f->depth == JSON_FEED_DEPTH) {
		json_decref(value);
		f->failed = true;
		return err_set(e, ERR_INVALID, "the body is nested deeper than %d levels",
			       JSON_FEED_DEPTH);
	}
	if (place_value(f, value, e) < 0)
		return -1;
	f->levels[f->depth++] = (struct level){.container = value};
	f->state = is_object ? FIRST_NAME : FIRST_ITEM;
	return 0;
}

static int close_container(struct json_feed *f, bool is_object, struct err *e)
{
	if (!f->depth || json_is_object(f->levels[f->depth - 1].container) != is_object)
		return fail(f, e, "a bracket that closes nothing");
	f->depth--;
	f->state = f->depth ? NEXT : DONE;
	return 0;
}

static void begin_text(struct json_feed *f, enum state state)
{
	f->text.len = f->text.at = 0;
	f->checked = 0;
	f->state = state;
}

/* ---- strings ---- */

/* Checks what was added to the string; its last bytes may be the beginning of a character. */
static bool check_utf8(struct json_feed *f, bool is_end)
{
	const char *text = buf_head(&f->text);
	size_t left;

	while ((left = f->text.len - f->checked)) {
		size_t n = utf8_ascii(text + f->checked, left);

		n = n ? n : utf8_sequence(text + f->checked, left);

		if (!n)
			return !is_end && left < 4 &&
			       utf8_cut_at_end(text + f->checked, left) == left;
		f->checked += n;
	}
	return true;
}

static int end_name(struct json_feed *f, struct err *e)
{
	struct level *l = &f->levels[f->depth - 1];
	const char *text = f->text.len ? buf_head(&f->text) : "";

	if (memchr(text, '\0', f->text.len))
		return fail(f, e, "a zero byte in a name");
	if (json_object_getn(l->container, text, f->text.len))
		return fail(f, e, "a member is there twice");
	l->name = must_alloc(malloc(f->text.len + 1));
	memcpy(l->name, text, f->text.len);
	l->name_len = f->text.len;
	f->state = COLON;
	return 0;
}

/* A string of jansson's, which has no call that takes a buffer over. */
struct known_string {
	json_t json;
	char *value;
	size_t length;
};

/* A copy would take milliseconds. NULL: jansson keeps strings in another way. */
static json_t *take_long_string(struct buf *text)
{
	json_t *value = json_stringn_nocheck("ab", 2);
	struct known_string *s = (struct known_string *)value;

	if (!value || s->value != json_string_value(value) || s->length != 2) {
		json_decref(value);
		return NULL;
	}
	buf_add(text, "", 1);
	free(s->value);
	s->length = text->len - 1;
	s->value = must_alloc(realloc(text->data, text->len));
	*text = (struct buf){0};
	return value;
}

static json_t *make_string(struct buf *text)
{
	json_t *value = text->len < LONG_STRING || text->at ? NULL : take_long_string(text);

	return value ? value : json_stringn_nocheck(text->len ? buf_head(text) : "", text->len);
}

static int end_string(struct json_feed *f, struct err *e)
{
	if (!check_utf8(f, true))
		return fail(f, e, "a string is not UTF-8");
	return f->is_name ? end_name(f, e) : place_value(f, make_string(&f->text), e);
}

static void add_character(struct json_feed *f, uint32_t c)
{
	static const unsigned char first[] = {0, 0, 0xc0, 0xe0, 0xf0};
	size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
	char bytes[4];

	for (size_t i = n - 1; i > 0; i--, c >>= 6)
		bytes[i] = (char)(0x80 | (c & 63));
	bytes[0] = (char)(first[n] | c);
	buf_add(&f->text, bytes, n);
}

static int take_escape(struct json_feed *f, char c, struct err *e)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *known = c ? strchr(from, c) : NULL;

	if (c == 'u') {
		f->state = UNICODE;
		f->digits = f->unit = 0;
		return 0;
	}
	if (!known)
		return fail(f, e, "an unknown escape");
	buf_add(&f->text, &to[known - from], 1);
	f->state = STRING;
	return 0;
}

static int take_unit_digit(struct json_feed *f, char c, struct err *e)
{
	int digit = str_hex_digit(c);

	if (digit < 0)
		return fail(f, e, "an escape with a wrong digit");
	f->unit = f->unit << 4 | (unsigned)digit;
	if (++f->digits < 4)
		return 0;
	f->state = STRING;
	if (f->high) {
		if (f->unit < 0xdc00 || f->unit > 0xdfff)
			return fail(f, e, "half of a surrogate pair");
		add_character(f, 0x10000 + ((f->high - 0xd800) << 10) + (f->unit - 0xdc00));
		f->high = 0;
	} else if (f->unit >= 0xd800 && f->unit <= 0xdbff) {
		f->high = f->unit;
		f->state = LOW_SLASH;
	} else if (f->unit >= 0xdc00 && f->unit <= 0xdfff) {
		return fail(f, e, "half of a surrogate pair");
	} else if (!f->unit && !f->allow_nul) {
		return fail(f, e, "\\u0000 is not allowed");
	} else {
		add_character(f, f->unit);
	}
	return 0;
}

#define EACH_BYTE(b) (0x0101010101010101ull * (b))

/* Has one of the eight bytes the value 0? May say so of a byte above such a one as well. */
static uint64_t zero_bytes(uint64_t w)
{
	return (w - EACH_BYTE(0x01)) & ~w & EACH_BYTE(0x80);
}

/* Eight bytes that stand for themselves in a string: no control characters, quotes or backslashes. */
static bool is_plain_word(const char *bytes)
{
	uint64_t w;

	memcpy(&w, bytes, sizeof(w));
	return !(((w - EACH_BYTE(0x20)) & ~w & EACH_BYTE(0x80)) | zero_bytes(w ^ EACH_BYTE('"')) |
		 zero_bytes(w ^ EACH_BYTE('\\')));
}

/* Plain bytes of a string; returns how many. */
static size_t take_plain(struct json_feed *f, const char *bytes, size_t len)
{
	size_t n = 0;

	while (n + 8 <= len && is_plain_word(bytes + n))
		n += 8;
	while (n < len && (unsigned char)bytes[n] >= 0x20 && bytes[n] != '"' && bytes[n] != '\\')
		n++;
	buf_add(&f->text, bytes, n);
	return n;
}

/* ---- numbers and words ---- */

static const char *skip_digits(const char *s)
{
	return s + strspn(s, "0123456789");
}

/* As RFC 8259 has it; *ret_real: it has a fraction or an exponent. */
static bool is_number(const char *s, bool *ret_real)
{
	const char *digits = s += *s == '-';

	s = skip_digits(s);
	if (s == digits || (*digits == '0' && s > digits + 1))
		return false;
	*ret_real = *s != '\0';
	if (*s == '.') {
		digits = ++s;
		s = skip_digits(s);
		if (s == digits)
			return false;
	}
	if (*s == 'e' || *s == 'E') {
		s += s[1] == '+' || s[1] == '-' ? 2 : 1;
		digits = s;
		s = skip_digits(s);
		if (s == digits)
			return false;
	}
	return *s == '\0';
}

static int end_number(struct json_feed *f, struct err *e)
{
	bool is_real;
	double real;
	long long whole;

	buf_add(&f->text, "", 1);
	if (!is_number(buf_head(&f->text), &is_real))
		return fail(f, e, "not a number");
	errno = 0;
	if (is_real) {
		real = strtod(buf_head(&f->text), NULL);
		return isfinite(real) ? place_value(f, json_real(real), e)
				      : fail(f, e, "a number is too large");
	}
	whole = strtoll(buf_head(&f->text), NULL, 10);
	return errno ? fail(f, e, "a number is too large") : place_value(f, json_integer(whole), e);
}

static int end_word(struct json_feed *f, struct err *e)
{
	buf_add(&f->text, "", 1);
	if (str_equal(buf_head(&f->text), "true"))
		return place_value(f, json_true(), e);
	if (str_equal(buf_head(&f->text), "false"))
		return place_value(f, json_false(), e);
	if (str_equal(buf_head(&f->text), "null"))
		return place_value(f, json_null(), e);
	return fail(f, e, "an unknown word");
}

static bool goes_on(const struct json_feed *f, char c)
{
	if (f->state == WORD)
		return c >= 'a' && c <= 'z';
	return (c >= '0' && c <= '9') || (c && strchr("+-.eE", c));
}

/* ---- bytes ---- */

static int begin_value(struct json_feed *f, char c, struct err *e)
{
	if (c == '{' || c == '[')
		return open_container(f, c == '{', e);
	if (c == '"') {
		f->is_name = false;
		begin_text(f, STRING);
		return 0;
	}
	if (c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z'))
		return fail(f, e, "a value is missing");
	begin_text(f, c >= 'a' ? WORD : NUMBER);
	buf_add(&f->text, &c, 1);
	return 0;
}

static int begin_name(struct json_feed *f, char c, struct err *e)
{
	if (c != '"')
		return fail(f, e, "a name is missing");
	f->is_name = true;
	begin_text(f, STRING);
	return 0;
}

/* Behind a value, within a container. */
static int take_next(struct json_feed *f, char c, struct err *e)
{
	if (c == '}' || c == ']')
		return close_container(f, c == '}', e);
	if (c != ',')
		return fail(f, e, "a comma is missing");
	f->state = json_is_object(f->levels[f->depth - 1].container) ? NAME : VALUE;
	return 0;
}

/* A byte outside of strings, numbers and words. */
static int take_mark(struct json_feed *f, char c, struct err *e)
{
	if (c == ' ' || c == '\t' || c == '\n' || c == '\r')
		return 0;
	switch (f->state) {
	case FIRST_ITEM:
		return c == ']' ? close_container(f, false, e) : begin_value(f, c, e);
	case FIRST_NAME:
		return c == '}' ? close_container(f, true, e) : begin_name(f, c, e);
	case NAME:
		return begin_name(f, c, e);
	case COLON:
		f->state = VALUE;
		return c == ':' ? 0 : fail(f, e, "a colon is missing");
	case NEXT:
		return take_next(f, c, e);
	case DONE:
		return fail(f, e, "something behind the value");
	default:
		return begin_value(f, c, e);
	}
}

/* One byte within a string. */
static int take_in_string(struct json_feed *f, char c, struct err *e)
{
	switch (f->state) {
	case ESCAPE:
		return take_escape(f, c, e);
	case UNICODE:
		return take_unit_digit(f, c, e);
	case LOW_SLASH:
		f->state = LOW_U;
		return c == '\\' ? 0 : fail(f, e, "half of a surrogate pair");
	case LOW_U:
		f->state = UNICODE;
		f->digits = f->unit = 0;
		return c == 'u' ? 0 : fail(f, e, "half of a surrogate pair");
	default:
		if (c == '"')
			return end_string(f, e);
		if (c != '\\')
			return fail(f, e, "a control character in a string");
		f->state = ESCAPE;
		return 0;
	}
}

int json_feed_add(struct json_feed *f, const char *bytes, size_t len, struct err *e)
{
	size_t i = 0, begun = f->offset;

	if (f->failed)
		return err_set(e, ERR_INVALID, "the body is not JSON");
	while (i < len) {
		int rc;

		f->offset = begun + i;
		if (f->state == STRING) {
			i += take_plain(f, bytes + i, len - i);
			if (!check_utf8(f, false))
				return fail(f, e, "a string is not UTF-8");
			if (i == len)
				break;
		}
		if (f->state == NUMBER || f->state == WORD) {
			if (goes_on(f, bytes[i]) && f->text.len < NUMBER_MAX) {
				buf_add(&f->text, &bytes[i++], 1);
				continue;
			}
			rc = f->state == WORD ? end_word(f, e) : end_number(f, e);
		} else if (f->state >= STRING && f->state <= LOW_U) {
			rc = take_in_string(f, bytes[i++], e);
		} else {
			rc = take_mark(f, bytes[i++], e);
		}
		if (rc < 0)
			return -1;
	}
	f->offset = begun + len;
	return 0;
}

json_t *json_feed_end(struct json_feed *f, struct err *e)
{
	if (f->failed) {
		err_set(e, ERR_INVALID, "the body is not JSON");
		return NULL;
	}
	if ((f->state == NUMBER && end_number(f, e) < 0) ||
	    (f->state == WORD && end_word(f, e) < 0))
		return NULL;
	if (f->state != DONE) {
		fail(f, e, "it ends too early");
		return NULL;
	}
	return take_ptr(f->root);
}

json_t *json_feed_take(struct json_feed *f)
{
	f->failed = true;
	return take_ptr(f->root);
}

size_t json_feed_values(const struct json_feed *f)
{
	return f->values;
}

json_t *json_feed_whole(const char *bytes, size_t len, bool allow_nul, struct err *e)
{
	struct json_feed *f = json_feed_new(JSON_FEED_VALUES, allow_nul);
	json_t *value = json_feed_add(f, bytes, len, e) == 0 ? json_feed_end(f, e) : NULL;

	json_feed_free(f);
	return value;
}
