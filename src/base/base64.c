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
