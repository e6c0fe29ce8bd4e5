/* UTF-8: how long is the well-formed sequence at p, and what is it? */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* 1 to 4, or 0 if the bytes there are not a whole, shortest, legal sequence. */
static inline size_t utf8_sequence(const char *text, size_t left)
{
	const unsigned char *p = (const unsigned char *)text;
	size_t n;

	if (left == 0)
		return 0;
	if (p[0] < 0x80)
		return 1;
	n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
	if (p[0] < 0xc2 || p[0] > 0xf4 || left < n)
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
	    (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
		return 0;
	return n;
}

/* How many of the bytes at the start are ASCII, in whole steps of eight? */
static inline size_t utf8_ascii(const char *text, size_t left)
{
	size_t n = 0;
	uint64_t w;

	for (; n + sizeof(w) <= left; n += sizeof(w)) {
		memcpy(&w, text + n, sizeof(w));
		if (w & 0x8080808080808080ull)
			break;
	}
	return n;
}

/* The character of a sequence of n bytes, as utf8_sequence says; 0 for none. */
static inline uint32_t utf8_value(const char *text, size_t n)
{
	const unsigned char *p = (const unsigned char *)text;
	uint32_t c;

	if (n <= 1)
		return n ? p[0] : 0;
	c = p[0] & (0x7fu >> n);
	for (size_t i = 1; i < n; i++)
		c = c << 6 | (p[i] & 0x3f);
	return c;
}

/* How many bytes at the end of the text are the start of a character that was cut off? */
static inline size_t utf8_cut_at_end(const char *text, size_t len)
{
	for (size_t n = 1; n <= 3 && n <= len; n++) {
		unsigned char c = (unsigned char)text[len - n];

		if ((c & 0xc0) == 0x80)
			continue;
		return c >= 0xc2 && c <= 0xf4 && !utf8_sequence(text + len - n, n) ? n : 0;
	}
	return 0;
}
