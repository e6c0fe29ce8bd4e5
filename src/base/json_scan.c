/* A JSON checker that can stop after any byte: a state machine with a stack of bits. */
#include "base/json_scan.h"

enum {
	VALUE,	/* a value must follow */
	ITEM,	/* after '[': a value or ']' */
	MEMBER, /* after '{': a key or '}' */
	KEY,	/* after ',' in an object */
	COLON,
	AFTER, /* a value has ended */
	STRING,
	KEY_STRING,
	ESCAPE, /* in a string: after a backslash */
	KEY_ESCAPE,
	WORD,  /* true, false, null */
	MINUS, /* parts of a number, each named after what was read last */
	ZERO,
	DIGITS,
	POINT,
	FRACTION,
	EXPONENT,
	SIGN,
	EXPONENT_DIGITS,
	BAD,
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static int open_level(struct json_scan *s, bool is_object)
{
	if (s->depth == JSON_SCAN_DEPTH)
		return BAD;
	s->objects = s->objects << 1 | is_object;
	s->depth++;
	return is_object ? MEMBER : ITEM;
}

static int close_level(struct json_scan *s, bool is_object)
{
	if (!s->depth || (s->objects & 1) != is_object)
		return BAD;
	s->objects >>= 1;
	s->depth--;
	return AFTER;
}

static int begin_word(struct json_scan *s, const char *word)
{
	s->word = word + 1;
	return WORD;
}

static int begin_value(struct json_scan *s, char c)
{
	s->values++;
	switch (c) {
	case '{':
	case '[':
		return open_level(s, c == '{');
	case '"':
		return STRING;
	case '-':
		return MINUS;
	case 't':
		return begin_word(s, "true");
	case 'f':
		return begin_word(s, "false");
	case 'n':
		return begin_word(s, "null");
	default:
		return c == '0' ? ZERO : is_digit(c) ? DIGITS : BAD;
	}
}

static int after_value(struct json_scan *s, char c)
{
	if (is_space(c))
		return AFTER;
	if (c == ',' && s->depth)
		return s->objects & 1 ? KEY : VALUE;
	return c == '}' || c == ']' ? close_level(s, c == '}') : BAD;
}

static int in_number(struct json_scan *s, char c)
{
	switch (s->state) {
	case MINUS:
		return c == '0' ? ZERO : is_digit(c) ? DIGITS : BAD;
	case POINT:
		return is_digit(c) ? FRACTION : BAD;
	case EXPONENT:
		if (c == '+' || c == '-')
			return SIGN;
		return is_digit(c) ? EXPONENT_DIGITS : BAD;
	case SIGN:
		return is_digit(c) ? EXPONENT_DIGITS : BAD;
	default:
		break;
	}
	if (is_digit(c) && s->state != ZERO)
		return s->state;
	if (c == '.' && (s->state == ZERO || s->state == DIGITS))
		return POINT;
	if ((c == 'e' || c == 'E') && s->state != EXPONENT_DIGITS)
		return EXPONENT;
	return after_value(s, c);
}

static int in_word(struct json_scan *s, char c)
{
	if (c != *s->word++)
		return BAD;
	return *s->word ? WORD : AFTER;
}

static int in_escape(struct json_scan *s, char c)
{
	int string = s->state - ESCAPE + STRING;

	if (s->rest)
		return str_hex_digit(c) < 0 ? BAD : --s->rest ? s->state : string;
	if (c == 'u') {
		s->rest = 4;
		return s->state;
	}
	return c && strchr("\"\\/bfnrt", c) ? string : BAD;
}

static int in_string(const struct json_scan *s, char c)
{
	if (c == '"')
		return s->state == STRING ? AFTER : COLON;
	if (c == '\\')
		return s->state - STRING + ESCAPE;
	return (unsigned char)c < 0x20 || (unsigned char)c > 0x7e ? BAD : s->state;
}

static int key_or_end(struct json_scan *s, char c)
{
	if (is_space(c))
		return s->state;
	if (c == '}' && s->state == MEMBER)
		return close_level(s, true);
	s->values++;
	return c == '"' ? KEY_STRING : BAD;
}

static int next_state(struct json_scan *s, char c)
{
	switch (s->state) {
	case VALUE:
	case ITEM:
		if (is_space(c))
			return s->state;
		return c == ']' && s->state == ITEM ? close_level(s, false) : begin_value(s, c);
	case MEMBER:
	case KEY:
		return key_or_end(s, c);
	case COLON:
		return c == ':' ? VALUE : is_space(c) ? COLON : BAD;
	case AFTER:
		return after_value(s, c);
	case STRING:
	case KEY_STRING:
		return in_string(s, c);
	case ESCAPE:
	case KEY_ESCAPE:
		return in_escape(s, c);
	case WORD:
		return in_word(s, c);
	case BAD:
		return BAD;
	default:
		return in_number(s, c);
	}
}

/* Most bytes of a long text are plain ones of a string. */
static size_t plain_len(const char *bytes, size_t len)
{
	size_t n = 0;

	while (n < len && bytes[n] >= 0x20 && bytes[n] < 0x7f && bytes[n] != '"' &&
	       bytes[n] != '\\')
		n++;
	return n;
}

void json_scan_feed(struct json_scan *s, const char *bytes, size_t len)
{
	for (size_t i = 0; i < len && s->state != BAD; i++) {
		if (s->state == STRING || s->state == KEY_STRING)
			i += plain_len(bytes + i, len - i);
		if (i < len)
			s->state = (uint8_t)next_state(s, bytes[i]);
	}
}

bool json_scan_is_whole(const struct json_scan *s)
{
	bool is_number = s->state == ZERO || s->state == DIGITS || s->state == FRACTION ||
			 s->state == EXPONENT_DIGITS;

	return s->depth == 0 && (s->state == AFTER || is_number);
}
