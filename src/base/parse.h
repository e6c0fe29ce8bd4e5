/* Sizes, times, counts and fractions as people write them. Strict: trailing bytes are an error. */
#pragma once

#include "base/err.h"

#include <stdint.h>

/* "512M", "1G", "4096": 1024-based, K M G T. */
int parse_size(const char *s, uint64_t *ret_bytes, struct err *e);
/* "500ms", "60s", "5m", "2h", or seconds; fractions allowed ("1.5s"). */
int parse_time(const char *s, uint64_t *ret_ms, struct err *e);
/* Decimal digits only. */
int parse_count(const char *s, uint64_t *ret, struct err *e);
/* "1.5" -> 1500. */
int parse_milli(const char *s, uint64_t *ret_milli, struct err *e);
