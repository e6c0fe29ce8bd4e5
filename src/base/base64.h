/* Base64 (RFC 4648, with padding). */
#pragma once

#include <stddef.h>

/* Room that len bytes need once encoded, without a terminating NUL. */
#define BASE64_ROOM(len) (((len) + 2) / 3 * 4)

/* Writes BASE64_ROOM(len) characters to dst and returns how many; no NUL is added. */
size_t base64_encode(char *dst, const void *src, size_t len);
