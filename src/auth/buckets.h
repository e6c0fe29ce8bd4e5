/*
 * Token buckets by name (a token's id, an address): so many requests a minute, so many at once. The
 * table is bounded; the bucket that was unused for longest makes room, which errs on the side of the
 * client.
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
