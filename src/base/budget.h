/*
 * How much memory many may hold together. Who wants some asks first and does without if there is none;
 * who must have it is counted all the same, so that the others get less.
 */
#pragma once

#include "base/base.h"

struct budget {
	uint64_t used, max;
};

static inline bool budget_has(const struct budget *b, uint64_t bytes)
{
	return b->used <= b->max && bytes <= b->max - b->used;
}

/* False: there is not so much left, and nothing was taken. No budget at all has always some. */
static inline bool budget_take(struct budget *b, uint64_t bytes)
{
	if (b && !budget_has(b, bytes))
		return false;
	if (b)
		b->used += bytes;
	return true;
}

static inline void budget_give(struct budget *b, uint64_t bytes)
{
	if (b)
		b->used -= bytes;
}
