/*
 * The broker's end of the channel to the role egress. When the role ends, its listeners in the sandboxes end with
 * it; the next instance gets new ones, and everything else again.
 */
#include "base/log.h"
#include "daemon/broker/broker_internal.h"

#include <sys/mman.h>

#define MOST_WAITING 20000
#define ROUND 64	 /* messages before others have their turn */
#define RESTORE_BOXES 16 /* in a round of the loop */

struct egress_waiting {
	struct egress_waiting *next;
	int fds[NET_LISTENERS_MAX];
	size_t count;
	struct egress m; /* as much of it as its type needs */
};

/* ---- sending ---- */

static void drop_first(struct egress_side *s)
{
	struct egress_waiting *w = s->first;

	s->first = w->next;
	if (!s->first)
		s->last = &s->first;
	s->waiting--;
	for (size_t i = 0; i < w->count; i++)
		close_fd(&w->fds[i]);
	free(w);
}

/* 0: sent, or nobody is there; 1: the role is slow. */
static int try_to_send(struct daemon *d, const struct egress *m, const int *fds, size_t count)
{
	if (egress_send(d->egress.watch.fd, m, fds, count) == 0)
		return 0;
	if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS)
		return 1;
	return 0;
}

static void send_waiting(struct daemon *d)
{
	struct egress_side *s = &d->egress;

	while (s->first) {
		if (try_to_send(d, &s->first->m, s->first->fds, s->first->count) != 0)
			return;
		drop_first(s);
	}
	loop_change(d->loop, &s->watch, EPOLLIN);
}

void egress_tell(struct daemon *d, const struct egress *m, const int *fds, size_t count)
{
	struct egress_side *s = &d->egress;
	size_t size = egress_size(m->type);
	struct egress_waiting *w;

	if (s->watch.fd < 0 || (!s->first && try_to_send(d, m, fds, count) == 0))
		return;
	if (s->waiting >= MOST_WAITING) {
		roles_end(d, ROLE_EGRESS, "it does not read");
		return;
	}
	w = must_alloc(calloc(1, offsetof(struct egress_waiting, m) + size));
	memcpy(&w->m, m, size);
	for (; w->count < count; w->count++)
		w->fds[w->count] = fcntl(fds[w->count], F_DUPFD_CLOEXEC, 3);
	*s->last = w;
	s->last = &w->next;
	s->waiting++;
	loop_change(d->loop, &s->watch, EPOLLIN | EPOLLOUT);
}

void egress_tell_bytes(struct daemon *d, const struct egress *m, const void *bytes, size_t len)
{
	auto_close int fd = memfd_create("egress", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	/* Egress refuses everything of a sandbox whose rules it did not get. */
	if (fd < 0 || io_write_all(fd, bytes, len) < 0 || io_seal(fd) < 0)
		log_error("cannot hand over bytes to egress", "error", strerror(errno));
	else
		egress_tell(d, m, &fd, 1);
}

static void read_proxy_auth(const char *file, char *ret, size_t size)
{
	auto_close int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	ssize_t n = fd < 0 ? -1 : read(fd, ret, size - 1);

	if (n < 0)
		log_error("network.proxy_auth_file cannot be read", "error", strerror(errno));
	ret[n > 0 ? n : 0] = '\0';
	ret[strcspn(ret, "\r\n")] = '\0';
}

void egress_send_settings(struct daemon *d)
{
	const struct config_network *n = &d->config->network;
	struct egress m = {.type = EGRESS_SETTINGS};
	struct egress_settings *s = must_alloc(calloc(1, sizeof(*s)));
	auto_close int fd = -1;
	struct err e = {0};

	s->dns_count = n->dns_count;
	memcpy(s->dns, n->dns, sizeof(s->dns));
	snprintf(s->proxy, sizeof(s->proxy), "%s", n->proxy);
	snprintf(s->ca_file, sizeof(s->ca_file), "%s", n->ca_file);
	if (n->proxy_auth_file[0])
		read_proxy_auth(n->proxy_auth_file, s->proxy_auth, sizeof(s->proxy_auth));
	fd = egress_settings_fd(s, &e);
	if (fd < 0) {
		/* Hosts with other certificates are refused then. */
		log_error("network.ca_file is not used", "error", e.msg);
		s->ca_file[0] = '\0';
		fd = egress_settings_fd(s, &e);
	}
	if (fd >= 0)
		egress_tell(d, &m, &fd, 1);
	explicit_bzero(s, sizeof(*s));
	free(s);
	d->egress_settings = *n;
}

void egress_ping(struct daemon *d)
{
	egress_tell(d, &(struct egress){.type = EGRESS_PING}, NULL, 0);
}

/* ---- receiving ---- */

static void take_meter(struct daemon *d, const struct egress_meter *meter)
{
	struct ipc m = {.type = IPC_NET_METER};
	struct box *b = box_find_live(d, meter->id);

	if (!b || !b->net)
		return;
	network_metered(b, meter);
	m.net_meter = network_used(b->net);
	front_news(d, &m, -1);
}

/* ---- the front wants to know all up to now ---- */

struct egress_flush {
	struct egress_flush *next;
	struct requester who;
	char id[IPC_ID];
};

/* The oldest question about this sandbox: egress answers in order. NULL: all of them. */
static void answer_flush(struct daemon *d, const char *id)
{
	for (struct egress_flush **at = &d->egress.flushes, *f; (f = *at);) {
		if (id && !str_equal(f->id, id)) {
			at = &f->next;
			continue;
		}
		*at = f->next;
		front_done(d, f->who, f->id, NULL);
		free(f);
		if (id)
			return;
	}
}

void egress_request_flush(struct daemon *d, struct requester who, const struct ipc *m)
{
	struct egress question = {.type = EGRESS_FLUSH};
	struct egress_flush **end = &d->egress.flushes, *f;
	struct box *b = box_find_live(d, m->id);

	if (!b || !b->net || !b->net->is_prepared || d->egress.watch.fd < 0) {
		front_done(d, who, m->id, NULL);
		return;
	}
	f = must_alloc(malloc(sizeof(*f)));
	*f = (struct egress_flush){.who = who};
	memcpy(f->id, m->id, sizeof(f->id));
	while (*end)
		end = &(*end)->next;
	*end = f;
	memcpy(question.id, m->id, sizeof(question.id));
	egress_tell(d, &question, NULL, 0);
}

/* ---- messages ---- */

static void take_message(struct daemon *d, const struct egress *m, int fd)
{
	struct ipc asks = {.type = IPC_NET_ASKS};
	struct box *b;

	switch (m->type) {
	case EGRESS_METER:
		take_meter(d, &m->meter);
		break;
	case EGRESS_GONE:
		take_meter(d, &m->meter);
		b = box_find_live(d, m->meter.id);
		if (b)
			network_left(b);
		break;
	case EGRESS_RECORD:
		b = box_find_live(d, m->record.id);
		if (b && b->net)
			attempt_record(b, &m->record);
		break;
	case EGRESS_CA:
		b = box_find_live(d, m->id);
		if (b && b->net)
			secrets_take_ca(b, fd);
		break;
	case EGRESS_ASK:
		asks.net_record = m->record;
		if (box_find_live(d, m->record.id))
			front_news(d, &asks, -1);
		break;
	case EGRESS_FLUSHED:
		take_meter(d, &m->meter);
		answer_flush(d, m->meter.id);
		break;
	case EGRESS_WANT_PEER:
		segment_request(d, &m->peer);
		break;
	case EGRESS_PONG:
		roles_answered(d, ROLE_EGRESS);
		break;
	}
}

static void on_ready(void *arg, uint32_t events)
{
	struct daemon *d = arg;

	if (events & EPOLLOUT)
		send_waiting(d);
	for (int i = 0; i < ROUND && d->egress.watch.active && (events & ~(uint32_t)EPOLLOUT);
	     i++) {
		struct egress m;
		int fds[1] = {-1}, rc;
		size_t count = 0;

		rc = egress_receive(d->egress.watch.fd, &m, fds, 1, &count);
		if (rc < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (rc <= 0) {
			/* A role that has ended is reaped elsewhere. */
			loop_unwatch(d->loop, &d->egress.watch);
			if (rc < 0)
				roles_end(d, ROLE_EGRESS, "it does not keep to the protocol");
			return;
		}
		take_message(d, &m, fds[0]);
		if (count)
			close_fd(&fds[0]);
	}
}

/* ---- a new instance ---- */

/* In portions: entering a namespace takes time, and there may be many. */
static void restore_networks(void *arg)
{
	struct daemon *d = arg;
	unsigned done = 0;

	while (d->egress.next_bucket < BOX_BUCKETS && done < RESTORE_BOXES) {
		for (struct box *b = d->boxes[d->egress.next_bucket]; b; b = b->next) {
			if (b->state != BOX_LIVE || !b->net || b->net->is_prepared)
				continue;
			done++;
			network_restore(b);
		}
		d->egress.next_bucket++;
	}
	if (d->egress.next_bucket < BOX_BUCKETS)
		loop_task_add(d->loop, &d->egress.restore);
}

void egress_attach(struct daemon *d, int sock)
{
	struct egress_side *s = &d->egress;

	s->watch = (struct loop_watch){.fd = sock, .events = EPOLLIN, .call = on_ready, .arg = d};
	s->first = NULL;
	s->last = &s->first;
	s->waiting = 0;
	s->restore = (struct loop_task){.call = restore_networks, .arg = d};
	if (loop_watch(d->loop, &s->watch) < 0)
		log_error("cannot watch role egress", "error", strerror(errno));
	egress_send_settings(d);
	if (s->is_held)
		egress_tell(d, &(struct egress){.type = EGRESS_HOLD}, NULL, 0);
	s->held = (struct loop_timer){.call = attempts_try_again, .arg = d};
	if (s->is_held)
		attempts_try_again(d);
	s->next_bucket = 0;
	loop_task_add(d->loop, &s->restore);
}

void egress_detach(struct daemon *d)
{
	struct egress_side *s = &d->egress;

	if (s->watch.fd < 0)
		return;
	loop_unwatch(d->loop, &s->watch);
	close_fd(&s->watch.fd);
	loop_task_remove(d->loop, &s->restore);
	loop_timer_stop(d->loop, &s->held);
	while (s->first)
		drop_first(s);
	for (size_t i = 0; i < BOX_BUCKETS; i++)
		for (struct box *b = d->boxes[i]; b; b = b->next)
			if (b->net)
				network_lost(b);
	answer_flush(d, NULL);
}
