/*
 * G_CONNECT: a stream to a port inside. The filter notifies us about connect, so we cannot make the
 * call ourselves: a child does, on a socket that it shares with us. 127.0.0.1 first, then ::1.
 * G_ACCEPT: a stream to a program that has connected to the agent's socket; the same from then on.
 */
#include "guest/link/worker.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#define CONNECT_SECONDS 10

enum { BY_V4 = 0, REFUSED = 1, BY_V6 = 2 };

struct port {
	struct port *next, **back;
	struct guest *guest;
	struct guest_stream *stream; /* NULL: ended */
	pid_t pid;		     /* of the child that connects; 0: reaped */
	int sockets[2];
	struct loop_watch watch;
	struct buf waiting; /* to be written */
	bool waits;	    /* for somebody who connects to the agent's socket */
	bool no_more_in, no_more_out, shut;
};

static void port_free(struct port *p)
{
	loop_unwatch(p->guest->loop, &p->watch);
	close_fd(&p->sockets[0]);
	close_fd(&p->sockets[1]);
	close_fd(&p->watch.fd);
	buf_done(&p->waiting);
	*p->back = p->next;
	if (p->next)
		p->next->back = p->back;
	free(p);
}

/* ---- connected ---- */

static bool is_connected(const struct port *p)
{
	return p->watch.fd >= 0;
}

static void set_interest(struct port *p)
{
	bool read = !p->no_more_in && stream_room(p->stream) > 0;
	uint32_t events = (read ? EPOLLIN : 0) | (p->waiting.len ? EPOLLOUT : 0);

	/* Even without interest an epoll would report a hang-up, again and again. */
	if (events)
		loop_change(p->guest->loop, &p->watch, events);
	else
		loop_unwatch(p->guest->loop, &p->watch);
}

/* False: both directions have ended. */
static bool write_out(struct port *p)
{
	/* A peer that does not read any more may still send. */
	stream_write_waiting(p->stream, &p->waiting, p->watch.fd);
	if (p->waiting.len)
		return true;
	if (p->no_more_out && !p->shut) {
		shutdown(p->watch.fd, SHUT_WR);
		p->shut = true;
	}
	return !(p->no_more_in && p->shut);
}

static bool read_in(struct port *p)
{
	size_t room = stream_room(p->stream);
	ssize_t n;

	if (p->no_more_in || room == 0)
		return true;
	if (room > 32768)
		room = 32768;
	n = recv(p->watch.fd, stream_reserve(p->stream, room), room, MSG_DONTWAIT);
	if (n > 0) {
		stream_commit(p->stream, G_DATA, (size_t)n);
		return true;
	}
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	p->no_more_in = true;
	stream_send(p->stream, G_CLOSE, NULL, 0);
	/* Reset: nothing can be written either. */
	return n == 0 && !p->shut;
}

static void carry_on(void *arg, uint32_t events)
{
	struct port *p = arg;

	if (write_out(p) && read_in(p)) {
		set_interest(p);
		return;
	}
	stream_end(p->stream, NULL, 0);
	port_free(p);
}

static void send_data(void *arg, const char *bytes, size_t len)
{
	struct port *p = arg;

	if (!is_connected(p) || p->no_more_out) {
		stream_credit(p->stream, len);
		return;
	}
	buf_add(&p->waiting, bytes, len);
	write_out(p);
	set_interest(p);
}

static void end_data(void *arg)
{
	struct port *p = arg;

	p->no_more_out = true;
	if (is_connected(p))
		carry_on(p, 0);
}

static void watch_again(void *arg)
{
	struct port *p = arg;

	if (is_connected(p))
		set_interest(p);
}

static void lose_stream(void *arg)
{
	struct port *p = arg;

	p->stream = NULL;
	if (p->pid)
		kill(p->pid, SIGKILL); /* the port is freed when the child is reaped */
	else
		port_free(p);
}

/* ---- connecting ---- */

static void run_child(const int *sockets, uint32_t port)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6,
				  .sin6_port = htons((uint16_t)port),
				  .sin6_addr = IN6ADDR_LOOPBACK_INIT};

	alarm(CONNECT_SECONDS);
	if (sockets[0] >= 0 && connect(sockets[0], (void *)&v4, sizeof(v4)) == 0)
		_exit(BY_V4);
	if (sockets[1] >= 0 && connect(sockets[1], (void *)&v6, sizeof(v6)) == 0)
		_exit(BY_V6);
	_exit(REFUSED);
}

/* Takes fd. */
static void connected(struct port *p, int fd)
{
	p->watch = (struct loop_watch){.fd = fd, .call = carry_on, .arg = p};
	close_fd(&p->sockets[0]);
	close_fd(&p->sockets[1]);
	fcntl(p->watch.fd, F_SETFL, O_NONBLOCK);
	stream_ok(p->stream, NULL);
	carry_on(p, 0);
}

bool connect_reaped(struct guest *g, pid_t pid, int status)
{
	struct port *p = g->ports;

	while (p && p->pid != pid)
		p = p->next;
	if (!p)
		return false;
	p->pid = 0;
	if (!p->stream) {
		port_free(p);
	} else if (WIFEXITED(status) && WEXITSTATUS(status) != REFUSED) {
		connected(p, take_fd(&p->sockets[WEXITSTATUS(status) == BY_V6]));
	} else {
		bool late = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;

		stream_error(p->stream, late ? ETIMEDOUT : ECONNREFUSED,
			     late ? "the port does not answer" : "nothing listens on the port");
		port_free(p);
	}
	return true;
}

static const struct stream_ops port_ops = {send_data, end_data, watch_again, lose_stream};

static struct port *port_new(struct guest_stream *s)
{
	struct guest *g = s->guest;
	struct port *p = must_alloc(calloc(1, sizeof(*p)));

	*p = (struct port){.guest = g, .stream = s, .next = g->ports, .back = &g->ports};
	if (p->next)
		p->next->back = &p->next;
	g->ports = p;
	p->watch.fd = p->sockets[0] = p->sockets[1] = -1;
	return p;
}

void connect_request(struct guest_stream *s, const struct unpacked_request *r)
{
	uint32_t port = (uint32_t)r->number[0];
	struct port *p;

	if (port == 0 || port > 65535) {
		stream_error(s, EINVAL, "there is no port %u", port);
		return;
	}
	p = port_new(s);
	p->sockets[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	p->sockets[1] = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	p->pid = worker_fork(p->sockets, 2);
	if (p->pid == 0)
		run_child(p->sockets, port);
	if (p->pid < 0) {
		stream_error(s, errno, "cannot start a worker: %m");
		port_free(p);
		return;
	}
	stream_go_on(s, &port_ops, p);
}

/* ---- the agent's socket ---- */

/* The oldest request that waits for a connection. */
static struct port *first_waiting(struct guest *g)
{
	struct port *found = NULL;

	for (struct port *p = g->ports; p; p = p->next)
		if (p->waits)
			found = p;
	return found;
}

static void on_agent(void *arg, uint32_t events)
{
	struct guest *g = arg;
	struct port *p = first_waiting(g);
	int fd = p ? accept4(g->agent.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1;

	if (fd >= 0) {
		p->waits = false;
		connected(p, fd);
	}
	/* Whoever connects now waits, too, until there is a request. */
	if (!first_waiting(g))
		loop_unwatch(g->loop, &g->agent);
}

static int listen_for_agent(void)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = GUEST_AGENT_SOCKET};
	auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	/* Every user of the sandbox is its agent. */
	(void)!unlink(at.sun_path);
	if (fd < 0 || bind(fd, (void *)&at, sizeof(at)) < 0 || chmod(at.sun_path, 0666) < 0 ||
	    listen(fd, 16) < 0)
		return -1;
	return take_fd(&fd);
}

void accept_request(struct guest_stream *s, const struct unpacked_request *r)
{
	struct guest *g = s->guest;
	struct port *p;

	if (g->agent.fd < 0)
		g->agent = (struct loop_watch){
			.fd = listen_for_agent(), .events = EPOLLIN, .call = on_agent, .arg = g};
	if (g->agent.fd < 0) {
		stream_error(s, errno, "cannot listen at " GUEST_AGENT_SOCKET ": %m");
		return;
	}
	p = port_new(s);
	p->waits = true;
	stream_go_on(s, &port_ops, p);
	loop_watch(g->loop, &g->agent);
}
