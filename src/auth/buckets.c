#include "auth/buckets.h"

#include <sodium.h>

#define SETS 1024
#define WAYS 4
#define SECOND 1000000000LL

struct bucket {
	char name[64];
	double tokens;
	int64_t at_ns; /* 0: free */
	bool refused;
};

struct buckets {
	unsigned char
		key[crypto_shorthash_KEYBYTES]; /* random, so that a client cannot aim at one set */
	struct bucket all[SETS][WAYS];
};

struct buckets *buckets_new(void)
{
	struct buckets *b = must_alloc(calloc(1, sizeof(*b)));

	randombytes_buf(b->key, sizeof(b->key));
	return b;
}

void buckets_free(struct buckets *b)
{
	free(b);
}

static struct bucket *find_bucket(struct buckets *b, const char *name, uint32_t burst, int64_t now)
{
	unsigned char hash[crypto_shorthash_BYTES];
	struct bucket *set, *oldest;
	unsigned place;

	crypto_shorthash(hash, (const unsigned char *)name, strlen(name), b->key);
	memcpy(&place, hash, sizeof(place));
	set = oldest = b->all[place % SETS];
	for (struct bucket *k = set; k < set + WAYS; k++) {
		if (k->at_ns && str_equal(k->name, name))
			return k;
		if (k->at_ns < oldest->at_ns)
			oldest = k;
	}
	*oldest = (struct bucket){.tokens = burst, .at_ns = now};
	strncpy(oldest->name, name, sizeof(oldest->name) - 1);
	return oldest;
}

static unsigned take(struct buckets *b, const char *name, double per_ns, uint32_t burst,
		     int64_t now_ns, bool *ret_first)
{
	struct bucket *k = find_bucket(b, name, burst, now_ns);
	double wait;

	k->tokens += (double)(now_ns - k->at_ns) * per_ns;
	if (k->tokens > burst)
		k->tokens = burst;
	k->at_ns = now_ns;
	if (k->tokens >= 1) {
		k->tokens -= 1;
		k->refused = false;
		return 0;
	}
	if (ret_first)
		*ret_first = !k->refused;
	k->refused = true;
	wait = (1 - k->tokens) / per_ns / (double)SECOND;
	return wait > 3600 ? 3600 : wait < 1 ? 1 : (unsigned)(wait + 0.99);
}

unsigned buckets_take(struct buckets *b, const char *name, uint32_t per_minute, uint32_t burst,
		      int64_t now_ns, bool *ret_first)
{
	if (ret_first)
		*ret_first = false;
	if (!per_minute)
		return 0;
	if (!burst)
		burst = per_minute > 60 ? per_minute / 6 : 10;
	return take(b, name, per_minute / 60.0 / (double)SECOND, burst, now_ns, ret_first);
}

unsigned buckets_take_of(struct buckets *b, const char *name, uint32_t count, uint64_t window_ms,
			 int64_t now_ns)
{
	return take(b, name, (double)count / (double)window_ms / 1e6, count, now_ns, NULL);
}
