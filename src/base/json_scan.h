/*
 * Checks one JSON text piece by piece as it arrives, and counts its values, without building anything.
 *
 *   struct json_scan s = {0};
 *   json_scan_feed(&s, bytes, len);   ...
 *   if (json_scan_is_whole(&s) && s.values <= most) ...
 *
 * Strict, and ASCII only: other characters must be escaped.
 */
#pragma once

#include "base/base.h"

#define JSON_SCAN_DEPTH 64

struct json_scan {
	uint8_t state, rest; /* rest: digits of \uXXXX, or letters of a word, that are to come */
	unsigned depth;
	uint64_t objects; /* a bit for each level: an object, not an array */
	const char *word;
	size_t values; /* keys included */
};

/* After an error the text stays bad. */
void json_scan_feed(struct json_scan *s, const char *bytes, size_t len);
bool json_scan_is_whole(const struct json_scan *s);
