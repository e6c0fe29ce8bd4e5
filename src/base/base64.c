#include "base/base64.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t base64_encode(char *dst, const void *src, size_t len)
{
	const unsigned char *p = src;
	char *out = dst;

	for (; len >= 3; len -= 3, p += 3) {
		*out++ = alphabet[p[0] >> 2];
		*out++ = alphabet[(p[0] & 3) << 4 | p[1] >> 4];
		*out++ = alphabet[(p[1] & 15) << 2 | p[2] >> 6];
		*out++ = alphabet[p[2] & 63];
	}
	if (len > 0) {
		unsigned char second = len == 2 ? p[1] : 0;

		*out++ = alphabet[p[0] >> 2];
		*out++ = alphabet[(p[0] & 3) << 4 | second >> 4];
		*out++ = len == 2 ? alphabet[(second & 15) << 2] : '=';
		*out++ = '=';
	}
	return (size_t)(out - dst);
}

/* The value of a character, or -1. */
static int value_of(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int base64_decode(char *dst, const char *src, size_t len, size_t *ret_len)
{
	size_t pad = 0, out = 0;

	if (len % 4 != 0)
		return -1;
	while (pad < 2 && pad < len && src[len - 1 - pad] == '=')
		pad++;
	for (size_t i = 0; i < len; i += 4) {
		unsigned bits = 0;

		for (size_t k = 0; k < 4; k++) {
			int value = i + k >= len - pad ? 0 : value_of(src[i + k]);

			if (value < 0)
				return -1;
			bits = bits << 6 | (unsigned)value;
		}
		dst[out++] = (char)(bits >> 16);
		dst[out++] = (char)(bits >> 8);
		dst[out++] = (char)bits;
	}
	*ret_len = out - pad;
	return 0;
}
