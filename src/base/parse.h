/* Sizes, times, counts and fractions as people write them. Strict: trailing bytes are an error. */
#pragma once

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

/* All readers have this form. */
typedef int parse_fn(const char *s, uint64_t *ret, struct err *e);

/* "512M", "1G", "4096": 1024-based, K M G T. */
int parse_size(const char *s, uint64_t *ret_bytes, struct err *e);
/* "500ms", "60s", "5m", "2h", or seconds; fractions allowed ("1.5s"). */
int parse_time(const char *s, uint64_t *ret_ms, struct err *e);
/* "100Mbit", "10MB", "64K": bytes a second. Mbit and MB count in thousands, K, M and G as for sizes. */
int parse_rate(const char *s, uint64_t *ret_bytes, struct err *e);
/* Decimal digits only. */
int parse_count(const char *s, uint64_t *ret, struct err *e);
/* "1.5" -> 1500. */
int parse_milli(const char *s, uint64_t *ret_milli, struct err *e);
/* "true" -> 1, "false" -> 0. */
int parse_bool(const char *s, uint64_t *ret, struct err *e);

struct parse_member {
	parse_fn *parse;
	uint64_t min, max;
	size_t size; /* of the member: a bool, a uint32_t or a uint64_t */
};

/* Reads a number within its bounds into the member of a struct. */
int parse_member(const struct parse_member *m, const char *s, void *to, struct err *e);
