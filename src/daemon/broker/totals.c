/*
 * Memory and disk of all sandboxes, and of those of one owner. The front counts, too, and shares them out; these
 * bounds hold even if the front lies. Sandboxes for one run are counted apart, as their number is: they come and
 * go, and no client would know what to destroy.
 */
#include "daemon/broker/broker_internal.h"

#include "auth/tokens.h"

struct totals {
	uint64_t memory, disk;
};

static struct totals of(const struct limits *l)
{
	/* Without a limit of its own, the disk is a half of the memory. */
	return (struct totals){l->memory_bytes,
			       l->disk_bytes ? l->disk_bytes : l->memory_bytes / 2};
}

static void add(struct totals *t, struct totals more)
{
	t->memory = more.memory > UINT64_MAX - t->memory ? UINT64_MAX : t->memory + more.memory;
	t->disk = more.disk > UINT64_MAX - t->disk ? UINT64_MAX : t->disk + more.disk;
}

static bool counts(const struct box *b, bool transient)
{
	return b->state != BOX_DYING && !b->i.is_doomed && b->i.info.transient == transient &&
	       !str_equal(b->i.info.owner, "-");
}

/* Of this owner's sandboxes, or of all (NULL); without the one that is to change. */
static struct totals sum(const struct daemon *d, const char *owner, bool transient,
			 const struct box *without)
{
	struct totals t = {0};

	for (size_t i = 0; i < BOX_BUCKETS; i++)
		for (const struct box *b = d->boxes[i]; b; b = b->next)
			if (b != without && counts(b, transient) &&
			    (!owner || str_equal(b->i.info.owner, owner)))
				add(&t, of(&b->i.info.limits));
	return t;
}

static bool fits(struct totals t, struct totals more, struct totals most)
{
	add(&t, more);
	return (!most.memory || t.memory <= most.memory) && (!most.disk || t.disk <= most.disk);
}

/* Of a tenant the front knows which of its tokens asks: the largest counts. 0: no bound. */
static struct totals most_of(const struct daemon *d, const char *owner)
{
	struct totals most = {0};
	bool memory = false, disk = false;

	for (size_t i = 0; owner[0] && i < tokens_count(d->tokens); i++) {
		const struct token *t = tokens_at(d->tokens, i);

		if (!token_is_of(t, owner))
			continue;
		memory = memory || !t->memory_total;
		disk = disk || !t->disk_total;
		most.memory = t->memory_total > most.memory ? t->memory_total : most.memory;
		most.disk = t->disk_total > most.disk ? t->disk_total : most.disk;
	}
	return (struct totals){memory ? 0 : most.memory, disk ? 0 : most.disk};
}

static int refuse(const char *whose, struct totals most, struct err *e)
{
	return err_set(e, ERR_LIMIT,
		       "the sandboxes of %s may have %" PRIu64 " MB of memory and %" PRIu64
		       " MB of disk together",
		       whose, most.memory >> 20, most.disk >> 20);
}

int totals_check(struct daemon *d, const struct box *without, const struct new_totals *n,
		 struct err *e)
{
	struct totals all = {d->config->memory_total, d->config->disk_total};
	struct totals own = most_of(d, n->owner), more = of(n->limits), now;
	struct let_in *in = &d->let_in[n->transient];

	if ((own.memory || own.disk) && !fits(sum(d, n->owner, n->transient, without), more, own))
		return refuse("this owner", own, e);
	/* Counting takes long if there are many. What was let in since the last time is never too little. */
	now = (struct totals){in->memory, in->disk};
	if (!in->is_known || !fits(now, more, all))
		now = sum(d, NULL, n->transient, without);
	if (!fits(now, more, all))
		return refuse("this daemon", all, e);
	add(&now, more);
	*in = (struct let_in){true, now.memory, now.disk};
	return 0;
}
