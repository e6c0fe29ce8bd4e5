#include "base/jsonw.h"

#include "base/base64.h"

static void hand_over(struct jsonw *j, const char *bytes, size_t len)
{
	if (j->into)
		buf_add(j->into, bytes, len);
	else
		fwrite(bytes, 1, len, j->to);
}

static void flush_buffer(struct jsonw *j)
{
	hand_over(j, j->buf, j->used);
	j->used = 0;
}

void jsonw_raw(struct jsonw *j, const char *bytes, size_t len)
{
	if (len > sizeof(j->buf) - j->used)
		flush_buffer(j);
	if (len > sizeof(j->buf)) {
		hand_over(j, bytes, len);
		return;
	}
	memcpy(j->buf + j->used, bytes, len);
	j->used += len;
}

static void put(struct jsonw *j, const char *s)
{
	jsonw_raw(j, s, strlen(s));
}

void jsonw_begin(struct jsonw *j, FILE *to)
{
	j->to = to;
	j->into = NULL;
	j->comma = false;
	j->used = 0;
}

void jsonw_begin_buf(struct jsonw *j, struct buf *into)
{
	jsonw_begin(j, NULL);
	j->into = into;
}

size_t jsonw_len(const struct jsonw *j)
{
	return j->into->len + j->used;
}

int jsonw_finish(struct jsonw *j)
{
	flush_buffer(j);
	if (j->into)
		return 0;
	return fflush(j->to) == 0 && !ferror(j->to) ? 0 : -1;
}

/* Everything before a value: the comma and the key. */
static void lead(struct jsonw *j, const char *key)
{
	if (j->comma)
		put(j, ",");
	j->comma = true;
	if (key) {
		put(j, "\"");
		jsonw_text(j, key, strlen(key));
		put(j, "\":");
	}
}

void jsonw_open(struct jsonw *j, const char *key, char bracket)
{
	lead(j, key);
	jsonw_raw(j, &bracket, 1);
	j->comma = false;
}

void jsonw_close(struct jsonw *j, char bracket)
{
	jsonw_raw(j, &bracket, 1);
	j->comma = true;
}

/* A value that needs no escaping. */
static void put_value(struct jsonw *j, const char *key, const char *text)
{
	lead(j, key);
	put(j, text);
}

void jsonw_null(struct jsonw *j, const char *key)
{
	put_value(j, key, "null");
}

void jsonw_string(struct jsonw *j, const char *key, const char *value)
{
	if (!value) {
		jsonw_null(j, key);
		return;
	}
	jsonw_text_open(j, key);
	jsonw_text(j, value, strlen(value));
	jsonw_text_close(j);
}

void jsonw_bool(struct jsonw *j, const char *key, bool value)
{
	put_value(j, key, value ? "true" : "false");
}

void jsonw_int(struct jsonw *j, const char *key, int64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRId64, value);
	put_value(j, key, text);
}

void jsonw_uint(struct jsonw *j, const char *key, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	put_value(j, key, text);
}

void jsonw_real(struct jsonw *j, const char *key, double value)
{
	char text[64] = "null";

	/* JSON knows neither infinity nor "not a number". */
	if (value > -1e15 && value < 1e15)
		snprintf(text, sizeof(text), "%.3f", value);
	put_value(j, key, text);
}

void jsonw_base64(struct jsonw *j, const char *key, const void *data, size_t len)
{
	const char *p = data;
	enum { STEP = 3 * 512 };
	char text[BASE64_ROOM(STEP)];

	jsonw_text_open(j, key);
	while (len > 0) {
		size_t n = len < STEP ? len : STEP;

		jsonw_raw(j, text, base64_encode(text, p, n));
		p += n;
		len -= n;
	}
	jsonw_text_close(j);
}

void jsonw_text_open(struct jsonw *j, const char *key)
{
	put_value(j, key, "\"");
}

void jsonw_text_close(struct jsonw *j)
{
	put(j, "\"");
}

/* May this one-byte character stand in a string as it is? */
static bool is_plain(unsigned char c)
{
	return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

static void put_escaped(struct jsonw *j, unsigned code)
{
	static const char names[128] = {
		['"'] = '"',  ['\\'] = '\\', ['\n'] = 'n', ['\r'] = 'r',
		['\t'] = 't', ['\b'] = 'b',  ['\f'] = 'f',
	};
	static const char hex[] = "0123456789abcdef";
	char *text;

	/* Output of a megabyte may need it for each byte: no printf and no copies here. */
	if (sizeof(j->buf) - j->used < 6)
		flush_buffer(j);
	text = j->buf + j->used;
	if (code < sizeof(names) && names[code]) {
		text[0] = '\\';
		text[1] = names[code];
		j->used += 2;
		return;
	}
	memcpy(text, "\\u00", 4);
	text[4] = hex[code >> 4 & 15];
	text[5] = hex[code & 15];
	j->used += 6;
}

void jsonw_text(struct jsonw *j, const char *text, size_t len)
{
	static const char replacement[] = "\xef\xbf\xbd";
	size_t i = 0;

	while (i < len) {
		size_t run = i, n;

		while (run < len && is_plain((unsigned char)text[run]))
			run++;
		if (run > i)
			jsonw_raw(j, text + i, run - i);
		i = run;
		if (i == len)
			break;
		n = utf8_sequence(text + i, len - i);
		if (n == 0)
			jsonw_raw(j, replacement, sizeof(replacement) - 1);
		else if (n == 1)
			put_escaped(j, (unsigned char)text[i]);
		else if (n == 2 && (unsigned char)text[i] == 0xc2 &&
			 (unsigned char)text[i + 1] < 0xa0)
			put_escaped(j, (unsigned char)text[i + 1]);
		else
			jsonw_raw(j, text + i, n);
		i += n ? n : 1;
	}
}
