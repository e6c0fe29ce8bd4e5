/*
 * Warm sandboxes: a nest (sandbox/cell.h) for each token that runs things, made when it first does and
 * ended when it has not for a while. A nest is a transient sandbox that nobody can find or list. What
 * cannot run warm runs cold, and the record says why.
 */
#include "manager/inner.h"

#include "base/auto.h"
#include "base/clock.h"
#include "base/str.h"
#include "kern/seccomp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NESTS_MAX 32
#define SLOTS_MAX 8
#define IDLE_MS 600000
#define RETIRED_MS 1000
#define RETRY_FIRST_MS 5000
#define RETRY_MOST_MS 300000

enum nest_state { NEST_MAKING, NEST_READY, NEST_FAILED };

struct nest {
	struct manager *m;
	struct caller who;
	enum nest_state state;
	bool is_retired;   /* takes nothing new, and ends with what runs in it */
	struct sandbox *s; /* held while it is ready */
	int64_t used_ns, retry_ns;
	uint64_t retry_ms;
	char why[160];
	struct loop_timer idle;
	struct nest *next;
};

static struct nest *find(struct manager *m, const char *token)
{
	struct nest *n = m->nests;

	while (n && (n->is_retired || !str_equal(n->who.token, token)))
		n = n->next;
	return n;
}

static void nest_free(struct nest *n)
{
	struct nest **p = &n->m->nests;

	while (*p != n)
		p = &(*p)->next;
	*p = n->next;
	loop_timer_stop(n->m->p.loop, &n->idle);
	free(n);
}

static void on_destroyed(void *arg, struct sandbox *s, const struct err *e)
{
	(void)arg;
	(void)s;
	(void)e;
}

/* What still runs in it goes with it. */
static void end(struct nest *n)
{
	struct sandbox *s = take_ptr(n->s);

	if (!s)
		return;
	sandbox_destroy(s, on_destroyed, NULL);
	sandbox_release(s);
}

static void on_idle(void *arg)
{
	struct nest *n = arg;
	int64_t left_ms = IDLE_MS - (now_ns() - n->used_ns) / 1000000;

	if (n->is_retired)
		left_ms = n->s && n->s->active ? RETIRED_MS : 0;
	else if (n->state == NEST_MAKING || (n->s && n->s->active))
		left_ms = IDLE_MS;
	if (left_ms > 0) {
		loop_timer_set(n->m->p.loop, &n->idle, (uint64_t)left_ms);
		return;
	}
	end(n);
	nest_free(n);
}

static void fail(struct nest *n, const char *why)
{
	n->state = NEST_FAILED;
	n->retry_ms = n->retry_ms ? n->retry_ms * 2 : RETRY_FIRST_MS;
	if (n->retry_ms > RETRY_MOST_MS)
		n->retry_ms = RETRY_MOST_MS;
	n->retry_ns = now_ns() + (int64_t)n->retry_ms * 1000000;
	snprintf(n->why, sizeof(n->why), "%s", why);
	manager_log(n->m, "no warm sandboxes: %s", why);
}

static void on_made(void *arg, struct sandbox *s, const struct err *e)
{
	struct nest *n = arg;

	if (!s) {
		fail(n, e->msg);
		return;
	}
	n->s = sandbox_hold(s);
	n->state = NEST_READY;
	n->retry_ms = 0;
}

/* The options of what a nest gives: the daemon's defaults for a run. */
static int plain_options(const struct manager *m, struct create_options *ret, struct err *e)
{
	create_options_init(ret, m);
	ret->spec.root = ROOT_RO;
	ret->spec.empty = true;
	ret->transient = true;
	ret->ttl_ms = ret->idle_ms = 0;
	return spec_finish(&ret->spec, e);
}

static void make(struct nest *n)
{
	struct create_options o;
	struct err e;

	n->state = NEST_MAKING;
	if (plain_options(n->m, &o, &e) < 0) {
		create_options_done(&o);
		fail(n, e.msg);
		return;
	}
	/* It begins with as many as the operator says, and grows up to this while requests wait. */
	o.nest[0] = o.nest[1] = SLOTS_MAX;
	manager_create(n->m, &n->who, &o, on_made, n);
}

static struct nest *add(struct manager *m, const struct caller *who)
{
	struct nest *n = must_alloc(calloc(1, sizeof(*n)));

	*n = (struct nest){.m = m, .who = *who, .used_ns = now_ns(), .next = m->nests};
	/* It has the daemon's defaults, whatever else this token may have. */
	n->who.has_ceiling = false;
	n->idle = (struct loop_timer){.call = on_idle, .arg = n};
	loop_timer_set(m->p.loop, &n->idle, IDLE_MS);
	m->nests = n;
	make(n);
	return n;
}

static size_t count(const struct manager *m)
{
	size_t all = 0;

	for (const struct nest *n = m->nests; n; n = n->next)
		all++;
	return all;
}

/* It is gone, by itself or by somebody's hand: another takes its place. */
static bool is_lost(const struct nest *n)
{
	return n->s && (n->s->state != STATE_RUNNING || !n->s->link);
}

struct sandbox *manager_nest(struct manager *m, const struct caller *who, const char **ret_why)
{
	struct nest *n = find(m, who->token);

	*ret_why = NULL;
	if (m->p.config->warm.slots == 0)
		return NULL;
	if (!n && count(m) >= NESTS_MAX) {
		*ret_why = "too many tokens have warm sandboxes";
		return NULL;
	}
	if (!n)
		n = add(m, who);
	if (n->state == NEST_READY && is_lost(n)) {
		end(n);
		fail(n, "the nest is gone");
	}
	if (n->state == NEST_FAILED && now_ns() >= n->retry_ns)
		make(n);
	n->used_ns = now_ns();
	*ret_why = n->state == NEST_FAILED ? n->why : "warm sandboxes are being made";
	return n->state == NEST_READY ? n->s : NULL;
}

void manager_nest_refused(struct manager *m, const struct caller *who, const struct err *e)
{
	struct nest *n = e->errnum == ESTALE ? find(m, who->token) : NULL;

	if (!n || n->state != NEST_READY)
		return;
	/* Its files are not those of its image any more. The next request has another made. */
	n->is_retired = true;
	loop_timer_set(m->p.loop, &n->idle, 0);
}

uint32_t warm_running(struct manager *m, const char *token)
{
	const struct nest *n = find(m, token);

	return n && n->s ? n->s->active : 0;
}

bool manager_nest_suits(struct manager *m, const struct caller *who, const struct create_options *o)
{
	struct create_options plain;
	struct limits want = o->spec.limits;
	struct err e;
	bool same = plain_options(m, &plain, &e) == 0;

	/* What this caller may not have is refused by name, as it is if it starts cold. */
	same = same && create_check(m, who, o, &e) == 0;

	/* These are kept by others than the cell. */
	want.timeout_ms = plain.spec.limits.timeout_ms;
	want.output_bytes = plain.spec.limits.output_bytes;
	same = same && memcmp(&want, &plain.spec.limits, sizeof(want)) == 0 &&
	       o->spec.root == ROOT_RO && o->spec.level == LEVEL_CONTAINER &&
	       o->spec.net == NET_NONE && o->spec.guard == GUARD_OFF &&
	       o->spec.require.count == 0 && o->spec.optional.count == 0 && o->volume_count == 0 &&
	       !o->snapshot[0] && !o->spec.workdir &&
	       (!o->spec.image || str_equal(o->spec.image, plain.spec.image));
	create_options_done(&plain);
	return same;
}

bool warm_is_refusal(const struct err *e)
{
	return e->errnum == EAGAIN || e->errnum == EBUSY || e->errnum == EOPNOTSUPP ||
	       e->errnum == ESTALE;
}

void warm_layers(const struct sandbox *s, layer_set proven, int landlock_abi, struct result *r)
{
	static const char *const recycled[] = {"user_ns", "net_ns", "uts_ns", "time_ns", "cgroup"};
	bool has_cgroup = proven & LAYER_BIT(LAYER_CGROUP);
	static const char *const kinds[] = {"syscall", "connect", "resolve", "limit"};
	const struct ipc_booted *b = &s->booted;

	/* Of the nest's own making, before any of them. */
	proven |= b->proven & LAYER_BIT(LAYER_TIME_NS);
	r->proven = proven;
	r->missing = ~proven & (LAYER_BIT(LAYER_COUNT) - 1);
	r->landlock_abi = landlock_abi;
	snprintf(r->seccomp, sizeof(r->seccomp), "%s@%s", seccomp_profile_default.name,
		 seccomp_profile_default.digest);
	r->cgroup = !has_cgroup ? "none" : b->cgroup_version == 2 ? "v2" : "v1";
	r->memory = proven & LAYER_BIT(LAYER_MEMORY) ? "cgroup" : "watch";
	r->disk = proven & LAYER_BIT(LAYER_DISK) ? "tmpfs" : "none";
	memcpy(r->denial_kinds, kinds, sizeof(kinds));
	memcpy(r->recycled, recycled, sizeof(recycled) - (has_cgroup ? 0 : sizeof(*recycled)));
}

void warm_stop(struct manager *m)
{
	while (m->nests) {
		if (m->nests->s)
			sandbox_release(take_ptr(m->nests->s));
		nest_free(m->nests);
	}
}
