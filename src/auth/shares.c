/* Shares of tenants; see shares.h. */
#include "auth/shares.h"

#include "wire/ipc.h"

#include <sodium.h>

#define TENANT_BUCKETS 256

static const struct {
	const char *name, *what;
	unsigned weight; /* where one tenant alone may well need most of it, more than 1 */
} rows[SHARE_COUNT] = {
	[SHARE_CONNECTIONS] = {"connections", "connections", 1},
	[SHARE_BODIES] = {"bodies", "memory for request bodies", 1},
	[SHARE_OUTPUT] = {"output", "memory for output", 1},
	[SHARE_UPLOADS] = {"uploads", "places for uploads", 1},
	[SHARE_SNAPSHOTS] = {"snapshots", "space for snapshots", 4},
	[SHARE_JOBS] = {"jobs", "places in the queue of boots", 4},
	[SHARE_SANDBOXES] = {"sandboxes", "sandboxes", 1},
	[SHARE_MEMORY] = {"memory", "memory for sandboxes", 4},
	[SHARE_DISK] = {"disk", "disk for sandboxes", 4},
	[SHARE_SESSIONS] = {"sessions", "sessions", 1},
};

struct tenant {
	char name[IPC_ID];
	struct budget budgets[SHARE_COUNT];
	struct loop_user user;
	struct tenant *next;
};

struct shares {
	unsigned char key[crypto_shorthash_KEYBYTES];
	struct budget_pool pools[SHARE_COUNT];
	struct tenant *table[TENANT_BUCKETS];
};

struct shares *shares_new(void)
{
	struct shares *s = must_alloc(calloc(1, sizeof(*s)));

	randombytes_buf(s->key, sizeof(s->key));
	for (int i = 0; i < SHARE_COUNT; i++) {
		s->pools[i].weight = rows[i].weight;
		shares_set_max(s, (enum share)i, 0);
	}
	return s;
}

void shares_free(struct shares *s)
{
	for (size_t i = 0; s && i < TENANT_BUCKETS; i++) {
		struct tenant *next;

		for (struct tenant *t = s->table[i]; t; t = next) {
			next = t->next;
			free(t);
		}
	}
	free(s);
}

void shares_set_max(struct shares *s, enum share kind, uint64_t max)
{
	const uint64_t unbounded = UINT64_MAX / 16; /* may be multiplied by a weight */

	s->pools[kind].max = max && max < unbounded ? max : unbounded;
}

static struct tenant *find_tenant(struct shares *s, const char *name)
{
	unsigned char hash[crypto_shorthash_BYTES];
	struct tenant **place, *t;

	crypto_shorthash(hash, (const unsigned char *)name, strlen(name), s->key);
	place = &s->table[hash[0]];
	for (t = *place; t; t = t->next)
		if (str_equal(t->name, name))
			return t;
	t = must_alloc(calloc(1, sizeof(*t)));
	strncpy(t->name, name, sizeof(t->name) - 1);
	for (int i = 0; i < SHARE_COUNT; i++)
		t->budgets[i] = (struct budget){
			.max = UINT64_MAX, .pool = &s->pools[i], .is_operator = !*name};
	t->next = *place;
	return *place = t;
}

struct budget *shares_of(struct shares *s, const char *tenant, enum share kind)
{
	return &find_tenant(s, tenant)->budgets[kind];
}

struct loop_user *shares_user(struct shares *s, const char *tenant)
{
	return &find_tenant(s, tenant)->user;
}

int shares_refuse(enum share kind, struct err *e)
{
	return err_set(e, ERR_LIMIT,
		       "%s: this token's share is used up; try again when less of it is in use",
		       rows[kind].what);
}

const char *share_name(enum share kind)
{
	return rows[kind].name;
}

void shares_each(const struct shares *s,
		 void (*call)(void *arg, const char *tenant, const struct budget *budgets),
		 void *arg)
{
	for (size_t i = 0; i < TENANT_BUCKETS; i++)
		for (const struct tenant *t = s->table[i]; t; t = t->next)
			call(arg, t->name, t->budgets);
}
