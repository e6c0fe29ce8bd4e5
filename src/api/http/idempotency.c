/*
 * Idempotency-Key: a request that is sent again, because its client lost the connection, gets the answer of
 * the first one and is not carried out twice. Answers that succeed are kept for an hour, in memory: they do
 * not survive a restart of the daemon. A failed request is forgotten, so that it can be tried again.
 */
#include "api/http/http_internal.h"

#include "manager/manager.h"

#include <sodium.h>

#define KEPT_NS (3600 * 1000000000LL)
#define ENTRIES 4096
#define ENTRIES_OF_TENANT 256
#define REPLY_MAX (256u << 10)
#define KEY_MAX 255

struct idempotent {
	TAILQ_ENTRY(idempotent) all; /* the oldest first */
	unsigned char id[IDEMPOTENCY_ID], body[IDEMPOTENCY_ID];
	struct budget *tenant; /* the tenant's share of output, in which the reply is counted */
	int64_t at_ns;
	int status; /* 0: still running */
	char *type, *reply;
	size_t len;
};

static void forget(struct server *s, struct idempotent *i)
{
	TAILQ_REMOVE(&s->idempotent, i, all);
	budget_give(i->tenant, i->len);
	free(i->type);
	free(i->reply);
	free(i);
}

void idempotency_free(struct server *s)
{
	while (!TAILQ_EMPTY(&s->idempotent))
		forget(s, TAILQ_FIRST(&s->idempotent));
}

/* By tenant, route and key: another tenant's key of the same name is another key. */
static void make_id(const struct exchange *x, const char *key, unsigned char *ret)
{
	const char *parts[] = {x->caller.token, x->method, x->path, x->query, key};
	crypto_generichash_state h;

	crypto_generichash_init(&h, NULL, 0, IDEMPOTENCY_ID);
	for (size_t i = 0; i < ARRAY_LEN(parts); i++)
		crypto_generichash_update(&h, (const unsigned char *)parts[i],
					  strlen(parts[i]) + 1);
	crypto_generichash_final(&h, ret, IDEMPOTENCY_ID);
}

/* Looks for the entry, and forgets what is too old. A request that still runs is not forgotten. */
static struct idempotent *find_entry(struct server *s, const unsigned char *id)
{
	int64_t now = now_ns();
	struct idempotent *i, *next, *found = NULL;

	for (i = TAILQ_FIRST(&s->idempotent); i; i = next) {
		next = TAILQ_NEXT(i, all);
		if (i->status && now - i->at_ns > KEPT_NS)
			forget(s, i);
		else if (memcmp(i->id, id, IDEMPOTENCY_ID) == 0)
			found = i;
	}
	return found;
}

/*
 * Forgets the oldest answer, so that there is room for one more: the tenant's own, and another tenant's only
 * for one that has none. False: too many requests still run.
 */
static bool make_room(struct server *s, const struct budget *tenant)
{
	struct idempotent *i, *own = NULL, *any = NULL;
	size_t count = 0, all = 0;

	TAILQ_FOREACH (i, &s->idempotent, all) {
		all++;
		count += i->tenant == tenant;
		any = any || !i->status ? any : i;
		own = own || !i->status || i->tenant != tenant ? own : i;
	}
	if (count < ENTRIES_OF_TENANT && all < ENTRIES)
		return true;
	if (!own && !count)
		own = any;
	if (own)
		forget(s, own);
	return own;
}

static bool is_key(const char *key)
{
	size_t len = strlen(key);

	for (size_t i = 0; i < len; i++)
		if (key[i] <= ' ' || key[i] > '~')
			return false;
	return len > 0 && len <= KEY_MAX;
}

static void replay(struct exchange *x, const struct idempotent *i, const unsigned char *body)
{
	if (memcmp(i->body, body, IDEMPOTENCY_ID) != 0) {
		exchange_fail(x, ERR_CONFLICT,
			      "this Idempotency-Key was used for a request with another body");
	} else if (!i->status) {
		exchange_set_header(x, "Retry-After", "1");
		exchange_fail(x, ERR_CONFLICT,
			      "the first request with this Idempotency-Key still runs");
	} else {
		exchange_set_header(x, "Idempotency-Replayed", "true");
		exchange_reply(x, i->status, i->type, i->reply, i->len);
	}
}

void idempotency_feed(struct exchange *x, const char *bytes, size_t len)
{
	struct exchange_internal *in = x->internal;
	crypto_generichash_state *h = in->body_hash;

	if (!exchange_header(x, "Idempotency-Key"))
		return;
	if (!h) {
		in->body_hash = h =
			must_alloc(aligned_alloc(_Alignof(crypto_generichash_state), sizeof(*h)));
		crypto_generichash_init(h, NULL, 0, IDEMPOTENCY_ID);
	}
	crypto_generichash_update(h, (const unsigned char *)bytes, len);
}

bool idempotency_begin(struct exchange *x)
{
	const char *key = exchange_header(x, "Idempotency-Key");
	struct server *s = x->internal->server;
	unsigned char body[IDEMPOTENCY_ID];
	struct budget *tenant;
	struct idempotent *i;

	if (!key || x->door->id != DOOR_REST || !str_equal(x->method, "POST") ||
	    !(x->route->scope & SCOPE_RUN))
		return false;
	if (!is_key(key)) {
		exchange_refuse(x, "Idempotency-Key", "wants 1 to %d visible characters", KEY_MAX);
		return true;
	}
	make_id(x, key, x->internal->idempotency);
	idempotency_feed(x, "", 0);
	crypto_generichash_final(x->internal->body_hash, body, sizeof(body));
	tenant = shares_of(manager_shares(x->api->manager), x->caller.token, SHARE_OUTPUT);
	i = find_entry(s, x->internal->idempotency);
	if (i) {
		replay(x, i, body);
		return true;
	}
	if (!make_room(s, tenant)) {
		exchange_fail(x, ERR_LIMIT, "too many requests with an Idempotency-Key still run");
		return true;
	}
	i = must_alloc(calloc(1, sizeof(*i)));
	memcpy(i->id, x->internal->idempotency, sizeof(i->id));
	memcpy(i->body, body, sizeof(i->body));
	i->tenant = tenant;
	i->at_ns = now_ns();
	TAILQ_INSERT_TAIL(&s->idempotent, i, all);
	x->internal->is_idempotent = true;
	return false;
}

void idempotency_end(struct exchange *x)
{
	struct exchange_internal *in = x->internal;
	struct server *s = in->server;
	struct idempotent *i;

	if (!in->is_idempotent)
		return;
	in->is_idempotent = false;
	TAILQ_FOREACH (i, &s->idempotent, all)
		if (memcmp(i->id, in->idempotency, sizeof(i->id)) == 0 && !i->status)
			break;
	if (!i)
		return;
	if (!in->has_reply || in->status >= 300 || in->reply_len > REPLY_MAX ||
	    !budget_take(i->tenant, in->reply_len)) {
		forget(s, i);
		return;
	}
	i->status = in->status;
	i->type = in->reply_type ? str_copy(in->reply_type) : NULL;
	i->len = in->reply_len;
	i->reply = must_alloc(malloc(i->len + 1));
	memcpy(i->reply, in->reply, i->len);
}
