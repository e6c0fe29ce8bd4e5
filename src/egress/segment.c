/*
 * The isolated segment: sandboxes of one owner and one group reach each other by name, over TCP.
 *
 * Theory of operation. There is no network between sandboxes. A sandbox is called by its name or its id, with or
 * without ".internal", and such a name gets an address as any other name does. A connection to that address is
 * relayed by a socket inside the namespace of the peer. The broker makes that socket, after it has judged owner and
 * group for itself. The socket is bound to the address that the caller's name has in the peer, so that a peer always
 * sees the same address, can look up its name and can call back. It connects to the peer's own address: a server
 * that listens on the peer's loopback only is not reached.
 */
#include "egress/egress_internal.h"

#define SUFFIX ".internal"
#define PAUSE_MS                                                                                   \
	2 /* the broker enters a namespace for each connection: no sandbox may keep it busy */

static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};

bool segment_is_isolated(const struct uplink *s)
{
	return s->rules && net_policy_mode(uplink_policy(s)) == NET_ISOLATED;
}

static bool is_called(const struct uplink *s, const char *name, size_t len)
{
	return (strlen(s->id) == len && strncasecmp(s->id, name, len) == 0) ||
	       (len && strlen(s->name) == len && memcmp(s->name, name, len) == 0);
}

static bool is_peer(const struct uplink *s, const struct uplink *other)
{
	return s->group[0] && str_equal(s->group, other->group) &&
	       str_equal(s->owner, other->owner) && segment_is_isolated(other);
}

struct uplink *segment_find(const struct uplink *s, const char *name, struct err *e)
{
	size_t len = strlen(name), end = strlen(SUFFIX);
	struct uplink *found = NULL;
	struct err ignored;

	e = e ? e : &ignored;
	if (len > end && str_equal(name + len - end, SUFFIX))
		len -= end;
	for (struct uplink *o = s->role->uplinks; o; o = o->next) {
		if (!is_called(o, name, len) || !is_peer(s, o))
			continue;
		if (found) {
			err_set(e, ERR_NOT_FOUND, "two sandboxes of the segment have this name");
			return NULL;
		}
		found = o;
	}
	if (!found)
		err_set(e, ERR_NOT_FOUND, "no sandbox of the segment has this name");
	return found;
}

void segment_set(struct uplink *s, const struct egress_segment *m)
{
	memcpy(s->group, m->group, sizeof(s->group));
	memcpy(s->name, m->name, sizeof(s->name));
	for (struct conn *c = s->conns; c; c = c->next)
		conn_check_again(c);
	segment_check_again(s);
}

void segment_check_again(struct uplink *s)
{
	for (struct uplink *o = s->role->uplinks; o; o = o->next)
		for (struct conn *c = o->conns; c; c = c->next)
			if (str_equal(c->peer, s->id))
				conn_check_again(c);
}

/* ---- sockets of the broker ---- */

/* One question at a time; the connection that has waited longest is first. */
void segment_ask_next(void *arg)
{
	struct uplink *s = arg;
	struct egress m = {.type = EGRESS_WANT_PEER};
	struct conn *next = NULL;

	for (struct conn *c = s->conns; c; c = c->next)
		if (!c->dead && c->peer_step == PEER_WAITS)
			next = c;
	if (!next || s->peer_is_asked || s->peer_next.place)
		return;
	s->peer_is_asked = true;
	next->peer_step = PEER_IS_ASKED;
	memcpy(m.peer.id, s->id, sizeof(m.peer.id));
	memcpy(m.peer.peer, next->peer, sizeof(m.peer.peer));
	m.peer.serial = next->serial;
	records_send(s->role, &m, -1);
}

void segment_dial(struct conn *c)
{
	c->peer_step = PEER_WAITS;
	segment_ask_next(c->uplink);
}

static void map4(const unsigned char v4[4], unsigned char ret[16])
{
	memcpy(ret, mapped, sizeof(mapped));
	memcpy(ret + sizeof(mapped), v4, 4);
}

static void use_socket(struct conn *c, int fd)
{
	auto_close int mine = fd;
	struct uplink *s = c->uplink, *peer = segment_find(s, c->name, NULL);
	unsigned char from4[4], from[16], to[16];
	uint32_t index;

	if (fd < 0 || !peer || !str_equal(peer->id, c->peer)) {
		conn_not_dialled(c, "the sandbox cannot be reached");
		return;
	}
	index = names_index(peer->names, s->name[0] ? s->name : s->id);
	if (!index) {
		conn_not_dialled(c, "the sandbox has no address left for another name");
		return;
	}
	net_synthetic4(index, from4);
	map4(from4, from);
	map4(peer->own4, to);
	dial_peer(c, take_fd(&mine), from, to);
}

void segment_socket(struct uplink *s, const struct egress_peer *m, int fd)
{
	struct conn *c = s->conns;

	s->peer_is_asked = false;
	loop_timer_set(s->role->loop, &s->peer_next, PAUSE_MS);
	while (c && (c->serial != m->serial || c->dead || c->peer_step != PEER_IS_ASKED))
		c = c->next;
	if (!c) {
		close_fd(&fd);
		return;
	}
	c->peer_step = PEER_NONE;
	use_socket(c, fd);
}
