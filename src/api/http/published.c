/*
 * Published ports: connections to a port of the host go on to a port inside a sandbox, over its link. They count as
 * connections of the sandbox's owner. The sockets are opened when the sandbox is created and when a front starts, and
 * closed with the sandbox.
 */
#include "api/http/http_internal.h"

#include "auth/gate.h"
#include "base/log.h"
#include "calls/calls.h"
#include "manager/manager.h"
#include "net/publish.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#define ACCEPT_AT_ONCE 16
#define PAUSE_MS 200

struct published {
	struct server *server;
	struct published *next;
	struct waiter *waiter;
	char id[IPC_ID], owner[IPC_ID];
	uint32_t inner;
	struct loop_watch watch;
	struct loop_timer again;
};

/* One connection. */
struct inbound {
	struct peer *peer; /* NULL: the tunnel has it */
	struct call *call;
	struct tunnel *tunnel;
	struct pump pump;
};

/* ---- a connection ---- */

static void inbound_free(struct inbound *b)
{
	if (b->peer)
		peer_close(b->peer);
	call_drop(b->call);
	free(b);
}

static void on_tunnel_done(void *arg)
{
	free(arg);
}

static void on_connected(void *arg, const struct file_info *info)
{
	struct inbound *b = arg;
	struct peer *p = take_ptr(b->peer);

	b->tunnel = tunnel_new(p->server->api->loop, &p->upgraded, b->call, &b->pump,
			       on_tunnel_done, b);
	pump_resume(&b->pump);
}

static void on_bytes(void *arg, const void *bytes, size_t len)
{
	struct inbound *b = arg;

	if (b->tunnel)
		tunnel_to_client(b->tunnel, bytes, len);
}

static void on_closed(void *arg)
{
	struct inbound *b = arg;

	if (b->tunnel)
		tunnel_guest_closed(b->tunnel);
}

static void on_room(void *arg)
{
	struct inbound *b = arg;

	if (b->tunnel)
		tunnel_guest_room(b->tunnel);
}

/* Nothing listens there, or the sandbox has gone: closed, as a refused connection is. */
static void on_end(void *arg, const struct answer *a, const struct err *e)
{
	struct inbound *b = arg;

	b->call = NULL;
	if (b->tunnel)
		tunnel_guest_ended(b->tunnel);
	else
		inbound_free(b);
}

static size_t room_for_client(void *arg)
{
	const struct inbound *b = arg;

	return b->tunnel ? tunnel_room(b->tunnel) : 0;
}

static void begin_inbound(const struct published *n, struct sandbox *s, struct peer *p)
{
	struct inbound *b = must_alloc(calloc(1, sizeof(*b)));
	const struct receiver r = {.begin = on_connected,
				   .bytes = on_bytes,
				   .closed = on_closed,
				   .room = on_room,
				   .done = on_end,
				   .arg = b,
				   .pump = &b->pump};

	b->peer = p;
	b->pump = (struct pump){.room = room_for_client, .to = b};
	b->call = call_connect(s, n->inner, &r);
}

static void take_connection(struct published *n, int fd)
{
	static const int on = 1;
	struct sandbox *s = manager_find_any(n->server->api->manager, n->id);
	struct peer *p = must_alloc(calloc(1, sizeof(*p)));
	struct err e;

	p->server = n->server;
	p->watch.fd = fd;
	p->state = PEER_UPGRADED;
	p->upgraded = (struct upgraded){.peer = p, .fd = fd};
	snprintf(p->address, sizeof(p->address), "published");
	if (!s || sandbox_state(s) != STATE_RUNNING || n->server->draining ||
	    server_count_peer(p, n->owner, &e) < 0) {
		close(fd);
		free(p);
		return;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	TAILQ_INSERT_TAIL(&n->server->peers, p, all);
	n->server->peer_count++;
	begin_inbound(n, s, p);
}

/* ---- a port ---- */

static void listen_again(void *arg)
{
	struct published *n = arg;

	loop_change(n->server->api->loop, &n->watch, EPOLLIN);
}

static void on_accept(void *arg, uint32_t events)
{
	struct published *n = arg;

	for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
		int fd = accept4(n->watch.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			take_connection(n, fd);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
			loop_change(n->server->api->loop, &n->watch, 0);
			loop_timer_set(n->server->api->loop, &n->again, PAUSE_MS);
		}
		return;
	}
}

static void close_port(struct published *n)
{
	struct published **at = &n->server->published;

	while (*at != n)
		at = &(*at)->next;
	*at = n->next;
	sandbox_unwait(n->waiter);
	loop_unwatch(n->server->api->loop, &n->watch);
	loop_timer_stop(n->server->api->loop, &n->again);
	close(n->watch.fd);
	free(n);
}

static void on_state(void *arg, struct sandbox *s)
{
	struct published *n = arg;

	if (sandbox_state(s) == STATE_DESTROYED)
		close_port(n);
}

/* Takes fd. */
static void open_port(struct server *v, struct sandbox *s, const char *text, int fd)
{
	struct published *n = must_alloc(calloc(1, sizeof(*n)));
	struct net_publish p;
	struct err e;

	*n = (struct published){.server = v, .next = v->published};
	if (net_publish_parse(text, &p, &e) == 0)
		n->inner = p.inner;
	snprintf(n->id, sizeof(n->id), "%s", sandbox_id(s));
	snprintf(n->owner, sizeof(n->owner), "%s", sandbox_owner(s));
	n->watch = (struct loop_watch){.fd = fd, .events = EPOLLIN, .call = on_accept, .arg = n};
	n->again = (struct loop_timer){.call = listen_again, .arg = n};
	v->published = n;
	n->waiter = sandbox_wait(s, on_state, n);
	if (loop_watch(v->api->loop, &n->watch) < 0)
		close_port(n);
}

/* ---- all ports of a sandbox, one after the other ---- */

struct opening {
	struct server *server;
	size_t at;
	published_done done;
	void *arg;
};

static void open_next(struct opening *o, struct sandbox *s);

static void on_socket(void *arg, struct sandbox *s, int fd, const struct err *e)
{
	struct opening *o = arg;

	if (e || sandbox_state(s) == STATE_DESTROYED) {
		close_fd(&fd);
		o->done(o->arg, s, e);
		free(o);
		return;
	}
	open_port(o->server, s, sandbox_publish(s)->items[o->at++], fd);
	open_next(o, s);
}

static void open_next(struct opening *o, struct sandbox *s)
{
	const struct list *all = sandbox_publish(s);
	struct err e = {0};

	if (o->at < all->count && sandbox_publish_port(s, all->items[o->at], on_socket, o, &e) == 0)
		return;
	o->done(o->arg, s, e.kind ? &e : NULL);
	free(o);
}

void server_publish(struct server *v, struct sandbox *s, published_done done, void *arg)
{
	struct opening *o = must_alloc(calloc(1, sizeof(*o)));

	*o = (struct opening){.server = v, .done = done, .arg = arg};
	open_next(o, s);
}

static void on_found_again(void *arg, struct sandbox *s, const struct err *e)
{
	if (e)
		log_warn("a published port is not open", "sandbox", sandbox_id(s), "error", e->msg);
}

static bool publish_again(void *arg, struct sandbox *s)
{
	if (sandbox_publish(s)->count)
		server_publish(arg, s, on_found_again, NULL);
	return true;
}

void server_publish_all(struct server *v)
{
	manager_each(v->api->manager, NULL, publish_again, v);
}

void published_free(struct server *v)
{
	while (v->published)
		close_port(v->published);
}
