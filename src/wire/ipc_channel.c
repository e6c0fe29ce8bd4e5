/* Sends messages in order without blocking, and hands received ones to a callback. */
#include "wire/ipc_channel.h"

#define ROUND 64 /* messages before others have their turn */

struct ipc_waiting {
	struct ipc_waiting *next;
	int fd;
	struct ipc m; /* as much of it as its type needs */
};

static void break_channel(struct ipc_channel *c, int errnum)
{
	loop_unwatch(c->loop, &c->watch);
	c->on_broken(c->arg, errnum);
}

/* ---- sending ---- */

static void drop_first(struct ipc_channel *c)
{
	struct ipc_waiting *w = c->first;

	c->first = w->next;
	if (!c->first)
		c->last = &c->first;
	c->waiting--;
	close_fd(&w->fd);
	free(w);
}

/* 0: sent; 1: the other side is slow; -1: it is gone. */
static int try_to_send(struct ipc_channel *c, const struct ipc *m, int fd)
{
	if (ipc_send(c->watch.fd, m, fd) == 0)
		return 0;
	if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS)
		return 1;
	break_channel(c, errno);
	return -1;
}

static void send_waiting(struct ipc_channel *c)
{
	while (c->first) {
		if (try_to_send(c, &c->first->m, c->first->fd) != 0)
			return;
		drop_first(c);
	}
	loop_change(c->loop, &c->watch, EPOLLIN);
}

void ipc_channel_send(struct ipc_channel *c, const struct ipc *m, int fd)
{
	size_t size = ipc_size(m->type);
	struct ipc_waiting *w;

	if (!c->watch.active || (!c->first && try_to_send(c, m, fd) <= 0))
		return;
	w = must_alloc(calloc(1, offsetof(struct ipc_waiting, m) + size));
	memcpy(&w->m, m, size);
	w->fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
	*c->last = w;
	c->last = &w->next;
	c->waiting++;
	loop_change(c->loop, &c->watch, EPOLLIN | EPOLLOUT);
}

/* ---- receiving ---- */

static void on_ready(void *arg, uint32_t events)
{
	struct ipc_channel *c = arg;

	if (events & EPOLLOUT)
		send_waiting(c);
	for (int i = 0; i < ROUND && c->watch.active && (events & ~(uint32_t)EPOLLOUT); i++) {
		struct ipc m;
		int fd = -1, rc;

		if (i && loop_turn_is_over(c->loop))
			return;
		rc = ipc_receive(c->watch.fd, &m, &fd);

		if (rc < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (rc <= 0)
			break_channel(c, rc < 0 ? errno : 0);
		else
			c->on_message(c->arg, &m, fd);
	}
}

void ipc_channel_open(struct ipc_channel *c, int fd)
{
	c->watch = (struct loop_watch){.fd = fd, .events = EPOLLIN, .call = on_ready, .arg = c};
	c->first = NULL;
	c->last = &c->first;
	c->waiting = 0;
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	if (loop_watch(c->loop, &c->watch) < 0)
		break_channel(c, errno);
}

void ipc_channel_close(struct ipc_channel *c)
{
	loop_unwatch(c->loop, &c->watch);
	close_fd(&c->watch.fd);
	while (c->first)
		drop_first(c);
}
