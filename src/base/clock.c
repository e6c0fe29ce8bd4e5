#include "base/base.h"

const char *utc_text(uint64_t seconds, uint32_t ns, int digits, char ret[UTC_TEXT])
{
	static const uint32_t unit[] = {1000000000, 100000000, 10000000, 1000000, 100000,
					10000,	    1000,      100,	 10,	  1};
	time_t t = (time_t)seconds;
	struct tm tm;
	size_t len;

	ret[0] = '\0';
	if (!gmtime_r(&t, &tm))
		return ret;
	len = strftime(ret, UTC_TEXT, "%Y-%m-%dT%H:%M:%S", &tm);
	if (digits)
		len += (size_t)snprintf(ret + len, UTC_TEXT - len, ".%0*u", digits,
					ns / unit[digits]);
	snprintf(ret + len, UTC_TEXT - len, "Z");
	return ret;
}

const char *utc_now(int digits, char ret[UTC_TEXT])
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return utc_text((uint64_t)t.tv_sec, (uint32_t)t.tv_nsec, digits, ret);
}
