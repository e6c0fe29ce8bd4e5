/* Keeps what was refused to each command, and reports it on request and as events (G_EVENTS). */
#include "guest/exec/command.h"
#include "guest/link/request.h"
#include "guest/files/tree.h"
#include "sandbox/inside/notify.h"

#define NEWS_MS 200

/* ---- what is kept ---- */

static unsigned count_of(const struct status_page *b, uint32_t owner)
{
	unsigned count = 0;

	for (unsigned i = 0; i < b->denial_count; i++)
		count += b->denials[i].owner == owner;
	return count;
}

/*
 * A sandbox may live long, so the oldest entry makes room: one of the command that has the most, so
 * that a command which asks for a thousand names does not hide what others were refused.
 */
static void make_room(struct guest *g)
{
	struct status_page *b = g->page;
	unsigned most = 0, at = 0;

	if (b->denial_count < STATUS_PAGE_DENIALS)
		return;
	for (unsigned i = 0; i < b->denial_count; i++) {
		unsigned count = count_of(b, b->denials[i].owner);

		if (count > most) {
			most = count;
			at = i;
		}
	}
	b->denial_count--;
	memmove(b->denials + at, b->denials + at + 1, (b->denial_count - at) * sizeof(*b->denials));
	memmove(g->told + at, g->told + at + 1, (b->denial_count - at) * sizeof(*g->told));
}

static void tell_news(void *arg);

static void schedule_news(struct guest *g)
{
	g->news.call = tell_news;
	g->news.arg = g;
	if (g->news.place == 0)
		loop_timer_set(g->loop, &g->news, NEWS_MS);
}

static void take_notify(struct guest *g, int listener, const struct seccomp_notif *n, uint32_t eid)
{
	make_room(g);
	g->page->owner = eid;
	notify_answer(g->page, notify_profile((enum root_inside)g->options.root_inside), listener,
		      n);
	schedule_news(g);
}

void denials_take_notify(struct guest *g, int listener, uint32_t eid)
{
	struct seccomp_notif n;

	if (seccomp_notify_get(listener, &n) == 0)
		take_notify(g, listener, &n, eid);
}

void denials_take_query(struct guest *g, int fd, uint32_t eid)
{
	make_room(g);
	g->page->owner = eid;
	notify_refuse_name(g->page, fd);
	schedule_news(g);
}

static void on_notify(void *arg, uint32_t events)
{
	struct guest *g = arg;
	struct seccomp_notif n;

	if (!(events & EPOLLIN)) {
		loop_unwatch(g->loop, &g->notify);
		return;
	}
	if (seccomp_notify_get(g->notify.fd, &n) == 0)
		take_notify(g, g->notify.fd, &n, tree_owner(g->boot_id, (pid_t)n.pid));
}

static void on_dns(void *arg, uint32_t events)
{
	struct guest *g = arg;
	uint32_t owner = 0;

	/* The sender of a query is not visible; with a single command there is no doubt. */
	if (command_running(g) == 1)
		for (const struct command *c = g->commands; c; c = c->next)
			if (command_is_running(c))
				owner = c->eid;
	denials_take_query(g, g->dns.fd, owner);
}

int denials_start(struct guest *g)
{
	g->page = must_alloc(calloc(1, sizeof(*g->page)));
	g->notify = (struct loop_watch){
		.fd = g->options.notify, .events = EPOLLIN, .call = on_notify, .arg = g};
	g->dns = (struct loop_watch){
		.fd = g->options.dns, .events = EPOLLIN, .call = on_dns, .arg = g};
	if (g->notify.fd >= 0 && loop_watch(g->loop, &g->notify) < 0)
		return -1;
	return g->dns.fd >= 0 ? loop_watch(g->loop, &g->dns) : 0;
}

void denials_leave_names(struct guest *g)
{
	loop_unwatch(g->loop, &g->dns);
	close_fd(&g->dns.fd);
}

void denials_stop(struct guest *g)
{
	loop_unwatch(g->loop, &g->notify);
	loop_unwatch(g->loop, &g->dns);
	loop_timer_stop(g->loop, &g->news);
	oom_stop(g);
	free(g->page);
}

static void pack_denial(const struct guest *g, struct buf *b, const struct status_denial *d)
{
	struct denial words = {0};

	notify_explain(notify_profile((enum root_inside)g->options.root_inside), d, &words);
	pack_u8(b, (uint8_t)d->kind);
	pack_str(b, words.rule);
	pack_str(b, words.target);
	pack_str(b, words.explain);
	pack_u64(b, d->count);
}

static bool denial_concerns(const struct status_denial *d, const struct command *c)
{
	/* In a warm sandbox the command of each denial is known. */
	return d->owner == c->eid || (!c->in_sandbox && !d->owner && d->last_ns >= c->started_ns);
}

uint32_t denials_count(const struct guest *g, const struct command *c)
{
	uint32_t count = 0;

	for (unsigned i = 0; i < g->page->denial_count; i++)
		count += denial_concerns(&g->page->denials[i], c);
	return count;
}

void denials_request(struct guest_stream *s, const struct unpacked_request *r)
{
	struct guest *g = s->guest;
	uint32_t eid = (uint32_t)r->number[0], count = 0;
	const struct command *c = eid ? command_find(g, eid) : NULL;
	auto_buf struct buf rows = {0}, b = {0};

	if (eid && !c) {
		stream_error(s, ESRCH, "there is no command %u", eid);
		return;
	}
	for (unsigned i = 0; i < g->page->denial_count; i++) {
		const struct status_denial *d = &g->page->denials[i];

		if (c && !denial_concerns(d, c))
			continue;
		if (rows.len > GUEST_MAX_PAYLOAD - 2048)
			break;
		pack_denial(g, &rows, d);
		count++;
	}
	pack_u32(&b, count);
	buf_add(&b, rows.len ? buf_head(&rows) : NULL, rows.len);
	stream_ok(s, &b);
}

/* ---- G_EVENTS ---- */

/* A listener that does not read misses events, and does not delay the others. */
static void send_event(struct guest *g, const struct buf *b)
{
	for (size_t i = 0; i < ARRAY_LEN(g->listeners); i++) {
		struct guest_stream *s = g->listeners[i];

		if (s && stream_room(s) >= b->len)
			stream_put(s, G_ITEM, buf_head(b), b->len);
	}
}

static void tell_news(void *arg)
{
	struct guest *g = arg;

	for (unsigned i = 0; i < g->page->denial_count; i++) {
		const struct status_denial *d = &g->page->denials[i];
		auto_buf struct buf b = {0};

		if (g->told[i] == d->count)
			continue;
		g->told[i] = d->count;
		pack_u8(&b, 1);
		pack_denial(g, &b, d);
		send_event(g, &b);
	}
}

void denials_tell_exec(struct guest *g, const struct command *c)
{
	auto_buf struct buf b = {0};

	pack_u8(&b, 2);
	command_pack(c, &b);
	send_event(g, &b);
}

void denials_tell_end(struct guest *g)
{
	auto_buf struct buf b = {0};

	tell_news(g);
	pack_u8(&b, 3);
	send_event(g, &b);
}

static void on_events_end(void *arg)
{
	struct guest_stream **place = arg;

	*place = NULL;
}

void events_request(struct guest_stream *s, const struct unpacked_request *r)
{
	struct guest *g = s->guest;
	static const struct stream_ops ops = {.on_end = on_events_end};

	for (size_t i = 0; i < ARRAY_LEN(g->listeners); i++) {
		if (g->listeners[i])
			continue;
		g->listeners[i] = s;
		stream_go_on(s, &ops, &g->listeners[i]);
		stream_ok(s, NULL);
		return;
	}
	stream_error(s, EMFILE, "too many listen to events");
}
