/* The HTTP server: accepts connections and bounds their number. */
#include "api/http/http_internal.h"

#include "auth/gate.h"
#include "auth/tokens.h"
#include "base/log.h"
#include "manager/manager.h"
#include "policy/config.h"

#include <arpa/inet.h>
#include <malloc.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sodium.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define ACCEPT_AT_ONCE 16
#define RESERVED 64 /* connections of the operator, beyond the bound */

/* ---- how many connections, and whose ---- */

static struct budget *budget_of(struct server *s, const char *tenant)
{
	return shares_of(manager_shares(s->api->manager), tenant, SHARE_CONNECTIONS);
}

/* As configured now. A quarter of the descriptors is for everything else: guests above all. */
static void bound_connections(struct server *s)
{
	uint64_t most = s->api->config->max_connections;

	if (!most || most > s->files_max / 4 * 3)
		most = s->files_max / 4 * 3;
	shares_set_max(manager_shares(s->api->manager), SHARE_CONNECTIONS, most);
}

/* Closes the connection of this budget that has waited for longest. */
static bool evict_peer(struct server *s, const struct budget *b)
{
	struct peer *p = lanes_oldest(s, b);

	if (p)
		peer_close(p);
	return p;
}

static void move_to_budget(struct peer *p, struct budget *b)
{
	if (p->budget)
		budget_give(p->budget, 1);
	p->budget = b;
	if (b)
		budget_count(b, 1);
	lanes_enter(p, b);
}

static void forget_address(struct peer *p)
{
	if (p->same_address)
		--*p->same_address;
	p->same_address = NULL;
}

int server_count_peer(struct peer *p, const char *tenant, struct err *e)
{
	struct budget *b = budget_of(p->server, p->is_operator ? "" : tenant);

	if (p->budget == b)
		return 0;
	if (!budget_has(b, 1) && !evict_peer(p->server, b))
		return shares_refuse(SHARE_CONNECTIONS, e);
	move_to_budget(p, b);
	forget_address(p);
	return 0;
}

void server_uncount_peer(struct peer *p)
{
	move_to_budget(p, NULL);
	forget_address(p);
}

/* Addresses share a counter by a keyed hash, so that no client can choose with whom. */
static uint32_t *address_counter(struct server *s, const char *address)
{
	unsigned char hash[crypto_shorthash_BYTES];
	char name[64];
	uint32_t place;

	gate_neighbours(address, name, sizeof(name));
	crypto_shorthash(hash, (const unsigned char *)name, strlen(name), s->address_key);
	memcpy(&place, hash, sizeof(place));
	return &s->address_counts[place % ADDRESS_SLOTS];
}

/*
 * Every connection begins as a stranger's, but for the operator's. Strangers together have the share of one
 * tenant, one address an eighth of it. If there are too many, the oldest stranger goes.
 */
static bool make_room(struct peer *p)
{
	struct server *s = p->server;
	struct budget *b = budget_of(s, p->is_operator ? "" : SHARES_STRANGER);

	bound_connections(s);
	if (p->is_remote) {
		uint32_t *count = address_counter(s, p->address);

		if (*count >= b->pool->max / 16 + 1)
			return false;
		++*count;
		p->same_address = count;
	}
	if (!budget_has(b, 1) && !evict_peer(s, b) && !(p->is_operator && b->used < RESERVED))
		return false;
	move_to_budget(p, b);
	return true;
}

/* Takes the connection over. */
static void add_peer(struct server *s, struct peer *p)
{
	static const char full[] = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n"
				   "Retry-After: 1\r\nContent-Length: 0\r\n\r\n";

	p->server = s;
	if (!make_room(p)) {
		forget_address(p);
		if (send(p->watch.fd, full, sizeof(full) - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			log_debug("a refused connection was gone");
		close(p->watch.fd);
		free(p);
		return;
	}
	TAILQ_INSERT_TAIL(&s->peers, p, all);
	s->peer_count++;
	peer_begin(p);
}

static void name_address(struct peer *p, const struct sockaddr_storage *sa)
{
	const struct sockaddr_in *v4 = (const void *)sa;
	const struct sockaddr_in6 *v6 = (const void *)sa;

	if (sa->ss_family == AF_INET) {
		inet_ntop(AF_INET, &v4->sin_addr, p->address, sizeof(p->address));
		p->is_remote = ntohl(v4->sin_addr.s_addr) >> 24 != 127;
	} else if (sa->ss_family == AF_INET6) {
		inet_ntop(AF_INET6, &v6->sin6_addr, p->address, sizeof(p->address));
		p->is_remote = !IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
	} else {
		snprintf(p->address, sizeof(p->address), "unix");
		p->is_unix = true;
	}
}

static void listen_again(void *arg)
{
	struct http_listener *n = arg;

	loop_change(n->server->api->loop, &n->watch, EPOLLIN);
}

static void on_accept(void *arg, uint32_t events)
{
	struct http_listener *n = arg;

	for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
		struct sockaddr_storage sa = {0};
		socklen_t len = sizeof(sa);
		int fd = accept4(n->watch.fd, (struct sockaddr *)&sa, &len,
				 SOCK_CLOEXEC | SOCK_NONBLOCK);
		struct peer *p;

		if (fd < 0 &&
		    (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
			/* The listener stays readable: stop polling it for a moment instead of spinning. */
			loop_change(n->server->api->loop, &n->watch, 0);
			loop_timer_set(n->server->api->loop, &n->again, 200);
		}
		if (fd < 0)
			return;
		p = must_alloc(calloc(1, sizeof(*p)));
		p->watch.fd = fd;
		name_address(p, &sa);
		add_peer(n->server, p);
		if (loop_turn_is_over(n->server->api->loop))
			return;
	}
}

int server_listen(struct server *s, int fd, struct err *e)
{
	struct http_listener *n = must_alloc(calloc(1, sizeof(*n)));

	n->server = s;
	n->watch = (struct loop_watch){.fd = fd, .events = EPOLLIN, .call = on_accept, .arg = n};
	n->again = (struct loop_timer){.call = listen_again, .arg = n};
	if (loop_watch(s->api->loop, &n->watch) < 0) {
		free(n);
		close(fd);
		return err_sys(e, "cannot watch a listening socket");
	}
	n->next = s->listeners;
	s->listeners = n;
	return 0;
}

void server_add_peer(struct server *s, int fd, const struct ipc_peer *who)
{
	struct peer *p = must_alloc(calloc(1, sizeof(*p)));

	p->watch.fd = fd;
	if (who->address[0]) {
		p->is_tls = true;
		snprintf(p->address, sizeof(p->address), "%s", who->address);
		p->is_remote = !str_starts(who->address, "127.") && !str_equal(who->address, "::1");
	} else {
		p->is_unix = true;
		p->is_operator = who->is_operator;
		p->is_docker = who->is_docker;
		snprintf(p->address, sizeof(p->address), "unix:uid=%u", who->uid);
	}
	add_peer(s, p);
}

void server_add_agent(struct server *s, int fd, const char *box)
{
	struct peer *p = must_alloc(calloc(1, sizeof(*p)));

	p->watch.fd = fd;
	p->is_unix = true;
	snprintf(p->agent_box, sizeof(p->agent_box), "%s", box);
	snprintf(p->address, sizeof(p->address), "agent:%s", box);
	add_peer(s, p);
}

/* ---- life ---- */

static void on_expiry(void *arg);

static void trim_memory(void *arg)
{
	malloc_trim(0);
}

struct server *server_new(struct api *api)
{
	struct server *s = must_alloc(calloc(1, sizeof(*s)));
	struct rlimit files;

	s->api = api;
	s->files_max = getrlimit(RLIMIT_NOFILE, &files) == 0 ? files.rlim_cur : 1024;
	TAILQ_INIT(&s->peers);
	TAILQ_INIT(&s->active);
	TAILQ_INIT(&s->idempotent);
	s->task = (struct loop_task){.call = lanes_run, .arg = s};
	s->by_token = buckets_new();
	s->by_address = buckets_new();
	s->refusals = buckets_new();
	s->trim = (struct loop_timer){.call = trim_memory};
	s->expiry = (struct loop_timer){.call = on_expiry, .arg = s};
	/* Fixed: glibc would raise it to what was freed, and keep large bodies in its heap. */
	mallopt(M_MMAP_THRESHOLD, 256 << 10);
	/*
	 * Small blocks are joined when each of them is freed. Otherwise the next large block joins all of them
	 * at once: milliseconds, after thousands of values were freed in turns.
	 */
	mallopt(M_MXFAST, 0);
	mallopt(M_TRIM_THRESHOLD, 64 << 20); /* trim_memory does it */
	randombytes_buf(s->address_key, sizeof(s->address_key));
	shares_set_max(manager_shares(api->manager), SHARE_BODIES, BUFFERED_MAX);
	return s;
}

void server_add_door(struct server *s, const struct door *d)
{
	if (s->door_count < DOORS_MAX)
		s->doors[s->door_count++] = d;
}

bool server_address(const struct server *s, char *ret, size_t size)
{
	char host[64], port[8];
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);

	if (!s->listeners || getsockname(s->listeners->watch.fd, (struct sockaddr *)&a, &len) < 0 ||
	    getnameinfo((struct sockaddr *)&a, len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		return false;
	snprintf(ret, size, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
	return true;
}

static void close_listeners(struct server *s)
{
	while (s->listeners) {
		struct http_listener *n = s->listeners;

		s->listeners = n->next;
		loop_unwatch(s->api->loop, &n->watch);
		loop_timer_stop(s->api->loop, &n->again);
		close(n->watch.fd);
		free(n);
	}
}

/* Nothing that is closed here has done or will do anything for its client. */
static bool is_needed(const struct peer *p)
{
	return p->state == PEER_UPGRADED ||
	       (p->state == PEER_REQUEST && p->now->internal->admitted);
}

void server_drain(struct server *s, bool leaves_sockets)
{
	struct peer *p, *next;

	s->draining = true;
	published_free(s);
	agent_sockets_free(s);
	if (leaves_sockets)
		close_listeners(s);
	for (p = TAILQ_FIRST(&s->peers); p; p = next) {
		next = TAILQ_NEXT(p, all);
		if (!is_needed(p))
			peer_close(p);
	}
}

void server_free(struct server *s)
{
	struct peer *p;

	if (!s)
		return;
	close_listeners(s);
	published_free(s);
	agent_sockets_free(s);
	while ((p = TAILQ_FIRST(&s->peers))) {
		if (p->state != PEER_UPGRADED) {
			peer_close(p);
			continue;
		}
		/* Whoever has it still closes it. */
		server_uncount_peer(p);
		shutdown(p->watch.fd, SHUT_RDWR);
		TAILQ_REMOVE(&s->peers, p, all);
		p->server = NULL;
	}
	idempotency_free(s);
	loop_task_remove(s->api->loop, &s->task);
	buckets_free(s->by_token);
	buckets_free(s->by_address);
	buckets_free(s->refusals);
	loop_timer_stop(s->api->loop, &s->trim);
	loop_timer_stop(s->api->loop, &s->expiry);
	free(s);
}

size_t server_busy(const struct server *s)
{
	return s->exchange_count - s->endless_count;
}

bool server_is_draining(const struct server *s)
{
	return s->draining;
}

#define EXPIRY_LOOK_S 60 /* at least: the clock may be set */

/* Looks again when the next token expires. */
static void await_expiry(struct server *s, uint64_t now)
{
	uint64_t next = UINT64_MAX;

	for (size_t i = 0; i < tokens_count(s->api->tokens); i++) {
		uint64_t at = tokens_at(s->api->tokens, i)->expires;

		next = at > now && at < next ? at : next;
	}
	if (next == UINT64_MAX)
		loop_timer_stop(s->api->loop, &s->expiry);
	else
		loop_timer_set(s->api->loop, &s->expiry,
			       1000 * (next - now < EXPIRY_LOOK_S ? next - now : EXPIRY_LOOK_S));
}

static void on_expiry(void *arg)
{
	server_cut_revoked(arg);
}

void server_cut_revoked(struct server *s)
{
	struct peer *p, *next;
	uint64_t now = (uint64_t)time(NULL);

	await_expiry(s, now);
	for (p = TAILQ_FIRST(&s->peers); p; p = next) {
		next = TAILQ_NEXT(p, all);
		if (!p->caller[0] || tokens_has(s->api->tokens, p->caller, now))
			continue;
		if (p->state == PEER_UPGRADED)
			shutdown(p->watch.fd, SHUT_RDWR);
		else
			peer_close(p);
	}
}

size_t server_connections(const struct server *s)
{
	return s->peer_count;
}
