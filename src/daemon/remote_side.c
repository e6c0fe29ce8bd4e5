#include "daemon/remote_side.h"

#include "base/auto.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/record.h"
#include "daemon/state.h"
#include "wire/remote.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct remote_asked {
	struct remote_asked *next;
	uint32_t serial;
	enum remote_type type;
	struct asker who;
	char id[IPC_ID];
};

bool box_is_remote(const struct box *b)
{
	return b->info.provider == PROVIDER_E2B;
}

/* ---- answers ---- */

static void describe(struct box *b)
{
	const struct config_e2b *s = &b->d->config->e2b;
	struct ipc_booted *i = &b->info;
	struct timespec now;

	/* Nothing of it was seen from here, so nothing is claimed. */
	i->proven = 0;
	i->missing = LAYER_BIT(LAYER_COUNT) - 1;
	snprintf(i->seccomp, sizeof(i->seccomp), "none");
	snprintf(i->disk, sizeof(i->disk), "none");
	snprintf(i->note, sizeof(i->note),
		 "It runs on the service at %.100s, template %.60s: what separates it from others "
		 "there was not measured.",
		 s->api_url, s->template);
	clock_gettime(CLOCK_REALTIME, &now);
	i->started_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void on_booted(struct box *b, const struct remote_message *m, struct asker who, int link)
{
	struct ipc reply = {.type = IPC_BOOTED};
	struct err e = m->err;
	bool is_there = !e.kind && m->name[0];

	free(take_ptr(b->boot));
	if (!is_there) {
		if (!e.kind)
			err_set(&e, ERR_SYSTEM, "the role remote answers nonsense");
		log_warn("sandbox not booted", "id", b->info.id, "error", e.msg);
		front_done(b->d, who, b->info.id, &e);
		box_clear(b);
		return;
	}
	snprintf(b->remote, sizeof(b->remote), "%s", m->name);
	describe(b);
	b->state = BOX_LIVE;
	b->info.generation++;
	if (b->is_doomed)
		err_set(&e, ERR_CONFLICT, "it was destroyed meanwhile");
	else if (link < 0)
		err_set(&e, ERR_SYSTEM, "the role remote gave no link");
	else
		(void)record_write(b, &e);
	reply.booted = b->info;
	if (e.kind) {
		front_done(b->d, who, b->info.id, &e);
		box_destroy(b, (struct asker){0});
	} else if (who.epoch != b->d->front.epoch) {
		box_announce(b);
	} else {
		front_answer(b->d, who, &reply, link);
	}
}

static void on_connected(struct box *b, const struct remote_message *m, struct asker who, int link)
{
	struct ipc reply = {.type = IPC_BOOTED};
	struct err e = m->err;

	b->info.generation++;
	if (!e.kind && link < 0)
		err_set(&e, ERR_SYSTEM, "the role remote gave no link");
	if (!e.kind)
		(void)record_write(b, &e);
	reply.booted = b->info;
	if (e.kind)
		front_done(b->d, who, b->info.id, &e);
	else
		front_answer(b->d, who, &reply, link);
}

static void on_changed(struct box *b, const struct remote_message *m, struct asker who, bool paused)
{
	struct err ignored;

	b->is_busy = false;
	if (!m->err.kind) {
		b->info.paused = paused;
		(void)record_write(b, &ignored);
	}
	front_done(b->d, who, b->info.id, m->err.kind ? &m->err : NULL);
}

#define DESTROY_AGAIN_MS 10000

static void destroy_again(void *arg)
{
	struct box *b = arg;

	if (b->state == BOX_LIVE)
		box_destroy(b, (struct asker){0});
}

static void on_destroyed(struct box *b, const struct remote_message *m)
{
	if (!m->err.kind) {
		box_clear(b);
		return;
	}
	/*
	 * It may be there still: whoever asked may ask again, and so do we. Nobody renews its time
	 * meanwhile.
	 */
	b->timer = (struct loop_timer){.call = destroy_again, .arg = b};
	loop_timer_set(b->d->loop, &b->timer, DESTROY_AGAIN_MS);
	for (size_t i = 0; i < b->destroyer_count; i++)
		front_done(b->d, b->destroyers[i], b->info.id, &m->err);
	b->destroyer_count = 0;
	b->state = BOX_LIVE;
}

static void answer(struct daemon *d, const struct remote_asked *a, const struct remote_message *m,
		   int fd)
{
	struct box *b = box_find(d, a->id);
	struct err gone = {0};

	if (a->type == REMOTE_DESTROY && b && b->state == BOX_DYING) {
		on_destroyed(b, m);
	} else if (a->type == REMOTE_CREATE && b && b->state == BOX_BOOTING) {
		on_booted(b, m, a->who, fd);
	} else if (b && b->state == BOX_LIVE && a->type == REMOTE_CONNECT) {
		on_connected(b, m, a->who, fd);
	} else if (b && b->state == BOX_LIVE && a->type != REMOTE_DESTROY) {
		on_changed(b, m, a->who, a->type == REMOTE_PAUSE);
	} else {
		err_set(&gone, ERR_CONFLICT, "the sandbox is gone");
		front_done(d, a->who, a->id, &gone);
	}
}

/* ---- asking ---- */

static void fail(struct daemon *d, struct remote_asked *a, const char *why)
{
	struct remote_message m = {.type = REMOTE_DONE};

	err_set(&m.err, ERR_SYSTEM, "%s", why);
	answer(d, a, &m, -1);
	free(a);
}

static void ask(struct box *b, enum remote_type type, struct asker who)
{
	struct remote_side *r = &b->d->remote;
	struct remote_asked *a = must_alloc(calloc(1, sizeof(*a)));
	struct remote_message m = {.type = type};

	if (++r->next_serial == 0)
		r->next_serial = 1;
	*a = (struct remote_asked){.serial = r->next_serial, .type = type, .who = who};
	memcpy(a->id, b->info.id, sizeof(a->id));
	m.serial = a->serial;
	memcpy(m.id, b->info.id, sizeof(m.id));
	memcpy(m.name, b->remote, sizeof(m.name));
	if (r->sock < 0 || remote_send(r->sock, &m, -1) < 0) {
		fail(b->d, a, "the role remote, which speaks with the E2B service, does not run");
		return;
	}
	a->next = r->asked;
	r->asked = a;
}

void remote_boot(struct box *b)
{
	b->state = BOX_BOOTING;
	ask(b, REMOTE_CREATE, b->booter_asker);
}

void remote_connect(struct box *b, struct asker who)
{
	ask(b, REMOTE_CONNECT, who);
}

void remote_pause(struct box *b, struct asker who)
{
	b->is_busy = true;
	ask(b, REMOTE_PAUSE, who);
}

void remote_resume(struct box *b, struct asker who)
{
	b->is_busy = true;
	ask(b, REMOTE_RESUME, who);
}

void remote_destroy(struct box *b)
{
	ask(b, REMOTE_DESTROY, (struct asker){0});
}

/* ---- what comes ---- */

static void take_gone(struct daemon *d, const struct remote_message *m)
{
	struct box *b = box_find(d, m->id);
	struct ipc news = {.type = IPC_DIED};

	if (!b || !box_is_remote(b) || b->state != BOX_LIVE || !str_equal(b->remote, m->name))
		return;
	memcpy(news.died.id, b->info.id, sizeof(news.died.id));
	snprintf(news.died.why, sizeof(news.died.why), "the E2B service has it no more");
	log_info("sandbox ended", "id", b->info.id, "why", m->err.msg);
	front_news(d, &news, -1);
	box_clear(b);
}

static struct remote_asked *take_asked(struct remote_side *r, uint32_t serial)
{
	struct remote_asked **at = &r->asked, *a;

	while (*at && (*at)->serial != serial)
		at = &(*at)->next;
	a = *at;
	if (a)
		*at = a->next;
	return a;
}

static void on_role(void *arg, uint32_t events)
{
	struct daemon *d = arg;

	(void)events;
	for (int i = 0; i < 64 && d->remote.sock >= 0; i++) {
		struct remote_message m;
		auto_close int fd = -1;
		int rc = remote_receive(d->remote.sock, &m, &fd);
		struct remote_asked *a;

		if (rc < 0 && errno == EAGAIN)
			return;
		if (rc <= 0) {
			/* One that has gone is noticed elsewhere; one that babbles is ended. */
			loop_unwatch(d->loop, &d->remote.watch);
			if (rc < 0)
				roles_end_remote(d, "it does not keep to the protocol");
			return;
		}
		if (m.type == REMOTE_GONE) {
			take_gone(d, &m);
			continue;
		}
		a = m.type == REMOTE_DONE ? take_asked(&d->remote, m.serial) : NULL;
		if (a)
			answer(d, a, &m, fd);
		free(a);
	}
}

void remote_attach(struct daemon *d, int sock)
{
	struct remote_side *r = &d->remote;

	r->sock = sock;
	r->watch = (struct loop_watch){.fd = sock, .events = EPOLLIN, .call = on_role, .arg = d};
	if (loop_watch(d->loop, &r->watch) < 0)
		log_error("cannot watch a role", "role", "remote", "error", strerror(errno));
}

void remote_detach(struct daemon *d)
{
	struct remote_side *r = &d->remote;

	if (r->sock >= 0)
		loop_unwatch(d->loop, &r->watch);
	close_fd(&r->sock);
	while (r->asked) {
		struct remote_asked *a = r->asked;

		r->asked = a->next;
		fail(d, a, "the role remote, which speaks with the E2B service, ended");
	}
}
