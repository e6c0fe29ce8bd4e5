/*
 * The pool: sandboxes made in advance. A member is fresh (rule 20): no command ever ran in it, and it is
 * used once. Members are booted one at a time, and only while no request waits for a boot. While the
 * pool is nearly full, a boot also waits until no member was taken for a moment, since a client that
 * just took one probably needs the processors. The manager knows a member by its id, but no client can
 * find or list it before it is claimed.
 *
 * All members have the default image. The configuration may give an image name another meaning, so only
 * members with the host's own files survive a change of the configuration or a restart.
 */
#include "manager/manager_internal.h"

#include "wire/guest.h"

#define RETRY_FIRST_MS 1000
#define RETRY_MOST_MS 60000
#define CALM_MS 10

static uint32_t pool_size(const struct manager *m)
{
	return m->p.config->pool_size;
}

static const char *pool_image(const struct manager *m)
{
	return *m->p.config->sandbox.image ? m->p.config->sandbox.image : "host";
}

static bool suits_pool(const struct manager *m, const struct create_options *o)
{
	const struct sandbox_spec *s = &o->spec;

	return options_are_plain(o) && !options_are_warm_host(o) &&
	       str_equal(s->image ? s->image : "host", pool_image(m)) &&
	       (s->root == ROOT_OVERLAY || s->root == ROOT_RO);
}

/* These limits are set on pid 1 at its start and cannot be changed from outside. */
static bool has_same_limits(const struct sandbox *s, const struct limits *wanted)
{
	const struct limits *l = &s->booted.limits;

	return l->open_files == wanted->open_files && l->cpu_time_ms == wanted->cpu_time_ms;
}

struct sandbox *pool_take(struct manager *m, const struct create_options *o)
{
	struct pool *p = &m->pools[o->spec.root == ROOT_OVERLAY];
	struct sandbox *s = NULL;

	if (!suits_pool(m, o) || pool_size(m) == 0)
		return NULL;
	p->wanted = pool_size(m);
	for (uint32_t i = p->count; i-- > 0 && !s;) {
		if (o->spec.required_layers & ~p->ready[i]->booted.proven ||
		    !has_same_limits(p->ready[i], &o->spec.limits) ||
		    !str_equal(p->ready[i]->o.image_id, o->image_id))
			continue;
		s = p->ready[i];
		p->ready[i] = p->ready[--p->count];
	}
	if (!s) {
		m->metrics.pool_misses++;
		return NULL;
	}
	sandbox_hold(s);
	sandbox_remove(s);
	s->pooled = false;
	s->state = STATE_CREATING;
	s->holds--; /* the caller adds it again under its new owner */
	return s;
}

static void delay_boots(struct manager *m)
{
	m->pool_wait_ms = m->pool_wait_ms ? m->pool_wait_ms * 2 : RETRY_FIRST_MS;
	if (m->pool_wait_ms > RETRY_MOST_MS)
		m->pool_wait_ms = RETRY_MOST_MS;
	loop_timer_set(m->p.loop, &m->pool_timer, m->pool_wait_ms);
}

static void destroy_member(struct sandbox *s)
{
	broker_ask_id(s->m->p.broker, IPC_DESTROY, s->id, NULL, NULL);
	sandbox_close_link(s);
	sandbox_remove(s);
}

static void on_member_greeted(void *arg, const struct err *e)
{
	struct sandbox *s = arg;
	struct manager *m = s->m;
	struct pool *p = &m->pools[s->o.spec.root == ROOT_OVERLAY];

	p->booting--;
	if (e || !s->known || p->count >= pool_size(m) || s->pool_round != m->pool_round) {
		if (s->known)
			destroy_member(s);
		if (e)
			delay_boots(m);
		else
			pool_refill(m);
	} else {
		p->ready = array_room(p->ready, p->count, &p->room, sizeof(struct sandbox *));
		p->ready[p->count++] = s;
		s->state = STATE_CREATED;
		m->pool_wait_ms = 0;
		pool_refill(m);
	}
	sandbox_release(s);
}

static const struct call_ops greeted_ops = {.on_end = on_member_greeted};

static void greet_member(struct sandbox *s, int fd, uint64_t generation)
{
	sandbox_open_link(s, fd, generation);
	link_call(s->link, G_PING, NULL, 0, &greeted_ops, s);
}

static void on_member_booted(void *arg, const struct ipc *reply, int fd)
{
	struct sandbox *s = arg;
	struct manager *m = s->m;

	if (reply->err.kind == ERR_NONE && fd >= 0 && s->known) {
		s->booted = reply->booted;
		greet_member(s, fd, reply->booted.generation);
		return;
	}
	close_fd(&fd);
	manager_log(m, "the pool: cannot boot: %s", reply->err.msg);
	m->pools[s->o.spec.root == ROOT_OVERLAY].booting--;
	if (s->known)
		sandbox_remove(s);
	sandbox_release(s);
	delay_boots(m);
}

static struct sandbox *new_member(struct manager *m, const char *id, int root)
{
	struct sandbox *s = sandbox_new(m, id);

	create_options_done(&s->o);
	create_options_init(&s->o, m);
	s->o.spec.root = root;
	s->pooled = true;
	s->pool_round = m->pool_round;
	memcpy(s->owner.token, "-", 2);
	sandbox_add(s);
	return sandbox_hold(s);
}

static void boot_member(struct manager *m, int root)
{
	struct sandbox *s = new_member(m, NULL, root);
	struct ipc msg = {.type = IPC_BOOT};
	struct err e;

	m->pools[root == ROOT_OVERLAY].booting++;
	if (spec_finish(&s->o.spec, &e) < 0 || manager_choose_image(m, &s->owner, &s->o, &e) < 0)
		manager_log(m, "the pool: %s", e.msg);
	fill_boot(s, &msg.boot);
	broker_ask(m->p.broker, &msg, -1, on_member_booted, s);
}

void pool_refill(struct manager *m)
{
	static const int roots[] = {ROOT_OVERLAY, ROOT_RO};

	if (!m->ready || m->draining || m->admission.booting + m->admission.waiting ||
	    m->pool_timer.place || m->pools[0].booting || m->pools[1].booting)
		return;
	for (size_t i = 0; i < ARRAY_LEN(roots); i++) {
		struct pool *p = &m->pools[roots[i] == ROOT_OVERLAY];

		if (p->count < p->wanted) {
			boot_member(m, roots[i]);
			return;
		}
	}
}

void pool_taken(struct manager *m)
{
	bool low = false;

	for (size_t i = 0; i < ARRAY_LEN(m->pools); i++)
		low = low || m->pools[i].count * 4 < m->pools[i].wanted * 3;
	/* After a failed boot the retry timer decides. */
	if (m->pool_wait_ms)
		return;
	if (!low) {
		loop_timer_set(m->p.loop, &m->pool_timer, CALM_MS);
		return;
	}
	loop_timer_stop(m->p.loop, &m->pool_timer);
	pool_refill(m);
}

static void on_pool_timer(void *arg)
{
	pool_refill(arg);
}

/* Members with an overlay are made from the start; others after the first request for one. */
static void pool_resize(struct manager *m)
{
	m->pools[1].wanted = pool_size(m);
	if (m->pools[0].wanted)
		m->pools[0].wanted = pool_size(m);
	pool_refill(m);
}

void pool_start(struct manager *m)
{
	m->pool_timer = (struct loop_timer){.call = on_pool_timer, .arg = m};
	pool_resize(m);
}

static void begin_round(struct manager *m)
{
	m->pool_round++;
	for (size_t i = 0; i < ARRAY_LEN(m->pools); i++)
		while (m->pools[i].count)
			destroy_member(m->pools[i].ready[--m->pools[i].count]);
}

void pool_change(struct manager *m, const struct config *old)
{
	bool was_host = !*old->sandbox.image || str_equal(old->sandbox.image, "host");

	if (!was_host || !str_equal(pool_image(m), "host"))
		begin_round(m);
	pool_resize(m);
}

void pool_images_changed(struct manager *m)
{
	if (!str_equal(pool_image(m), "host")) {
		begin_round(m);
		pool_refill(m);
	}
}

void pool_adopt(struct manager *m, const struct ipc_booted *b, int fd)
{
	struct sandbox *s = new_member(m, b->id, b->root);

	if (!b->of_host || !str_equal(pool_image(m), "host"))
		s->pool_round--;
	s->booted = *b;
	s->o.spec.limits = b->limits;
	snprintf(s->o.image_id, sizeof(s->o.image_id), "%s", b->of_host ? "host" : b->image);
	m->pools[b->root == ROOT_OVERLAY].booting++;
	greet_member(s, fd, b->generation);
}

void pool_stop(struct manager *m)
{
	for (size_t i = 0; i < ARRAY_LEN(m->pools); i++)
		free(take_ptr(m->pools[i].ready));
}

void pool_lost(struct sandbox *s)
{
	struct manager *m = s->m;
	struct pool *p = &m->pools[s->o.spec.root == ROOT_OVERLAY];

	for (uint32_t i = 0; i < p->count; i++)
		if (p->ready[i] == s) {
			p->ready[i] = p->ready[--p->count];
			destroy_member(s);
			break;
		}
	pool_refill(m);
}
