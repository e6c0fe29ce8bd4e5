#include "agent/boxes.h"

#define BUCKETS 1024

struct mailboxes {
	struct mailbox *table[BUCKETS];
};

struct mailboxes *mailboxes_new(void)
{
	return must_alloc(calloc(1, sizeof(struct mailboxes)));
}

void mailboxes_free(struct mailboxes *b)
{
	for (size_t i = 0; b && i < BUCKETS; i++)
		for (struct mailbox *m = b->table[i], *next; m; m = next) {
			next = m->next;
			free(m);
		}
	free(b);
}

struct mailbox *mailbox_find(struct mailboxes *b, const char *uid, const char *owner)
{
	unsigned hash = 5381;
	struct mailbox **place, *m;

	for (const char *c = uid; *c; c++)
		hash = hash * 33 + (unsigned char)*c;
	place = &b->table[hash % BUCKETS];
	for (m = *place; m && !str_equal(m->uid, uid); m = m->next)
		;
	if (!m) {
		m = must_alloc(calloc(1, sizeof(*m)));
		snprintf(m->uid, sizeof(m->uid), "%s", uid);
		snprintf(m->owner, sizeof(m->owner), "?"); /* nobody's */
		m->next = *place;
		*place = m;
	}
	if (owner)
		snprintf(m->owner, sizeof(m->owner), "%s", owner);
	return m;
}

static uint64_t owner_bytes(const struct mailboxes *b, const char *owner)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < BUCKETS; i++)
		for (const struct mailbox *m = b->table[i]; m; m = m->next)
			if (str_equal(m->owner, owner))
				sum += m->bytes;
	return sum;
}

bool mailbox_is_tight(const struct mailbox *b)
{
	return b->count >= BOX_MESSAGES / 4 * 3 || b->bytes >= BOX_BYTES / 4 * 3;
}

int mailbox_reserve(struct mailboxes *b, struct mailbox *from, struct mailbox *to, size_t len,
		    struct err *e)
{
	if (to->count >= BOX_MESSAGES || to->bytes + len > BOX_BYTES)
		return err_field(e, ERR_LIMIT, "to",
				 "to: its mailbox is full; it reads slower than others write");
	if (owner_bytes(b, to->owner) + len > OWNER_BYTES)
		return err_set(e, ERR_LIMIT, "the mailboxes of this owner are full");
	if (from->sending >= SENDING_MOST)
		return err_set(e, ERR_LIMIT, "more than %d messages at a time", SENDING_MOST);
	if (from->sent >= SENT_MOST)
		return err_set(e, ERR_LIMIT, "more than %d messages within an hour", SENT_MOST);
	from->sending++;
	from->sent++;
	to->count++;
	to->bytes += len;
	return 0;
}

void mailbox_forget(struct mailbox *b, uint64_t count, uint64_t bytes)
{
	b->count -= b->count < count ? b->count : count;
	b->bytes -= b->bytes < bytes ? b->bytes : bytes;
}

void mailbox_unreserve(struct mailbox *from, struct mailbox *to, size_t len)
{
	from->sent -= from->sent > 0;
	mailbox_forget(to, 1, len);
}
