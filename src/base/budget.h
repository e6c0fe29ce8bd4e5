/*
 * Bounds on what many share (memory, places, connections). A budget belongs to one user of a pool; a
 * budget without a pool stands alone. Optional memory is asked for first, and done without if too little is
 * left. Memory that is needed in any case is counted all the same, so that less is left for the others.
 *
 * The rule of a pool: a user may take more while its use stays below what is still free, times the pool's
 * weight. So one user alone gets a half (weight 1), two get a third each, and a newcomer always finds
 * something free. No number has to be set per user, and no user can lock another out. The last tenth of
 * each pool is for the operator.
 */
#pragma once

#include "base/base.h"

struct budget_pool {
	uint64_t used, max;
	unsigned weight;
};

struct budget {
	uint64_t used, max;
	struct budget_pool *pool; /* or NULL */
	bool is_operator;	  /* may take all that is left of the pool */
};

/* How much more may be taken. */
static inline uint64_t budget_left(const struct budget *b)
{
	uint64_t own = b->used < b->max ? b->max - b->used : 0, all, fair, weight;

	if (!b->pool)
		return own;
	all = b->pool->max - (b->is_operator ? 0 : b->pool->max / 10);
	all = b->pool->used < all ? all - b->pool->used : 0;
	if (!b->is_operator) {
		/* What is taken is no longer free: used + x <= (free - x) * weight. */
		weight = b->pool->weight;
		fair = all * weight;
		all = fair > b->used ? (fair - b->used) / (weight + 1) : 0;
	}
	return own < all ? own : all;
}

static inline bool budget_has(const struct budget *b, uint64_t amount)
{
	return amount <= budget_left(b);
}

/* Counts what is needed in any case. */
static inline void budget_count(struct budget *b, uint64_t amount)
{
	b->used += amount;
	if (b->pool)
		b->pool->used += amount;
}

/* False: too little is left, and nothing was taken. Without a budget (NULL) there is no bound. */
static inline bool budget_take(struct budget *b, uint64_t amount)
{
	if (b && !budget_has(b, amount))
		return false;
	if (b)
		budget_count(b, amount);
	return true;
}

static inline void budget_give(struct budget *b, uint64_t amount)
{
	if (!b)
		return;
	b->used -= amount;
	if (b->pool)
		b->pool->used -= amount;
}
