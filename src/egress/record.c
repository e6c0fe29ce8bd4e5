/* What the broker or keeper is told: connections, denials (grouped), meters. Nothing is lost, and nothing grows. */
#include "egress/egress_internal.h"

#define QUEUE_MAX 2048	/* messages that wait; then no connection is accepted */
#define DENIAL_KINDS 64 /* of one sandbox and second */

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

struct denials {
	size_t count;
	uint32_t more;				 /* of other kinds, since there is no place */
	struct egress_record rows[DENIAL_KINDS]; /* the first of a kind goes out at once */
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

void record_send(struct uplink *s, struct egress_record *r)
{
	struct egress m = {.type = EGRESS_RECORD};

	memcpy(r->id, s->id, sizeof(r->id));
	m.record = *r;
	records_send(s->role, &m, -1);
}

void record_conn(struct conn *c, enum egress_phase phase, const char *why)
{
	struct egress m = {.type = EGRESS_RECORD};

	c->opened |= phase == EGRESS_OPENED;
	fill_record(c, phase, why, &m.record);
	records_send(c->uplink->role, &m, -1);
}

void record_use(struct conn *c, const char *secret)
{
	struct egress m = {.type = EGRESS_RECORD};
	char text[128];

	snprintf(text, sizeof(text), "secret %.64s was used", secret);
	fill_record(c, EGRESS_OPENED, text, &m.record);
	copy_text(m.record.secret, sizeof(m.record.secret), secret);
	records_send(c->uplink->role, &m, -1);
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

/* ---- denials ---- */

static bool is_same(const struct egress_record *a, const struct egress_record *b)
{
	return a->port == b->port && a->udp == b->udp && a->phase == b->phase &&
	       str_equal(a->name, b->name) && str_equal(a->address, b->address) &&
	       str_equal(a->why, b->why);
}

static void send_row(struct uplink *s, struct egress_record *row)
{
	record_send(s, row);
	row->count = 0;
}

void record_denial(struct uplink *s, const struct denial *d)
{
	struct egress_record now = {.started_ms = unix_ms(),
				    .phase = (uint8_t)d->phase,
				    .port = d->port,
				    .udp = d->udp,
				    .count = 1};
	struct denials *all = s->denials;

	s->meter.denied++;
	if (!all)
		all = s->denials = must_alloc(calloc(1, sizeof(*all)));
	copy_text(now.name, sizeof(now.name), d->name);
	copy_text(now.address, sizeof(now.address), d->address);
	copy_text(now.rule, sizeof(now.rule), d->rule);
	copy_text(now.why, sizeof(now.why), d->why);
	copy_text(now.remedy, sizeof(now.remedy), d->remedy);
	for (size_t i = 0; i < all->count; i++)
		if (is_same(&all->rows[i], &now)) {
			all->rows[i].count++;
			return;
		}
	if (all->count == DENIAL_KINDS) {
		all->more++;
		return;
	}
	all->rows[all->count] = now;
	send_row(s, &all->rows[all->count++]);
}

/* Tells how often each was repeated; the kinds of this second are then forgotten. */
void record_tick(struct uplink *s)
{
	struct denials *all = s->denials;

	if (!all)
		return;
	for (size_t i = 0; i < all->count; i++)
		if (all->rows[i].count)
			send_row(s, &all->rows[i]);
	if (all->more) {
		struct egress_record rest = {
			.started_ms = unix_ms(), .phase = EGRESS_DENIED, .count = all->more};

		copy_text(rest.why, sizeof(rest.why), "too many different destinations");
		send_row(s, &rest);
	}
	free(all);
	s->denials = NULL;
}

void record_done(struct uplink *s)
{
	free(s->denials);
	s->denials = NULL;
}
