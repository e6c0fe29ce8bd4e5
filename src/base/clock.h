/* The monotonic clock in nanoseconds, the time of day in milliseconds and as text. */
#pragma once

#include <stdint.h>
#include <time.h>

static inline int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Milliseconds since 1970. */
static inline uint64_t unix_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

#define UTC_TEXT 48

/* RFC 3339, with 0 to 9 digits of a fraction of the second; "" if the year is out of range. */
const char *utc_text(uint64_t seconds, uint32_t ns, int digits, char ret[UTC_TEXT]);
const char *utc_now(int digits, char ret[UTC_TEXT]);
