/*
 * Attempts of sandboxes to reach something: the audit log gets each of them, those of one kind together, and the
 * front hears of all.
 */
#include "audit/audit.h"
#include "base/log.h"
#include "daemon/broker/broker_internal.h"

#define TOGETHER_NS 10000000000LL
#define HELD_MS 1000

static void write_entry(struct daemon *d, const struct audit_entry *entry);

/* Without a log of what goes out nothing new goes out. */
static void on_written(void *arg, const struct err *e)
{
	struct daemon *d = arg;
	bool holds = e != NULL;
	struct egress m = {.type = holds ? EGRESS_HOLD : EGRESS_GO_ON};

	if (holds)
		loop_timer_set(d->loop, &d->egress.held, HELD_MS);
	if (holds == d->egress.is_held)
		return;
	d->egress.is_held = holds;
	log_warn(holds ? "new connections of sandboxes are refused: the audit log cannot be written"
		       : "new connections of sandboxes are allowed again");
	egress_tell(d, &m, NULL, 0);
}

/* An entry that can be written lets connections through again. */
void attempts_try_again(void *arg)
{
	struct audit_entry entry = {.who = "daemon", .what = "net.hold", .verdict = "done"};
	struct daemon *d = arg;

	if (d->egress.is_held)
		write_entry(d, &entry);
}

static void write_entry(struct daemon *d, const struct audit_entry *entry)
{
	if (d->audit)
		audit_write(d->audit, entry, on_written, d);
}

static uint64_t kind_of(const struct egress_record *r)
{
	uint64_t hash = 14695981039346656037u;
	const char *texts[] = {r->name, r->name[0] ? "" : r->address, r->rule, r->why, r->secret};

	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		for (const char *at = texts[i]; *at; at++)
			hash = (hash ^ (unsigned char)*at) * 1099511628211u;
	return ((hash ^ r->port) * 1099511628211u ^ r->phase ^ (uint64_t)r->udp << 8) | 1;
}

static void write_group(struct daemon *d, struct net_group *g)
{
	if (!g->more)
		return;
	snprintf(g->entry.why, sizeof(g->entry.why), "%u more like this", g->more);
	g->more = 0;
	write_entry(d, &g->entry);
}

static void fill_entry(const struct box *b, const struct egress_record *r,
		       struct audit_entry *entry)
{
	const char *owner = b->i.info.owner, *name = daemon_owner_name(b->d, owner);
	bool allowed = r->phase == EGRESS_OPENED;

	*entry = (struct audit_entry){.who = "operator"};
	if (owner[0])
		snprintf(entry->who, sizeof(entry->who), "%s%s%s", owner, name[0] ? " " : "", name);
	snprintf(entry->what, sizeof(entry->what), "%s",
		 r->secret[0]		     ? "secret.use"
		 : r->phase == EGRESS_LOOKUP ? "net.lookup"
					     : "net.connect");
	snprintf(entry->target, sizeof(entry->target), "%s %s%.100s:%u", b->i.info.id,
		 r->udp ? "udp://" : "", r->name[0] ? r->name : r->address, r->port);
	snprintf(entry->verdict, sizeof(entry->verdict), "%s",
		 allowed		     ? "allow"
		 : r->phase == EGRESS_FAILED ? "fail"
					     : "deny");
	snprintf(entry->why, sizeof(entry->why), "%.250s",
		 r->secret[0] ? r->secret
		 : r->why[0]  ? r->why
			      : r->rule);
}

static void audit_attempt(struct box *b, const struct egress_record *r)
{
	uint64_t kind = kind_of(r);
	struct net_group *g;
	int64_t now = now_ns();

	/* The end of a connection is in the record that the front keeps. */
	if (r->phase == EGRESS_CLOSED)
		return;
	if (!b->net->groups)
		b->net->groups = must_alloc(calloc(NET_GROUPS, sizeof(*b->net->groups)));
	g = &b->net->groups[kind % NET_GROUPS];
	if (g->kind == kind && now - g->since_ns < TOGETHER_NS) {
		g->more += r->count ? r->count : 1;
		return;
	}
	write_group(b->d, g);
	g->kind = kind;
	g->since_ns = now;
	g->more = r->count > 1 ? r->count - 1 : 0;
	fill_entry(b, r, &g->entry);
	write_entry(b->d, &g->entry);
}

void attempt_record(struct box *b, const struct egress_record *r)
{
	struct ipc m = {.type = IPC_NET_RECORD, .net_record = *r};

	if (r->secret[0])
		secrets_count_use(b, r);
	audit_attempt(b, r);
	/* A front that does not read fast enough misses attempts; the audit log has them. */
	if (!front_is_slow(b->d))
		front_news(b->d, &m, -1);
}

void attempts_flush(struct box *b)
{
	for (size_t i = 0; b->net->groups && i < NET_GROUPS; i++)
		write_group(b->d, &b->net->groups[i]);
}
