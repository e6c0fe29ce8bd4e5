/* Relays connections to published ports. */
#include "sandbox/outside/published.h"

#include "sandbox/inside/net.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#define ROOM (16u << 10)

/* Bytes on their way to one side. */
struct direction {
	char bytes[ROOM];
	size_t len;
	bool ended;    /* the other side sends no more */
	bool finished; /* this side was told */
};

struct published_connection {
	int fds[2];
	struct direction to[2];
	bool broken;
};

int published_open(struct published *p, const struct list *texts, struct err *e)
{
	for (size_t i = 0; i < texts->count; i++) {
		struct net_publish port;
		int fd;

		if (i == PUBLISHED_PORTS)
			return err_field(e, ERR_LIMIT, "publish", "publish: more than %d ports",
					 PUBLISHED_PORTS);
		if (net_publish_parse(texts->items[i], &port, e) < 0)
			return -1;
		fd = net_publish_listen(&port);
		if (fd < 0)
			return err_field(e, ERR_CONFLICT, "publish",
					 "publish: cannot listen on %s: %s", texts->items[i],
					 strerror(errno));
		p->listeners[p->port_count] = fd;
		p->inner[p->port_count++] = port.inner;
	}
	return 0;
}

static void drop(struct published *p, size_t i)
{
	struct published_connection *c = p->connections[i];

	close_fd(&c->fds[0]);
	close_fd(&c->fds[1]);
	free(c);
	p->connections[i] = p->connections[--p->count];
}

void published_done(struct published *p)
{
	while (p->count)
		drop(p, p->count - 1);
	while (p->port_count)
		close_fd(&p->listeners[--p->port_count]);
}

/* ---- connecting inside ---- */

struct call {
	uint16_t port;
	int fd;
};

/* Not by a blocking call: a program inside can leave its backlog full. */
static void connect_inside(void *arg)
{
	struct call *c = arg;
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = htons(c->port),
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_in6 a6 = {.sin6_family = AF_INET6,
				  .sin6_port = htons(c->port),
				  .sin6_addr = IN6ADDR_LOOPBACK_INIT};

	c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (c->fd < 0 || connect(c->fd, (void *)&a, sizeof(a)) == 0 || errno == EINPROGRESS)
		return;
	close_fd(&c->fd);
	c->fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (c->fd >= 0 && connect(c->fd, (void *)&a6, sizeof(a6)) < 0 && errno != EINPROGRESS)
		close_fd(&c->fd);
}

static void accept_one(struct published *p, size_t i, int anchor)
{
	auto_close int fd = accept4(p->listeners[i], NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct call call = {.port = p->inner[i], .fd = -1};
	struct published_connection *c;
	struct err ignored;

	if (fd < 0 || net_visit(anchor, connect_inside, &call, &ignored) < 0 || call.fd < 0)
		return;
	c = must_alloc(calloc(1, sizeof(*c)));
	c->fds[0] = take_fd(&fd);
	c->fds[1] = call.fd;
	p->connections[p->count++] = c;
}

/* ---- relaying ---- */

static short events_of(const struct published_connection *c, int side)
{
	const struct direction *in = &c->to[!side], *out = &c->to[side];

	return (short)((!in->ended && in->len < ROOM ? POLLIN : 0) | (out->len ? POLLOUT : 0));
}

size_t published_polls(const struct published *p, struct pollfd polls[PUBLISHED_POLLS])
{
	size_t count = 0;

	for (size_t i = 0; i < p->port_count; i++)
		polls[count++] = (struct pollfd){
			p->count < PUBLISHED_CONNECTIONS ? p->listeners[i] : -1, POLLIN, 0};
	for (size_t i = 0; i < p->count; i++)
		for (int side = 0; side < 2; side++) {
			short events = events_of(p->connections[i], side);

			/* A side that is at its end would be ready without end. */
			polls[count++] = (struct pollfd){events ? p->connections[i]->fds[side] : -1,
							 events, 0};
		}
	return count;
}

static void receive(struct published_connection *c, int side)
{
	struct direction *d = &c->to[!side];
	ssize_t n = recv(c->fds[side], d->bytes + d->len, ROOM - d->len, 0);

	if (n > 0)
		d->len += (size_t)n;
	else if (n == 0)
		d->ended = true;
	else if (errno != EAGAIN && errno != EINTR)
		c->broken = true;
}

static void pass_on(struct published_connection *c, int side)
{
	struct direction *d = &c->to[side];
	ssize_t n = d->len ? send(c->fds[side], d->bytes, d->len, MSG_NOSIGNAL) : 0;

	if (n < 0 && errno != EAGAIN && errno != EINTR && errno != ENOTCONN)
		c->broken = true;
	if (n > 0) {
		d->len -= (size_t)n;
		memmove(d->bytes, d->bytes + n, d->len);
	}
	if (d->ended && !d->len && !d->finished) {
		d->finished = true;
		shutdown(c->fds[side], SHUT_WR);
	}
}

/* polls: of its two sides. */
static void serve_connection(struct published_connection *c, const struct pollfd *polls)
{
	for (int side = 0; side < 2; side++) {
		if (polls[side].revents & (POLLIN | POLLHUP | POLLERR))
			receive(c, side);
		pass_on(c, !side);
		if (polls[side].revents & POLLOUT)
			pass_on(c, side);
	}
	c->broken |= c->to[0].finished && c->to[1].finished;
}

void published_serve(struct published *p, const struct pollfd *polls, int anchor)
{
	size_t before = p->count;

	for (size_t i = 0; i < before; i++)
		serve_connection(p->connections[i], polls + p->port_count + 2 * i);
	for (size_t i = 0; i < p->port_count; i++)
		if (polls[i].revents && p->count < PUBLISHED_CONNECTIONS)
			accept_one(p, i, anchor);
	for (size_t i = before; i-- > 0;)
		if (p->connections[i]->broken)
			drop(p, i);
}
