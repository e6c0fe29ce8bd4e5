/*
 * A bound on memory that many share. Optional memory is asked for first, and done without if the budget is
 * used up. Memory that is needed in any case is counted all the same, so that less is left for the others.
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

/* False: too little is left, and nothing was taken. Without a budget (NULL) there is no bound. */
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
