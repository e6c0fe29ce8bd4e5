/* The uplink of a sandbox: listeners, rules, budgets, rates, and the end of it. */
#include "egress/egress_internal.h"
#include "egress/secrets.h"

#include "base/log.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#define REFILL_MS 20
#define NAMES_MAX 4096

/* ---- rules, shared by sandboxes that have the same ---- */

struct shared_index {
	struct shared_index *next;
	struct net_index *index;
	char *bytes;
	size_t len, users;
};

static struct shared_index *index_get(struct role *r, char *bytes, size_t len, struct err *e)
{
	struct shared_index *x;

	for (x = r->indexes; x; x = x->next)
		if (x->len == len && memcmp(x->bytes, bytes, len) == 0) {
			x->users++;
			free(bytes);
			return x;
		}
	x = must_alloc(calloc(1, sizeof(*x)));
	*x = (struct shared_index){.next = r->indexes, .bytes = bytes, .len = len, .users = 1};
	x->index = net_index_new(bytes, len, e);
	if (!x->index) {
		free(bytes);
		free(x);
		return NULL;
	}
	r->indexes = x;
	return x;
}

static void index_put(struct role *r, struct shared_index *x)
{
	if (!x || --x->users)
		return;
	for (struct shared_index **at = &r->indexes; *at; at = &(*at)->next)
		if (*at == x) {
			*at = x->next;
			break;
		}
	net_index_free(x->index);
	free(x->bytes);
	free(x);
}

void uplink_decide(const struct uplink *s, const struct net_question *q, struct net_answer *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->rule = "";
	if (s->rules)
		net_decide(s->rules->index, q, ret);
	else
		snprintf(ret->why, sizeof(ret->why), "the sandbox has no rules");
}

const struct net_policy *uplink_policy(const struct uplink *s)
{
	return s->rules ? net_index_policy(s->rules->index) : NULL;
}

bool uplink_judges_addresses(const struct uplink *s)
{
	return s->rules && net_index_judges_addresses(s->rules->index);
}

const struct net_budget *uplink_budget(const struct uplink *s)
{
	return s->rules ? &uplink_policy(s)->budget : NULL;
}

/* ---- budgets and rates ---- */

const char *uplink_count_request(struct uplink *s)
{
	const struct net_budget *b = uplink_budget(s);
	uint32_t minute = (uint32_t)(now_ns() / 60000000000);

	if (minute != s->requests_minute) {
		s->requests_minute = minute;
		s->requests = 0;
	}
	if (b && b->requests && s->requests >= b->requests)
		return "requests";
	s->requests++;
	return NULL;
}

const char *uplink_count_bytes(struct uplink *s, bool up, size_t len)
{
	const struct net_budget *b = uplink_budget(s);

	if (up)
		s->meter.tx_bytes += len;
	else
		s->meter.rx_bytes += len;
	if (b && b->tx_bytes && s->meter.tx_bytes > b->tx_bytes)
		return "tx_bytes";
	if (b && b->rx_bytes && s->meter.rx_bytes > b->rx_bytes)
		return "rx_bytes";
	return NULL;
}

const char *uplink_used_up(struct uplink *s)
{
	const struct net_budget *b = uplink_budget(s);

	if (!budget_has(&s->open, 1) || (b && b->open && s->meter.open >= b->open))
		return "open";
	if (b && b->connections && s->meter.connections >= b->connections)
		return "connections";
	return uplink_count_request(s);
}

/* What a bucket may hold: a tenth of a second, and at least a few packets. */
static void fill(struct bucket *b)
{
	int64_t now = now_ns(), most = (int64_t)(b->rate / 10);

	if (!b->rate)
		return;
	if (most < 16384)
		most = 16384;
	/* Long pauses fill it; the product cannot overflow then. */
	if (now - b->filled_ns > 1000000000)
		b->left = most;
	else
		b->left += (int64_t)((double)b->rate * (double)(now - b->filled_ns) / 1e9);
	if (b->left > most)
		b->left = most;
	b->filled_ns = now;
}

static void on_refill(void *arg)
{
	struct uplink *s = arg;

	fill(&s->up);
	fill(&s->down);
	for (struct conn *c = s->conns; c; c = c->next)
		conn_step_soon(c);
}

void uplink_refill_later(struct uplink *s)
{
	if (!s->refill.place)
		loop_timer_set(s->role->loop, &s->refill, REFILL_MS);
}

static void set_rates(struct uplink *s)
{
	const struct net_budget *b = uplink_budget(s);

	s->up.rate = b ? b->tx_rate : 0;
	s->down.rate = b ? b->rx_rate : 0;
	fill(&s->up);
	fill(&s->down);
}

/* ---- names ---- */

bool conn_is_host(const char *name)
{
	return str_equal(name, "localhost") || str_equal(name, "host.docker.internal") ||
	       str_equal(name, "host.containers.internal");
}

const char *uplink_name_of(const struct uplink *s, const unsigned char to[16], uint32_t *ret_index)
{
	const char *name;

	*ret_index = net_synthetic_index(s->prefix6, to);
	if (net_address_kind(to) == NET_LOOPBACK_ADDRESS)
		return "localhost";
	if (!*ret_index || *ret_index == NET_GATEWAY_INDEX)
		return "";
	name = names_name(s->names, *ret_index);
	return name && conn_is_host(name) ? "localhost" : name;
}

/* ---- messages ---- */

int uplink_set_rules(struct uplink *s, int fd, struct err *e)
{
	auto_close int mine = fd;
	struct shared_index *old = s->rules;
	char *bytes = NULL;
	size_t len = 0;

	s->rules = NULL;
	if (io_read_whole(mine, NET_POLICY_MAX, &bytes, &len) < 0)
		err_sys(e, "cannot read the rules");
	else
		s->rules = index_get(s->role, bytes, len, e);
	set_rates(s);
	for (struct conn *c = s->conns; c; c = c->next)
		conn_check_again(c);
	flows_check_again(s);
	segment_check_again(s);
	index_put(s->role, old);
	return s->rules ? inspect_uplink(s, e) : -1;
}

int uplink_set_secrets(struct uplink *s, int fd, struct err *e)
{
	auto_close int mine = fd;
	struct secrets *old = s->secrets;
	char *bytes = NULL;
	size_t len = 0;

	s->secrets = NULL;
	if (io_read_whole(mine, SECRETS_MAX * sizeof(struct egress_secret), &bytes, &len) < 0)
		err_sys(e, "cannot read the secrets");
	else if (len)
		s->secrets = secrets_new(bytes, len, old, e);
	if (bytes)
		explicit_bzero(bytes, len);
	free(bytes);
	secrets_unref(old);
	return e->kind ? -1 : inspect_uplink(s, e);
}

struct uplink *uplink_find(struct role *r, const char *id)
{
	struct uplink *s = r->uplinks;

	while (s && !str_equal(s->id, id))
		s = s->next;
	return s;
}

/* ---- listeners ---- */

static void on_listener(void *arg, uint32_t events)
{
	struct listener *l = arg;

	if (!l->is_udp)
		conn_accept(l);
	else if (l->port == 53)
		dns_udp_ready(l);
	else
		flows_udp_ready(l);
}

void uplink_pause(struct uplink *s)
{
	for (size_t i = 0; i < s->listener_count; i++)
		if (!s->listeners[i].is_udp)
			loop_unwatch(s->role->loop, &s->listeners[i].watch);
}

static void watch_listeners(struct uplink *s)
{
	for (size_t i = 0; i < s->listener_count; i++)
		if (!s->listeners[i].watch.active)
			loop_watch(s->role->loop, &s->listeners[i].watch);
}

static void close_listeners(struct uplink *s)
{
	for (size_t i = 0; i < s->listener_count; i++) {
		loop_unwatch(s->role->loop, &s->listeners[i].watch);
		close_fd(&s->listeners[i].watch.fd);
	}
	free(s->listeners);
	s->listeners = NULL;
	s->listener_count = 0;
	/* Their answers would leave by these sockets. */
	lookups_free(s);
}

/* Which listener it is, by its type and port; accepted sockets inherit the options. */
static int listener_init(struct listener *l, struct uplink *s, int fd)
{
	struct sockaddr_storage at;
	socklen_t len = sizeof(int);
	unsigned char address[16];
	int type = 0, on = 1;

	*l = (struct listener){.uplink = s,
			       .watch = {.fd = fd,
					 .events = EPOLLIN,
					 .call = on_listener,
					 .arg = l,
					 .user = &s->user}};
	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0)
		return -1;
	len = sizeof(at);
	if (getsockname(fd, (struct sockaddr *)&at, &len) < 0 ||
	    (at.ss_family != AF_INET && at.ss_family != AF_INET6))
		return -1;
	address_of(&at, address, &l->port);
	l->is_udp = type == SOCK_DGRAM;
	s->has_v6 |= at.ss_family == AF_INET6 && !l->is_udp;
	if (!l->is_udp) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	}
	return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

int uplink_listen(struct uplink *s, const struct egress_add *a, const int *fds, struct err *e)
{
	bool ok = true;

	flows_free(s);
	close_listeners(s);
	memcpy(s->own4, a->own4, sizeof(s->own4));
	memcpy(s->own6, a->own6, sizeof(s->own6));
	memcpy(s->prefix6, a->prefix6, sizeof(s->prefix6));
	s->listeners = must_alloc(calloc(a->fd_count + 1u, sizeof(*s->listeners)));
	for (size_t i = 0; i < a->fd_count; i++)
		ok &= listener_init(&s->listeners[s->listener_count++], s, fds[i]) == 0;
	if (!ok) {
		close_listeners(s);
		return err_set(e, ERR_INVALID, "a listener is not a socket for IP");
	}
	watch_listeners(s);
	return 0;
}

/* ---- life ---- */

int uplink_add(struct role *r, const struct egress_add *a, const int *fds, struct err *e)
{
	struct uplink *s = uplink_find(r, a->id);
	bool is_alone; /* nobody else is there to be served */

	if (s)
		uplink_remove(s);
	is_alone = r->one_run && !r->uplinks;
	s = must_alloc(calloc(1, sizeof(*s)));
	s->role = r;
	memcpy(s->id, a->id, sizeof(s->id));
	memcpy(s->owner, a->owner, sizeof(s->owner));
	memcpy(s->meter.id, a->id, sizeof(s->id));
	s->asks = a->asks;
	s->names = names_new(a->names_max ? a->names_max : NAMES_MAX);
	s->open =
		(struct budget){.max = UINT64_MAX, .pool = &r->open_pool, .is_operator = is_alone};
	s->asker = asker_new(r, is_alone);
	s->refill = (struct loop_timer){.call = on_refill, .arg = s};
	s->peer_next = (struct loop_timer){.call = segment_ask_next, .arg = s};
	s->next = r->uplinks;
	s->back = &r->uplinks;
	if (s->next)
		s->next->back = &s->next;
	r->uplinks = s;
	return uplink_listen(s, a, fds, e);
}

void uplink_remove(struct uplink *s)
{
	struct role *r = s->role;

	flows_free(s);
	close_listeners(s);
	for (struct conn *c = s->conns; c; c = c->next)
		conn_reset(c);
	while (s->conns)
		conn_free(s->conns);
	s->group[0] = '\0';
	segment_check_again(s);
	loop_timer_stop(r->loop, &s->refill);
	loop_timer_stop(r->loop, &s->peer_next);
	record_tick(s);
	record_meter(s, EGRESS_GONE);
	record_done(s);
	inspect_uplink_done(s);
	secrets_unref(s->secrets);
	names_free(s->names);
	asker_unref(s->asker);
	ports_done(s);
	index_put(r, s->rules);
	*s->back = s->next;
	if (s->next)
		s->next->back = s->back;
	free(s);
}

void uplink_tick(struct uplink *s)
{
	if (!records_full(s->role))
		record_tick(s);
	if (memcmp(&s->meter, &s->told, sizeof(s->meter)) != 0) {
		s->told = s->meter;
		record_meter(s, EGRESS_METER);
	}
	if (!records_full(s->role))
		watch_listeners(s);
}
