/*
 * Warm sandboxes: a warm host (warm/warm.h) for each token that runs things and the image and limits it runs them
 * with, made when it first does (with other than the usual ones: when it does so again) and ended
 * when it has not for a while, or when the settings change. A warm host is a transient sandbox that nobody can find or list. What cannot
 * run warm runs cold, and the record says why.
 */
#include "manager/manager_internal.h"

#include "kern/seccomp.h"

#define WARM_HOSTS_MAX 32
#define WARM_HOSTS_PER_TOKEN 4
#define UNUSED_NS 30000000000LL /* then one may give way to another */
#define LANES_MAX 8
#define IDLE_MS 600000
#define RETIRED_MS 1000
#define RETRY_FIRST_MS 5000
#define RETRY_MOST_MS 300000

enum warm_host_state {
	WARM_HOST_NAMED, /* an image or limits that were asked for once */
	WARM_HOST_MAKING,
	WARM_HOST_READY,
	WARM_HOST_FAILED,
};

struct warm_host {
	struct manager *m;
	struct caller who;
	struct limits limits; /* of what runs in it; timeout and output are kept by others */
	char image[CONFIG_NAME];
	enum warm_host_state state;
	bool is_retired;   /* takes nothing new, and ends with what runs in it */
	struct sandbox *s; /* held while it is ready */
	int64_t used_ns, retry_ns;
	uint64_t retry_ms;
	char why[160];
	struct loop_timer idle;
	struct warm_host *next;
};

static bool is_of(const struct warm_host *n, const char *token)
{
	return !n->is_retired && str_equal(n->who.token, token);
}

/* What tells warm hosts of one token apart. */
struct warm_host_kind {
	struct limits limits;
	const char *image;
};

static bool is_kind(const struct warm_host *n, const struct warm_host_kind *k)
{
	return memcmp(&n->limits, &k->limits, sizeof(k->limits)) == 0 &&
	       str_equal(n->image, k->image);
}

static struct warm_host *find(struct manager *m, const char *token, const struct warm_host_kind *k)
{
	struct warm_host *n = m->warm_hosts;

	while (n && (!is_of(n, token) || !is_kind(n, k)))
		n = n->next;
	return n;
}

static void warm_host_free(struct warm_host *n)
{
	struct warm_host **p = &n->m->warm_hosts;

	while (*p != n)
		p = &(*p)->next;
	*p = n->next;
	loop_timer_stop(n->m->p.loop, &n->idle);
	free(n);
}

/* What still runs in it goes with it. */
static void end(struct warm_host *n)
{
	struct sandbox *s = take_ptr(n->s);

	if (!s)
		return;
	sandbox_destroy(s, NULL, NULL);
	sandbox_release(s);
}

static void on_idle(void *arg)
{
	struct warm_host *n = arg;
	int64_t left_ms = IDLE_MS - (now_ns() - n->used_ns) / 1000000;
	bool busy = n->state == WARM_HOST_MAKING || (n->s && n->s->active);

	if (n->is_retired)
		left_ms = busy ? RETIRED_MS : 0;
	else if (busy)
		left_ms = IDLE_MS;
	if (left_ms > 0) {
		loop_timer_set(n->m->p.loop, &n->idle, (uint64_t)left_ms);
		return;
	}
	end(n);
	warm_host_free(n);
}

static void fail(struct warm_host *n, const char *why)
{
	n->state = WARM_HOST_FAILED;
	n->retry_ms = n->retry_ms ? n->retry_ms * 2 : RETRY_FIRST_MS;
	if (n->retry_ms > RETRY_MOST_MS)
		n->retry_ms = RETRY_MOST_MS;
	n->retry_ns = now_ns() + (int64_t)n->retry_ms * 1000000;
	snprintf(n->why, sizeof(n->why), "%s", why);
	manager_log(n->m, "no warm sandboxes: %s", why);
}

static void on_made(void *arg, struct sandbox *s, const struct err *e)
{
	struct warm_host *n = arg;

	if (!s) {
		fail(n, e->msg);
		return;
	}
	n->s = sandbox_hold(s);
	n->state = WARM_HOST_READY;
	n->retry_ms = 0;
}

static const char *image_of(const struct sandbox_spec *s)
{
	return s->image ? s->image : "host";
}

/* The options of what a warm host gives: the daemon's defaults for a run, but for image and limits. */
static int plain_options(const struct manager *m, struct create_options *ret, struct err *e)
{
	create_options_init(ret, m);
	ret->spec.root = ROOT_RO;
	ret->spec.empty = true;
	ret->transient = true;
	ret->ttl_ms = ret->idle_ms = 0;
	return spec_finish(&ret->spec, e);
}

/* Without what the warm sandbox does not see to. */
static struct warm_host_kind kind_of(const struct sandbox_spec *s)
{
	struct warm_host_kind k = {s->limits, image_of(s)};

	k.limits.timeout_ms = k.limits.output_bytes = 0;
	return k;
}

static bool is_usual(const struct warm_host *n)
{
	struct create_options plain;
	struct warm_host_kind usual;
	struct err e;
	bool same = plain_options(n->m, &plain, &e) == 0;

	usual = kind_of(&plain.spec);
	same = same && is_kind(n, &usual);
	create_options_done(&plain);
	return same;
}

static void make(struct warm_host *n)
{
	struct create_options o;
	struct err e;

	n->state = WARM_HOST_MAKING;
	if (plain_options(n->m, &o, &e) < 0) {
		create_options_done(&o);
		fail(n, e.msg);
		return;
	}
	o.spec.limits = n->limits;
	free(o.spec.image);
	o.spec.image = str_copy(n->image);
	/* It begins with as many as the operator says, and grows up to this while requests wait. */
	o.warm_host[0] = o.warm_host[1] = LANES_MAX;
	manager_create(n->m, &n->who, &o, on_made, n);
}

static struct warm_host *add(struct manager *m, const struct caller *who,
			     const struct warm_host_kind *k)
{
	struct warm_host *n = must_alloc(calloc(1, sizeof(*n)));

	*n = (struct warm_host){.m = m,
				.who = *who,
				.limits = k->limits,
				.used_ns = now_ns(),
				.next = m->warm_hosts};
	snprintf(n->image, sizeof(n->image), "%s", k->image);
	/* Whoever runs something in it was judged before. */
	n->who.has_ceiling = false;
	n->idle = (struct loop_timer){.call = on_idle, .arg = n};
	loop_timer_set(m->p.loop, &n->idle, IDLE_MS);
	m->warm_hosts = n;
	if (is_usual(n))
		make(n);
	return n;
}

static void retire(struct warm_host *n)
{
	n->is_retired = true;
	loop_timer_set(n->m->p.loop, &n->idle, 0);
}

/* One more of this token, if need be in the place of another; false: there are too many. */
static bool make_room(struct manager *m, const char *token)
{
	struct warm_host *oldest = NULL;
	size_t all = 0, own = 0;

	for (struct warm_host *n = m->warm_hosts; n; n = n->next) {
		all++;
		if (!is_of(n, token))
			continue;
		own++;
		if (n->state != WARM_HOST_MAKING && (!n->s || !n->s->active) &&
		    (!oldest || n->used_ns < oldest->used_ns))
			oldest = n;
	}
	if (all >= WARM_HOSTS_MAX && !own)
		return false;
	if (own < WARM_HOSTS_PER_TOKEN && all < WARM_HOSTS_MAX)
		return true;
	if (!oldest || now_ns() - oldest->used_ns < UNUSED_NS)
		return false;
	retire(oldest);
	return true;
}

/* It is gone, by itself or by somebody's hand: another takes its place. */

static bool is_lost(const struct warm_host *n)
{
	return n->s && (n->s->state != STATE_RUNNING || !n->s->link);
}

/* May this be had? If so, it is being made, if it is not there. */
static struct warm_host *find_or_add(struct manager *m, const struct caller *who,
				     const struct warm_host_kind *k, const char **ret_why)
{
	struct warm_host *n = find(m, who->token, k);
	bool is_new = !n;

	if (is_new && !make_room(m, who->token)) {
		*ret_why = "too many kinds of warm sandboxes are in use";
		return NULL;
	}
	if (is_new)
		n = add(m, who, k);
	else if (n->state == WARM_HOST_NAMED)
		make(n);
	return n;
}

struct sandbox *manager_warm_host(struct manager *m, const struct caller *who,
				  const struct sandbox_spec *spec, const char **ret_why)
{
	static const char *const why[] = {
		[WARM_HOST_NAMED] =
			"warm sandboxes with these limits or of this image are made if they are "
			"asked for again",
		[WARM_HOST_MAKING] = "warm sandboxes are being made",
		[WARM_HOST_READY] = NULL};
	struct warm_host_kind own = kind_of(spec);
	struct warm_host *n;

	*ret_why = NULL;
	if (m->p.config->warm.lanes == 0)
		return NULL;
	n = find_or_add(m, who, &own, ret_why);
	if (!n)
		return NULL;
	if (n->state == WARM_HOST_READY && is_lost(n)) {
		end(n);
		fail(n, "the nest is gone");
	}
	if (n->state == WARM_HOST_FAILED && now_ns() >= n->retry_ns)
		make(n);
	n->used_ns = now_ns();
	*ret_why = n->state == WARM_HOST_FAILED ? n->why : why[n->state];
	return n->state == WARM_HOST_READY ? n->s : NULL;
}

void manager_warm_host_refused(struct manager *m, const struct caller *who,
			       const struct sandbox_spec *spec, const struct err *e)
{
	struct warm_host_kind own = kind_of(spec);
	struct warm_host *n = e->errnum == ESTALE ? find(m, who->token, &own) : NULL;

	/* Its files are not those of its image any more. The next request has another made. */
	if (n && n->state == WARM_HOST_READY)
		retire(n);
}

uint32_t warm_running(struct manager *m, const char *token)
{
	uint32_t count = 0;

	for (const struct warm_host *n = m->warm_hosts; n; n = n->next)
		if (n->s && str_equal(n->who.token, token))
			count += n->s->active;
	return count;
}

bool options_are_plain(const struct create_options *o)
{
	const struct sandbox_spec *s = &o->spec;

	return s->provider == PROVIDER_NS && s->level == LEVEL_CONTAINER && s->net == NET_NONE &&
	       (!s->hostname || str_equal(s->hostname, "cloche")) && o->volume_count == 0 &&
	       !o->snapshot[0];
}

bool manager_warm_host_suits(struct manager *m, const struct caller *who,
			     const struct create_options *o)
{
	const char *image = image_of(&o->spec);
	struct err e;

	/* What this caller may not have is refused by name, as it is if it starts cold. */
	return create_check(m, who, o, &e) == 0 && options_are_plain(o) &&
	       o->spec.root == ROOT_RO && o->spec.guard == GUARD_OFF &&
	       o->spec.require.count == 0 && o->spec.optional.count == 0 && !o->spec.workdir &&
	       (str_equal(image, "host") || config_image_find(m->p.config, image));
}

bool options_are_warm_host(const struct create_options *o)
{
	return o->warm_host[0] + o->warm_host[1] > 0;
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

	/* Of the warm host's own making, before any of them. */
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

void warm_change(struct manager *m)
{
	for (struct warm_host *n = m->warm_hosts; n; n = n->next)
		retire(n);
}

void warm_stop(struct manager *m)
{
	while (m->warm_hosts) {
		if (m->warm_hosts->s)
			sandbox_release(take_ptr(m->warm_hosts->s));
		warm_host_free(m->warm_hosts);
	}
}
