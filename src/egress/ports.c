/*
 * Ports of the host. Whoever ends a connection first keeps its port for another minute (TIME_WAIT), and to one destination
 * there are no more connections than ports. So a sandbox that opens and closes one connection after the other would
 * use up what others need to reach the same server. What each leaves behind is counted by destination, and it
 * gets no more than its share.
 */
#include "egress/egress_internal.h"

#define RANGE_FILE "/proc/sys/net/ipv4/ip_local_port_range"
#define RANGE 28232 /* of a kernel that nobody has changed */

/* By a hash of the destination: a count is kept for one minute at least, and for two at most. */
struct ports {
	uint32_t now[PORT_ROWS], before[PORT_ROWS];
};

void ports_start(struct role *r)
{
	unsigned first, last;
	char text[64];

	r->port_count = RANGE;
	if (io_read_at(AT_FDCWD, RANGE_FILE, text, sizeof(text)) > 0 &&
	    sscanf(text, "%u %u", &first, &last) == 2 && last > first && last < 65536)
		r->port_count = last - first + 1;
}

static size_t row_of(const unsigned char address[16], uint16_t port)
{
	uint64_t h = 14695981039346656037ull;

	for (size_t i = 0; i < 16; i++)
		h = (h ^ address[i]) * 1099511628211ull;
	h = (h ^ port) * 1099511628211ull;
	return (h >> 20) % PORT_ROWS;
}

bool ports_has(const struct uplink *s, const unsigned char address[16], uint16_t port)
{
	size_t row = row_of(address, port);
	struct budget_pool pool = {
		.used = s->role->ports_used[row], .max = s->role->port_count, .weight = 1};
	struct budget mine = {.max = UINT64_MAX, .pool = &pool};

	if (s->open.is_operator || !s->ports)
		return true;
	mine.used = s->ports->now[row] + s->ports->before[row];
	return !mine.used || budget_has(&mine, 1);
}

void ports_note_end(const struct stream *side)
{
	struct conn *c = side->conn;
	struct uplink *s = c->uplink;
	struct sockaddr_storage to;
	socklen_t len = sizeof(to);
	unsigned char address[16];
	uint16_t port;
	size_t row;

	if (side != &c->server || side->ended || side->finished || c->peer[0] ||
	    getpeername(side->watch.fd, (struct sockaddr *)&to, &len) < 0)
		return;
	address_of(&to, address, &port);
	row = row_of(address, port);
	if (!s->ports)
		s->ports = must_alloc(calloc(1, sizeof(*s->ports)));
	s->ports->now[row]++;
	s->role->ports_used[row]++;
}

/* A minute is over. Frees them if nothing is left. */
static void forget(struct role *r, struct ports **at)
{
	struct ports *p = *at;
	bool is_empty = true;

	for (size_t i = 0; p && i < PORT_ROWS; i++) {
		r->ports_used[i] -= p->before[i];
		p->before[i] = p->now[i];
		p->now[i] = 0;
		is_empty &= !p->before[i];
	}
	if (p && is_empty) {
		free(p);
		*at = NULL;
	}
}

void ports_minute(struct role *r)
{
	forget(r, &r->ports_of_gone);
	for (struct uplink *s = r->uplinks; s; s = s->next)
		forget(r, &s->ports);
}

/* The kernel keeps the ports of a sandbox that is gone. */
void ports_done(struct uplink *s)
{
	struct ports *all = s->role->ports_of_gone;

	if (!all)
		s->role->ports_of_gone = take_ptr(s->ports);
	for (size_t i = 0; s->ports && i < PORT_ROWS; i++)
		all->now[i] += s->ports->now[i] + s->ports->before[i];
	free(s->ports);
	s->ports = NULL;
}
