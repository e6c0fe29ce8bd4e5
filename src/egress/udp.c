/*
 * UDP by rule. A flow is what one socket inside sends to one address and port, and what comes back. It has a
 * connected socket outside, so that only the address that was checked can answer. A sandbox has few flows at one
 * time: the one that was quiet for longest makes place for another.
 */
#include "egress/egress_internal.h"

#include <netinet/in.h>

#define FLOWS_MAX 256
#define AT_ONCE 64
#define IDLE_MS 120000	  /* RFC 4787 */
#define WAITING_MAX 16384 /* bytes of datagrams until the name is resolved */
#define DATAGRAM_MAX 65536

struct flow {
	struct flow *next, **back; /* the last one used first */
	struct uplink *uplink;
	struct listener *listener;
	struct datagram client;
	char *name; /* "": an address was asked */
	unsigned char address[16];
	bool has_address;
	const char *rule; /* of the index */
	struct resolver_query query;
	struct loop_watch watch; /* fd -1: not yet resolved */
	struct loop_timer timer;
	struct buf waiting; /* each with a uint16_t of its length in front */
	uint64_t serial, started_ms, tx_bytes, rx_bytes;
	int64_t started_ns, active_ns;
};

struct flows {
	struct flow *first;
	size_t count;
};

/* ---- life ---- */

static void link_first(struct flow *f)
{
	struct flows *all = f->uplink->flows;

	f->next = all->first;
	f->back = &all->first;
	if (f->next)
		f->next->back = &f->next;
	all->first = f;
}

static void unlink_flow(struct flow *f)
{
	*f->back = f->next;
	if (f->next)
		f->next->back = f->back;
}

static void flow_free(struct flow *f)
{
	struct uplink *s = f->uplink;

	unlink_flow(f);
	s->flows->count--;
	resolver_cancel(&f->query);
	loop_timer_stop(s->role->loop, &f->timer);
	loop_unwatch(s->role->loop, &f->watch);
	close_fd(&f->watch.fd);
	buf_done(&f->waiting);
	budget_give(&s->open, 1);
	s->meter.open--;
	free(f->name);
	free(f);
}

static void keep_address(struct flow *f, const unsigned char address[16])
{
	memcpy(f->address, address, 16);
	f->has_address = true;
}

static void tell(struct flow *f, enum egress_phase phase, const char *why)
{
	struct egress_record r = {.serial = f->serial,
				  .started_ms = f->started_ms,
				  .phase = (uint8_t)phase,
				  .udp = true,
				  .port = f->listener->port,
				  .tx_bytes = f->tx_bytes,
				  .rx_bytes = f->rx_bytes,
				  .count = 1};

	snprintf(r.name, sizeof(r.name), "%s", f->name);
	snprintf(r.rule, sizeof(r.rule), "%s", f->rule);
	snprintf(r.why, sizeof(r.why), "%s", why);
	if (f->has_address)
		net_address_text(f->address, false, r.address);
	r.duration_ms = (uint64_t)(now_ns() - f->started_ns) / 1000000;
	record_send(f->uplink, &r);
}

/* why is "" if nothing is wrong. */
static void flow_end(struct flow *f, const char *why)
{
	bool was_open = f->watch.fd >= 0;

	if (was_open || why[0])
		tell(f, was_open ? EGRESS_CLOSED : EGRESS_FAILED, why);
	flow_free(f);
}

static void flow_deny(struct flow *f, const struct net_answer *a)
{
	char address[NET_ADDRESS_TEXT] = "";
	struct denial d = {.name = f->name,
			   .address = address,
			   .rule = a->rule,
			   .why = a->why,
			   .remedy = a->remedy,
			   .port = f->listener->port,
			   .udp = true,
			   .phase = EGRESS_DENIED};

	if (f->has_address)
		net_address_text(f->address, false, address);
	record_denial(f->uplink, &d);
	flow_end(f, "");
}

static void on_idle(void *arg)
{
	struct flow *f = arg;
	uint64_t most = f->uplink->role->settings.idle_ms, quiet;

	most = most && most < IDLE_MS ? most : IDLE_MS;
	quiet = (uint64_t)(now_ns() - f->active_ns) / 1000000;
	if (quiet >= most)
		flow_end(f, "");
	else
		loop_timer_set(f->uplink->role->loop, &f->timer, most - quiet);
}

/* ---- bytes ---- */

/* Takes len bytes from the budgets. False: there is no room; the flow may be gone then. */
static bool may_pass(struct flow *f, bool up, size_t len)
{
	struct uplink *s = f->uplink;
	struct bucket *b = up ? &s->up : &s->down;
	struct net_answer a = {.rule = f->rule};
	const char *used_up;

	if (b->rate && b->left <= 0) {
		uplink_refill_later(s);
		return false;
	}
	used_up = uplink_count_bytes(s, up, len);
	if (b->rate)
		b->left -= (int64_t)len;
	if (up)
		f->tx_bytes += len;
	else
		f->rx_bytes += len;
	if (!used_up)
		return true;
	snprintf(a.why, sizeof(a.why), "%s", used_up);
	flow_deny(f, &a);
	return false;
}

/* The answer to an earlier datagram may be that nobody listens. False: the flow is gone. */
static bool send_out(struct flow *f, const char *bytes, size_t len)
{
	if (!may_pass(f, true, len))
		return false;
	if (send(f->watch.fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 || errno == EAGAIN ||
	    errno == ENOBUFS || errno == EMSGSIZE)
		return true;
	flow_end(f, strerror(errno));
	return false;
}

static void on_answer(void *arg, uint32_t events)
{
	struct flow *f = arg;
	struct role *r = f->uplink->role;

	for (int i = 0; i < AT_ONCE && !loop_turn_is_over(r->loop); i++) {
		ssize_t n = recv(f->watch.fd, r->scratch, DATAGRAM_MAX, MSG_DONTWAIT);

		if (n < 0 && errno != EAGAIN && errno != EINTR) {
			flow_end(f, strerror(errno));
			return;
		}
		if (n < 0)
			return;
		f->active_ns = now_ns();
		if (may_pass(f, false, (size_t)n))
			datagram_reply(f->listener->watch.fd, &f->client, r->scratch, (size_t)n);
		else
			return;
	}
}

/* ---- the destination ---- */

static bool is_allowed(const struct flow *f, const unsigned char *address, struct net_answer *ret)
{
	struct net_question q = {.name = f->name[0] ? f->name : NULL,
				 .address = address,
				 .port = f->listener->port,
				 .udp = true};

	if (address)
		q.own = net_address_kind(address) != NET_LOOPBACK_ADDRESS &&
			address_is_own(f->uplink->role, address);
	uplink_decide(f->uplink, &q, ret);
	return ret->allowed;
}

static bool open_socket(struct flow *f, const unsigned char address[16])
{
	struct sockaddr_storage to;
	socklen_t len = address_to(address, f->listener->port, &to);
	auto_close int fd = socket(to.ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&to, len) < 0)
		return false;
	f->watch = (struct loop_watch){
		.fd = fd, .events = EPOLLIN, .call = on_answer, .arg = f, .user = &f->uplink->user};
	if (loop_watch(f->uplink->role->loop, &f->watch) < 0) {
		f->watch.fd = -1;
		return false;
	}
	take_fd(&fd);
	keep_address(f, address);
	return true;
}

static void send_waiting(struct flow *f)
{
	struct buf all = f->waiting;
	uint16_t len;

	f->waiting = (struct buf){0};
	while (all.len) {
		memcpy(&len, buf_head(&all), sizeof(len));
		if (!send_out(f, buf_head(&all) + sizeof(len), len))
			break;
		buf_drop(&all, sizeof(len) + len);
	}
	buf_done(&all);
}

/* Nothing tells whether anybody listens, so the kind that the program asked for is tried first. */
static size_t sort(const struct flow *f, const struct resolved *r,
		   const unsigned char *ret[RESOLVED_MAX])
{
	bool v4 = address_is_v4(f->client.to);
	size_t count = 0;

	for (int other = 0; other < 2; other++)
		for (size_t i = 0; r && i < r->count; i++)
			if (address_is_v4(r->addresses[i]) == (other ? !v4 : v4))
				ret[count++] = r->addresses[i];
	return count;
}

/* The first address that passes and has a route. */
static void on_resolved(void *arg, const struct resolved *r, const char *why)
{
	struct flow *f = arg;
	struct net_answer refusal = {.rule = ""}, a;
	const unsigned char *sorted[RESOLVED_MAX];
	size_t count = sort(f, r, sorted);
	bool refused = false;

	for (size_t i = 0; i < count; i++) {
		if (!is_allowed(f, sorted[i], &a)) {
			refusal = a;
			refused = true;
			keep_address(f, sorted[i]);
		} else if (open_socket(f, sorted[i])) {
			f->rule = a.rule;
			tell(f, EGRESS_OPENED, "");
			send_waiting(f);
			return;
		} else {
			why = strerror(errno);
		}
	}
	if (refused)
		flow_deny(f, &refusal);
	else
		flow_end(f, why);
}

static void resolve(struct flow *f)
{
	static const struct resolved loopback = {
		.count = 2,
		.addresses = {{[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}, {[15] = 1}}};
	struct role *r = f->uplink->role;
	struct resolved one = {.count = 1};

	if (str_equal(f->name, "localhost")) {
		on_resolved(f, &loopback, "");
	} else if (r->settings.proxy[0]) {
		flow_end(f, "UDP does not go through the operator's proxy");
	} else if (!f->name[0]) {
		memcpy(one.addresses[0], f->client.to, 16);
		on_resolved(f, &one, "");
	} else if (!r->resolver) {
		flow_end(f, "there is no resolver");
	} else {
		resolver_ask(r->resolver, f->uplink->asker, f->name, &f->query);
	}
}

/* ---- a new flow ---- */

static void make_place(struct uplink *s)
{
	struct flow *f = s->flows->first;

	while (f && f->next)
		f = f->next;
	if (f)
		flow_end(f, "");
}

static bool is_full(const struct uplink *s)
{
	const struct net_budget *b = uplink_budget(s);

	return s->flows->count >= FLOWS_MAX || !budget_has(&s->open, 1) ||
	       (b && b->open && s->meter.open >= b->open);
}

/* False: it is denied; ret says why. */
static bool may_begin(struct uplink *s, const char *name, const unsigned char to[16],
		      struct net_answer *ret, uint16_t port)
{
	struct net_question q = {.name = name && name[0] ? name : NULL,
				 .address = name && !name[0] ? to : NULL,
				 .port = port,
				 .udp = true};
	const char *why = NULL;

	*ret = (struct net_answer){.rule = ""};
	if (s->role->is_held)
		why = "audit";
	else if (!name)
		why = "no name has this address";
	if (!why) {
		uplink_decide(s, &q, ret);
		if (!ret->allowed)
			return false;
		if (is_full(s))
			make_place(s);
		why = uplink_used_up(s);
	}
	if (why)
		snprintf(ret->why, sizeof(ret->why), "%s", why);
	return !why;
}

static struct flow *flow_new(struct listener *l, const struct datagram *d, const char *name,
			     const char *rule)
{
	struct uplink *s = l->uplink;
	struct flow *f = must_alloc(calloc(1, sizeof(*f)));

	f->uplink = s;
	f->listener = l;
	f->client = *d;
	f->name = str_copy(name);
	f->rule = rule;
	f->watch.fd = -1;
	f->query = (struct resolver_query){.call = on_resolved, .arg = f};
	f->timer = (struct loop_timer){.call = on_idle, .arg = f};
	f->serial = ++s->role->serial;
	f->started_ms = unix_ms();
	f->started_ns = f->active_ns = now_ns();
	if (!name[0])
		keep_address(f, d->to);
	link_first(f);
	s->flows->count++;
	budget_count(&s->open, 1);
	s->meter.open++;
	s->meter.connections++;
	on_idle(f);
	return f;
}

static void flow_begin(struct listener *l, const struct datagram *d, const char *bytes, size_t len)
{
	struct uplink *s = l->uplink;
	char address[NET_ADDRESS_TEXT];
	uint32_t index;
	const char *name = uplink_name_of(s, d->to, &index);
	struct net_answer a;
	struct denial refused = {.name = name,
				 .address = address,
				 .why = a.why,
				 .remedy = a.remedy,
				 .port = l->port,
				 .udp = true,
				 .phase = EGRESS_DENIED};
	uint16_t size = (uint16_t)len;
	struct flow *f;

	if (!may_begin(s, name, d->to, &a, l->port)) {
		net_address_text(d->to, false, address);
		refused.rule = a.rule;
		record_denial(s, &refused);
		return;
	}
	f = flow_new(l, d, name, a.rule);
	buf_add(&f->waiting, &size, sizeof(size));
	buf_add(&f->waiting, bytes, len);
	resolve(f);
}

/* ---- datagrams from inside ---- */

static struct flow *find(struct listener *l, const struct datagram *d)
{
	for (struct flow *f = l->uplink->flows->first; f; f = f->next)
		if (f->listener == l && memcmp(f->client.to, d->to, 16) == 0 &&
		    f->client.from_len == d->from_len &&
		    memcmp(&f->client.from, &d->from, d->from_len) == 0)
			return f;
	return NULL;
}

static void take_datagram(struct listener *l, const struct datagram *d, const char *bytes,
			  size_t len)
{
	struct flow *f = find(l, d);
	uint16_t size = (uint16_t)len;

	if (!f) {
		flow_begin(l, d, bytes, len);
		return;
	}
	unlink_flow(f);
	link_first(f);
	f->active_ns = now_ns();
	if (f->watch.fd >= 0) {
		send_out(f, bytes, len);
	} else if (f->waiting.len + len < WAITING_MAX) {
		buf_add(&f->waiting, &size, sizeof(size));
		buf_add(&f->waiting, bytes, len);
	}
}

void flows_udp_ready(struct listener *l)
{
	struct uplink *s = l->uplink;
	struct role *r = s->role;
	struct datagram d;

	if (!s->flows)
		s->flows = must_alloc(calloc(1, sizeof(*s->flows)));
	for (int i = 0; i < AT_ONCE && !loop_turn_is_over(r->loop); i++) {
		ssize_t n = datagram_receive(l->watch.fd, r->scratch, DATAGRAM_MAX, &d);

		if (n < 0)
			return;
		/* Without a place for its record nothing is opened: the datagram is lost. */
		if (d.control_len && !records_full(r))
			take_datagram(l, &d, r->scratch, (size_t)n);
	}
}

void flows_check_again(struct uplink *s)
{
	struct flow *next;
	struct net_answer a;

	for (struct flow *f = s->flows ? s->flows->first : NULL; f; f = next) {
		next = f->next;
		if (is_allowed(f, f->watch.fd >= 0 || !f->name[0] ? f->address : NULL, &a))
			f->rule = a.rule;
		else
			flow_deny(f, &a);
	}
}

void flows_free(struct uplink *s)
{
	while (s->flows && s->flows->first)
		flow_end(s->flows->first, "");
	free(s->flows);
	s->flows = NULL;
}
