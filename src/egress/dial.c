/*
 * Dials a destination that the rules allow by name: resolves the name, asks the rules again with each address, and
 * connects to the addresses that pass, one after another with short delays. The socket that connects first is used.
 */
#include "egress/egress_internal.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#define NEXT_MS 250 /* RFC 8305 */
#define ATTEMPTS 6

struct attempt {
	struct loop_watch watch;
	struct dial *dial;
	unsigned char address[16];
};

struct dial {
	struct conn *conn;
	struct resolver_query query;
	struct resolved found; /* of these, only those that passed */
	uint16_t port;
	size_t next;
	bool by_proxy;
	struct attempt attempts[ATTEMPTS];
	size_t attempt_count, open_count;
	int last_error;
	struct loop_timer timer;
};

static void dial_next(struct dial *d);
static bool may_dial(struct conn *c, const unsigned char address[16], bool own,
		     struct net_answer *ret);

static struct loop *loop_of(const struct dial *d)
{
	return d->conn->uplink->role->loop;
}

void dial_stop(struct conn *c)
{
	struct dial *d = c->dial;

	if (!d)
		return;
	c->dial = NULL;
	resolver_cancel(&d->query);
	loop_timer_stop(loop_of(d), &d->timer);
	for (size_t i = 0; i < d->attempt_count; i++) {
		loop_unwatch(loop_of(d), &d->attempts[i].watch);
		close_fd(&d->attempts[i].watch.fd);
	}
	free(d);
}

static bool is_localhost(const char *name)
{
	const char *dot = strrchr(name, '.');

	return str_equal(dot ? dot + 1 : name, "localhost");
}

bool dial_is_by_proxy(const struct conn *c)
{
	return c->uplink->role->settings.proxy[0] && !c->peer[0] && !is_localhost(c->name);
}

/* The loopback is this host's in any case, and has rules of its own. */
static bool is_own(const struct conn *c, const unsigned char address[16])
{
	return net_address_kind(address) != NET_LOOPBACK_ADDRESS &&
	       address_is_own(c->uplink->role, address);
}

/*
 * The rules may have changed since the address was judged, and may say something else about another address of
 * the name.
 */
static void dial_won(struct attempt *a)
{
	struct conn *c = a->dial->conn;
	bool by_proxy = a->dial->by_proxy;
	struct net_answer answer = c->answer;
	auto_close int fd = -1;

	loop_unwatch(loop_of(a->dial), &a->watch);
	fd = take_fd(&a->watch.fd);
	if (!by_proxy) {
		memcpy(c->address, a->address, 16);
		c->is_own = is_own(c, a->address);
	}
	dial_stop(c);
	if (!by_proxy && !c->peer[0] && !may_dial(c, c->address, c->is_own, &answer)) {
		conn_dial_refused(c, &answer);
		return;
	}
	c->answer = answer;
	conn_dialled(c, take_fd(&fd));
}

static void attempt_failed(struct attempt *a, int error)
{
	struct dial *d = a->dial;

	loop_unwatch(loop_of(d), &a->watch);
	close_fd(&a->watch.fd);
	d->open_count--;
	d->last_error = error;
	dial_next(d);
}

static void on_attempt(void *arg, uint32_t events)
{
	struct attempt *a = arg;
	socklen_t len = sizeof(int);
	int error = 0;

	if (getsockopt(a->watch.fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
		error = errno;
	if (!error && (events & EPOLLOUT))
		dial_won(a);
	else
		attempt_failed(a, error ? error : ECONNREFUSED);
}

/* Takes over the fd. -1 with errno. */
static int attempt_connect(struct dial *d, int fd, const unsigned char address[16])
{
	struct attempt *a = &d->attempts[d->attempt_count];
	struct sockaddr_storage to;
	socklen_t len = address_to(address, d->port, &to);
	int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(fd, (struct sockaddr *)&to, len) < 0 && errno != EINPROGRESS) {
		int error = errno;

		close(fd);
		errno = error;
		return -1;
	}
	*a = (struct attempt){.dial = d,
			      .watch = {.fd = fd,
					.events = EPOLLOUT,
					.call = on_attempt,
					.arg = a,
					.user = &d->conn->uplink->user}};
	memcpy(a->address, address, 16);
	if (loop_watch(loop_of(d), &a->watch) < 0) {
		close_fd(&a->watch.fd);
		return -1;
	}
	d->attempt_count++;
	d->open_count++;
	return 0;
}

static int attempt_begin(struct dial *d, const unsigned char address[16])
{
	int family = address_is_v4(address) ? AF_INET : AF_INET6, fd;

	if (!ports_has(d->conn->uplink, address, d->port)) {
		errno = EDQUOT;
		return -1;
	}
	fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	return fd < 0 ? -1 : attempt_connect(d, fd, address);
}

/* Begins with the next address; all have failed: says so. */
static void dial_next(struct dial *d)
{
	struct conn *c = d->conn;
	char why[96];

	while (d->next < d->found.count && d->attempt_count < ATTEMPTS) {
		if (attempt_begin(d, d->found.addresses[d->next++]) == 0) {
			if (d->next < d->found.count)
				loop_timer_set(loop_of(d), &d->timer, NEXT_MS);
			return;
		}
		d->last_error = errno;
	}
	if (d->open_count)
		return;
	snprintf(why, sizeof(why), "cannot connect: %s",
		 d->last_error == EDQUOT ? "too many connections to it were closed a moment ago"
					 : strerror(d->last_error));
	dial_stop(c);
	conn_not_dialled(c, why);
}

static void on_next(void *arg)
{
	dial_next(arg);
}

/* A destination that a person allowed once has no rule: it must be public then, and nothing may deny it. */
static bool may_dial(struct conn *c, const unsigned char address[16], bool own,
		     struct net_answer *ret)
{
	enum net_address_kind kind = net_address_kind(address);
	struct net_question q = {.name = c->name[0] ? c->name : NULL,
				 .address = address,
				 .port = c->port,
				 .own = own};

	uplink_decide(c->uplink, &q, ret);
	if (!ret->allowed && c->is_asked && ret->wanted[0]) {
		ret->allowed = kind == NET_PUBLIC_ADDRESS && !own;
		if (!ret->allowed)
			snprintf(ret->why, sizeof(ret->why), "not a public address");
	}
	return ret->allowed;
}

/* Keeps the addresses that pass. */
static void judge_addresses(struct dial *d, struct net_answer *ret)
{
	size_t kept = 0;

	for (size_t i = 0; i < d->found.count; i++)
		if (may_dial(d->conn, d->found.addresses[i], is_own(d->conn, d->found.addresses[i]),
			     ret))
			memmove(d->found.addresses[kept++], d->found.addresses[i], 16);
	d->found.count = kept;
}

static void on_resolved(void *arg, const struct resolved *r, const char *why)
{
	struct dial *d = arg;
	struct conn *c = d->conn;
	struct net_answer answer = c->answer;
	bool refused;

	if (r)
		d->found = *r;
	if (!d->by_proxy)
		judge_addresses(d, &answer);
	refused = r && r->count && !d->found.count;
	if (d->found.count) {
		if (!d->by_proxy)
			c->answer = answer;
		dial_next(d);
		return;
	}
	if (refused)
		memcpy(c->address, r->addresses[0], 16);
	dial_stop(c);
	if (refused)
		conn_dial_refused(c, &answer);
	else
		conn_not_dialled(c, why);
}

/* "http://host:port" of the settings. */
static bool proxy_host(const char *proxy, char host[EGRESS_TEXT], uint16_t *ret_port)
{
	const char *at = str_starts(proxy, "http://") ? proxy + strlen("http://") : proxy;
	const char *colon = strrchr(at, ':');
	size_t len = colon ? (size_t)(colon - at) : strcspn(at, "/");
	unsigned long port = colon ? strtoul(colon + 1, NULL, 10) : 3128;

	if (len == 0 || len >= EGRESS_TEXT || port == 0 || port > 65535)
		return false;
	memcpy(host, at, len);
	host[len] = '\0';
	*ret_port = (uint16_t)port;
	return true;
}

static void dial_name(struct dial *d, const char *name)
{
	static const struct resolved loopback = {
		.count = 2,
		.addresses = {{[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}, {[15] = 1}}};
	char canonical[NET_NAME];
	struct network literal;
	struct err e = {0};

	if (is_localhost(name) && !d->by_proxy) {
		on_resolved(d, &loopback, NULL);
	} else if (net_host(name, strlen(name), canonical, &literal, &e) == NET_IS_ADDRESS) {
		struct resolved one = {.count = 1};

		memcpy(one.addresses[0], literal.address, 16);
		on_resolved(d, &one, NULL);
	} else if (!d->conn->uplink->role->resolver) {
		on_resolved(d, NULL, "there is no resolver");
	} else {
		resolver_ask(d->conn->uplink->role->resolver, d->conn->uplink->asker, name,
			     &d->query);
	}
}

static struct dial *dial_new(struct conn *c)
{
	struct dial *d = must_alloc(calloc(1, sizeof(*d)));

	d->conn = c;
	d->port = c->port;
	d->query = (struct resolver_query){.call = on_resolved, .arg = d};
	d->timer = (struct loop_timer){.call = on_next, .arg = d};
	c->dial = d;
	return d;
}

void dial_peer(struct conn *c, int fd, const unsigned char from[16], const unsigned char to[16])
{
	struct dial *d = dial_new(c);
	struct sockaddr_storage a;
	socklen_t len = address_to(from, 0, &a);
	auto_close int mine = fd;

	if (bind(fd, (struct sockaddr *)&a, len) == 0 &&
	    attempt_connect(d, take_fd(&mine), to) == 0)
		return;
	d->last_error = errno;
	dial_next(d);
}

void dial_start(struct conn *c)
{
	struct dial *d = dial_new(c);
	char host[EGRESS_TEXT];
	struct resolved one = {.count = 1};

	d->by_proxy = dial_is_by_proxy(c);
	if (d->by_proxy) {
		if (proxy_host(c->uplink->role->settings.proxy, host, &d->port))
			dial_name(d, host);
		else
			on_resolved(d, NULL, "the proxy of the settings is not http://host:port");
	} else if (c->name[0]) {
		dial_name(d, c->name);
	} else {
		memcpy(one.addresses[0], c->address, 16);
		on_resolved(d, &one, NULL);
	}
}
