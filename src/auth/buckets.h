/*
 * Rate limits: token buckets by name (id of a token, or an address), with a rate per minute and a burst.
 * The table is bounded. The bucket unused for longest is replaced, which errs in favour of the client.
 */
#pragma once

#include "base/base.h"

struct buckets;

struct buckets *buckets_new(void);
void buckets_free(struct buckets *b);
/*
 * Takes one from name's bucket. 0: fine (also if per_minute is 0), else after how many seconds to
 * come again. ret_first, unless NULL: the one before it was not refused.
 */
unsigned buckets_take(struct buckets *b, const char *name, uint32_t per_minute, uint32_t burst,
		      int64_t now_ns, bool *ret_first);
/* The same for count in any window of time; all of them may come at once. */
unsigned buckets_take_of(struct buckets *b, const char *name, uint32_t count, uint64_t window_ms,
			 int64_t now_ns);
