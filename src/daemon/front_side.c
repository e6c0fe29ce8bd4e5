#include "daemon/front_side.h"

#include "base/auto.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/snapshots.h"
#include "daemon/state.h"
#include "daemon/uploads.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct out {
	struct out *next;
	int fd;
	struct ipc m;
};

#define MOST_WAITING 20000 /* a front that lets so much wait is stuck */
#define SLOW 256

/* ---- sending ---- */

static void drop_waiting(struct front_side *f)
{
	while (f->first) {
		struct out *o = f->first;

		f->first = o->next;
		close_fd(&o->fd);
		free(o);
	}
	f->last = &f->first;
	f->waiting = 0;
}

static void put_off(struct daemon *d, const struct ipc *m, int fd)
{
	struct front_side *f = &d->front;
	size_t size = ipc_size(m->type);
	struct out *o;

	if (f->waiting >= MOST_WAITING) {
		roles_restart_front(d, "it does not read");
		return;
	}
	o = must_alloc(calloc(1, sizeof(*o) - sizeof(o->m) + size));
	memcpy(&o->m, m, size);
	o->fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
	*f->last = o;
	f->last = &o->next;
	f->waiting++;
	loop_change(d->loop, &f->watch, EPOLLIN | EPOLLOUT);
}

static void send_waiting(struct daemon *d)
{
	struct front_side *f = &d->front;

	while (f->first) {
		struct out *o = f->first;

		if (ipc_send(f->sock, &o->m, o->fd) < 0) {
			/* That it is gone is heard from its death. */
			if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS)
				return;
		}
		f->first = o->next;
		if (!f->first)
			f->last = &f->first;
		f->waiting--;
		close_fd(&o->fd);
		free(o);
	}
	loop_change(d->loop, &f->watch, EPOLLIN);
}

static void send_front(struct daemon *d, struct ipc *m, int fd)
{
	struct front_side *f = &d->front;

	if (f->sock < 0)
		return;
	if (f->first || (ipc_send(f->sock, m, fd) < 0 &&
			 (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS)))
		put_off(d, m, fd);
}

void front_news(struct daemon *d, struct ipc *m, int fd)
{
	m->serial = 0;
	/* What happens before it is told of all there is, it is told of then. */
	if (d->front.was_told)
		send_front(d, m, fd);
}

void front_news_early(struct daemon *d, struct ipc *m, int fd)
{
	m->serial = 0;
	send_front(d, m, fd);
}

void front_answer(struct daemon *d, struct asker who, struct ipc *m, int fd)
{
	m->serial = who.serial;
	if (who.serial && who.epoch == d->front.epoch)
		send_front(d, m, fd);
}

void front_done(struct daemon *d, struct asker who, const char *id, const struct err *e)
{
	struct ipc m = {.type = IPC_DONE};

	if (e)
		m.err = *e;
	strncpy(m.id, id, sizeof(m.id) - 1);
	front_answer(d, who, &m, -1);
}

bool front_is_slow(const struct daemon *d)
{
	return !d->front.was_told || d->front.waiting >= SLOW;
}

/* ---- receiving ---- */

static void quit(struct daemon *d, struct asker who, const struct ipc *m)
{
	(void)who;
	(void)m;
	if (d->stopping)
		daemon_front_is_done(d);
	else
		roles_restart_front(d, "it quit");
}

static const struct {
	uint32_t type;
	void (*run)(struct daemon *d, struct asker who, const struct ipc *m);
} requests[] = {
	{IPC_BOOT, box_request_boot},
	{IPC_CONNECT, box_request_connect},
	{IPC_DESTROY, box_request_destroy},
	{IPC_PAUSE, box_request_pause},
	{IPC_RESUME, box_request_resume},
	{IPC_UPDATE, box_request_update},
	{IPC_CLAIM, box_request_claim},
	{IPC_STATS, box_request_stats},
	{IPC_SNAPSHOT, snapshot_request_make},
	{IPC_SNAPSHOT_LIST, snapshot_request_list},
	{IPC_SNAPSHOT_DELETE, snapshot_request_delete},
	{IPC_SNAPSHOT_READ, snapshot_request_read},
	{IPC_SNAPSHOT_WRITE, snapshot_request_write},
	{IPC_SNAPSHOT_KEEP, snapshot_request_keep},
	{IPC_QUIT, quit},
};

static bool dispatch(struct daemon *d, const struct ipc *m)
{
	struct asker who = {d->front.epoch, m->serial};

	/* Serial 0 is news, of which the front has none; only its good-bye needs no answer. */
	if (m->serial == 0 && m->type != IPC_QUIT)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
		if (requests[i].type != m->type)
			continue;
		requests[i].run(d, who, m);
		return true;
	}
	return false;
}

#define ROUND 64 /* messages before others have their turn */

static void on_front(void *arg, uint32_t events)
{
	static struct ipc m;
	struct daemon *d = arg;
	struct front_side *f = &d->front;

	if (events & EPOLLOUT)
		send_waiting(d);
	for (int i = 0; i < ROUND && f->sock >= 0; i++) {
		int fd = -1, rc = ipc_receive(f->sock, &m, &fd);

		/* No request of the front's comes with an fd. */
		close_fd(&fd);
		if (rc == 1 && dispatch(d, &m))
			continue;
		if (rc < 0 && errno == EAGAIN)
			return;
		if (rc == 0 || (rc < 0 && errno != EBADMSG)) {
			/* It has closed its end; its death is noticed elsewhere. */
			loop_unwatch(d->loop, &f->watch);
			return;
		}
		roles_restart_front(d, "it does not keep to the protocol");
		return;
	}
}

/* ---- a new front ---- */

void front_send_config(struct daemon *d)
{
	struct ipc m = {.type = IPC_CONFIG};
	struct err e = {0};
	auto_close int fd = config_write(d->config, &e);

	if (fd < 0)
		log_error("cannot hand on the configuration", "error", e.msg);
	else
		send_front(d, &m, fd);
}

static void send_listeners(struct daemon *d)
{
	for (size_t i = 0; i < d->listener_count; i++) {
		struct ipc m = {.type = IPC_LISTENER};

		if (!d->listeners[i].is_unix)
			send_front(d, &m, d->listeners[i].fd);
	}
}

static void send_boxes(struct daemon *d)
{
	for (size_t i = 0; i < BOX_BUCKETS; i++)
		for (struct box *b = d->boxes[i], *next; b; b = next) {
			next = b->next;
			if (b->state != BOX_LIVE)
				continue;
			/* Whoever waited for it is gone with the front before. */
			if (b->i.info.transient)
				box_destroy(b, (struct asker){0});
			else
				box_announce(b);
		}
}

void front_attach(struct daemon *d, int sock)
{
	struct front_side *f = &d->front;
	struct ipc ready = {.type = IPC_READY};

	f->sock = sock;
	f->epoch++;
	f->last = &f->first;
	f->watch = (struct loop_watch){.fd = sock, .events = EPOLLIN, .call = on_front, .arg = d};
	if (loop_watch(d->loop, &f->watch) < 0)
		log_error("cannot watch the front", "error", strerror(errno));
	front_send_config(d);
	front_send_tokens(d);
	send_listeners(d);
	f->was_told = true;
	send_boxes(d);
	front_news(d, &ready, -1);
}

void front_detach(struct daemon *d)
{
	struct front_side *f = &d->front;

	if (f->sock < 0)
		return;
	loop_unwatch(d->loop, &f->watch);
	close_fd(&f->sock);
	drop_waiting(f);
	uploads_drop(d);
	f->was_told = false;
	/* Answers for it go nowhere from now on. */
	f->epoch++;
}
