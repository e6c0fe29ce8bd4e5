/* What the broker or keeper is told: attempts, one by one or grouped, and meters. Nothing is lost, and nothing grows. */
#include "egress/egress_internal.h"

#define QUEUE_MAX 2048 /* messages that wait; then no connection is accepted */
#define TOLD_ALONE 256 /* records of one sandbox and second; others are told together, by kind */
#define GROUPS 64      /* kinds */

struct queued {
	struct queued *next;
	int fd;
	size_t len;
	char bytes[];
};

struct records {
	struct queued *first, **end;
	size_t count;
};

struct records *records_new(struct role *r)
{
	struct records *q = must_alloc(calloc(1, sizeof(*q)));

	q->end = &q->first;
	return q;
}

bool records_full(const struct role *r)
{
	return r->records->count >= QUEUE_MAX;
}

static void watch_for_room(struct role *r, bool wanted)
{
	loop_change(r->loop, &r->control, EPOLLIN | (wanted ? EPOLLOUT : 0));
}

static void enqueue(struct role *r, const struct egress *m, int fd)
{
	size_t len = egress_size(m->type);
	struct queued *q = must_alloc(malloc(sizeof(*q) + len));

	*q = (struct queued){.fd = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1, .len = len};
	memcpy(q->bytes, m, len);
	*r->records->end = q;
	r->records->end = &q->next;
	r->records->count++;
	watch_for_room(r, true);
}

void records_send(struct role *r, const struct egress *m, int fd)
{
	if (!r->records->first && egress_send(r->control.fd, m, &fd, fd >= 0) == 0)
		return;
	/* The other side is gone: the loop notices by itself. */
	if (!r->records->first && errno != EAGAIN && errno != ENOBUFS)
		return;
	enqueue(r, m, fd);
}

void records_flush(struct role *r)
{
	struct records *x = r->records;
	struct queued *q;

	while ((q = x->first)) {
		struct egress m;

		memcpy(&m, q->bytes, q->len);
		if (egress_send(r->control.fd, &m, &q->fd, q->fd >= 0) < 0 &&
		    (errno == EAGAIN || errno == ENOBUFS))
			return;
		x->first = q->next;
		if (!x->first)
			x->end = &x->first;
		x->count--;
		close_fd(&q->fd);
		free(q);
	}
	watch_for_room(r, false);
}

static void copy_text(char *to, size_t size, const char *from)
{
	if (from)
		snprintf(to, size, "%s", from);
}

/* ---- what is told together ---- */

struct groups {
	size_t count;
	uint32_t more[EGRESS_LOOKUP + 1];  /* of other kinds, since there is no place; by phase */
	struct egress_record rows[GROUPS]; /* count: how many are not told yet */
};

static bool is_same(const struct egress_record *a, const struct egress_record *b)
{
	return a->port == b->port && a->udp == b->udp && a->phase == b->phase &&
	       str_equal(a->name, b->name) && str_equal(a->address, b->address) &&
	       str_equal(a->why, b->why) && str_equal(a->secret, b->secret);
}

static void send_record(struct uplink *s, const struct egress_record *r)
{
	struct egress m = {.type = EGRESS_RECORD};

	m.record = *r;
	memcpy(m.record.id, s->id, sizeof(m.record.id));
	records_send(s->role, &m, -1);
}

static struct egress_record *find_group(struct uplink *s, const struct egress_record *r)
{
	struct groups *all = s->groups;

	for (size_t i = 0; all && i < all->count; i++)
		if (is_same(&all->rows[i], r))
			return &all->rows[i];
	return NULL;
}

/* NULL: there is no place. */
static struct egress_record *add_group(struct uplink *s, const struct egress_record *r)
{
	struct groups *all = s->groups;

	if (!all)
		all = s->groups = must_alloc(calloc(1, sizeof(*all)));
	if (all->count == GROUPS)
		return NULL;
	all->rows[all->count] = *r;
	return &all->rows[all->count++];
}

/* To what is told when the second ends. */
static void put_off(struct uplink *s, const struct egress_record *r)
{
	struct egress_record *g = find_group(s, r);

	if (!g && add_group(s, r))
		return;
	if (!g && r->secret[0])
		send_record(s, r); /* uses are bounded by their number */
	else if (!g)
		s->groups->more[r->phase]++;
	if (!g)
		return;
	g->count++;
	g->tx_bytes += r->tx_bytes;
	g->rx_bytes += r->rx_bytes;
	g->duration_ms += r->duration_ms;
}

/*
 * The first records of each second are told one by one. A sandbox that makes requests as fast as it can would keep the
 * broker, the front and the audit log busy with nothing else.
 */
void record_send(struct uplink *s, const struct egress_record *r)
{
	struct egress_record row = *r;

	if (s->told_alone < TOLD_ALONE && !records_full(s->role)) {
		s->told_alone++;
		send_record(s, r);
		return;
	}
	/* A path of each request would make each of them a kind of its own. */
	if (row.why[0] && row.phase == EGRESS_OPENED && !row.secret[0])
		copy_text(row.why, sizeof(row.why), "more requests");
	row.serial = 0;
	put_off(s, &row);
}

/* Tells how often each was repeated; the kinds of this second are then forgotten. */
void record_tick(struct uplink *s)
{
	struct groups *all = s->groups;

	s->told_alone = 0;
	if (!all)
		return;
	for (size_t i = 0; i < all->count; i++)
		if (all->rows[i].count)
			send_record(s, &all->rows[i]);
	for (size_t phase = 0; phase < ARRAY_LEN(all->more); phase++) {
		struct egress_record rest = {.started_ms = unix_ms(),
					     .phase = (uint8_t)phase,
					     .count = all->more[phase]};

		copy_text(rest.why, sizeof(rest.why), "too many different destinations");
		if (rest.count)
			send_record(s, &rest);
	}
	record_done(s);
}

void record_done(struct uplink *s)
{
	free(s->groups);
	s->groups = NULL;
}

/* ---- connections ---- */

static void fill_record(struct conn *c, enum egress_phase phase, const char *why,
			struct egress_record *ret)
{
	memcpy(ret->id, c->uplink->id, sizeof(ret->id));
	ret->serial = c->serial;
	ret->started_ms = c->started_ms;
	ret->phase = (uint8_t)phase;
	ret->inspected = c->inspected;
	ret->port = c->port;
	copy_text(ret->name, sizeof(ret->name), c->name);
	if (!c->peer[0] && (!c->name[0] || c->upstream == UPSTREAM_OPEN))
		net_address_text(c->address, false, ret->address);
	copy_text(ret->rule, sizeof(ret->rule), c->answer.rule);
	copy_text(ret->why, sizeof(ret->why), why);
	ret->tx_bytes = c->tx_bytes;
	ret->rx_bytes = c->rx_bytes;
	ret->duration_ms = (uint64_t)(now_ns() - c->started_ns) / 1000000;
	ret->count = 1;
}

void record_conn(struct conn *c, enum egress_phase phase, const char *why)
{
	struct egress_record r = {0};

	c->opened |= phase == EGRESS_OPENED;
	fill_record(c, phase, why, &r);
	record_send(c->uplink, &r);
}

void record_use(struct conn *c, const char *secret)
{
	struct egress_record r = {0};
	char text[128];

	snprintf(text, sizeof(text), "secret %.64s was used", secret);
	fill_record(c, EGRESS_OPENED, text, &r);
	copy_text(r.secret, sizeof(r.secret), secret);
	record_send(c->uplink, &r);
}

void record_ask(struct conn *c)
{
	struct egress m = {.type = EGRESS_ASK};

	fill_record(c, EGRESS_DENIED, c->answer.why, &m.record);
	copy_text(m.record.remedy, sizeof(m.record.remedy), c->answer.remedy);
	records_send(c->uplink->role, &m, -1);
}

void record_meter(struct uplink *s, uint32_t type)
{
	struct egress m = {.type = type, .meter = s->meter};

	records_send(s->role, &m, -1);
}

/* The first of a kind is told at once. */
void record_denial(struct uplink *s, const struct denial *d)
{
	struct egress_record r = {.started_ms = unix_ms(),
				  .phase = (uint8_t)d->phase,
				  .port = d->port,
				  .udp = d->udp,
				  .count = 1};
	struct egress_record *g;

	s->meter.denied++;
	copy_text(r.name, sizeof(r.name), d->name);
	copy_text(r.address, sizeof(r.address), d->address);
	copy_text(r.rule, sizeof(r.rule), d->rule);
	copy_text(r.why, sizeof(r.why), d->why);
	copy_text(r.remedy, sizeof(r.remedy), d->remedy);
	g = find_group(s, &r);
	if (g) {
		g->count++;
		return;
	}
	g = add_group(s, &r);
	if (!g)
		s->groups->more[r.phase]++;
	if (!g || records_full(s->role))
		return;
	send_record(s, g);
	g->count = 0;
}
