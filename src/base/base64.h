/* Base64 (RFC 4648, with padding). */
#pragma once

#include "base/base.h"

/* Room that len bytes need once encoded, without a terminating NUL. */
#define BASE64_ROOM(len) (((len) + 2) / 3 * 4)

/* Writes BASE64_ROOM(len) characters to dst and returns how many; no NUL is added. */
size_t base64_encode(char *dst, const void *src, size_t len);
/*
 * Reads what encode has written: strictly, with padding, nothing in between. dst needs room for
 * len / 4 * 3 bytes. 0, or -1 if that is not base64.
 */
int base64_decode(char *dst, const char *src, size_t len, size_t *ret_len);
