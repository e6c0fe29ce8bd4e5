/*
 * The warm hosts (warm/warm.h) in which /v1/run runs tasks: one for each token, image and set of limits.
 * A host with the default image and limits is made at the first request, any other at the second. A
 * host ends when it was unused for a while or when the settings change. It is a transient sandbox that no
 * client can find or list. A request that cannot run warm runs cold, and its record says why.
 */
#include "manager/manager_internal.h"

#include "kern/seccomp.h"

#define WARM_HOSTS_MAX 32
#define WARM_HOSTS_PER_TOKEN 4
#define UNUSED_NS 30000000000LL /* a host that was unused for so long may be replaced */
#define YIELD_NS 2000000000LL	/* for a token that has no host, so long is enough */
#define LANES_MAX 8
#define IDLE_MS 600000
#define RETIRED_MS 1000
#define RETRY_FIRST_MS 5000
#define RETRY_MOST_MS 300000

enum warm_host_state {
	WARM_HOST_NAMED, /* its image or limits were requested once */
	WARM_HOST_MAKING,
	WARM_HOST_READY,
	WARM_HOST_FAILED,
};

struct host_entry {
	struct manager *m;
	struct caller who;
	struct limits limits; /* of each task; without timeout and output, which others enforce */
	char image[IPC_IMAGE_ID];
	enum warm_host_state state;
	bool is_retired;   /* takes no new tasks and ends with the last one */
	struct sandbox *s; /* held while the host is ready */
	int64_t used_ns, retry_ns;
	uint64_t retry_ms;
	char why[160];
	struct loop_timer idle;
	struct host_entry *next;
};

static bool takes_runs_of(const struct host_entry *h, const char *token)
{
	return !h->is_retired && str_equal(h->who.token, token);
}

/* The key of a warm host among those of one token. */
struct warm_host_kind {
	struct limits limits;
	const char *image;
};

static bool host_is_kind(const struct host_entry *h, const struct warm_host_kind *k)
{
	return memcmp(&h->limits, &k->limits, sizeof(k->limits)) == 0 &&
	       str_equal(h->image, k->image);
}

static struct host_entry *find_host(struct manager *m, const char *token,
				    const struct warm_host_kind *k)
{
	struct host_entry *h = m->warm_hosts;

	while (h && (!takes_runs_of(h, token) || !host_is_kind(h, k)))
		h = h->next;
	return h;
}

static void host_free(struct host_entry *h)
{
	struct host_entry **p = &h->m->warm_hosts;

	while (*p != h)
		p = &(*p)->next;
	*p = h->next;
	loop_timer_stop(h->m->p.loop, &h->idle);
	free(h);
}

/* Destroys the sandbox of the host, and with it all tasks that still run there. */
static void end_host(struct host_entry *h)
{
	struct sandbox *s = take_ptr(h->s);

	if (!s)
		return;
	sandbox_destroy(s, NULL, NULL, NULL);
	sandbox_release(s);
}

static void on_host_idle(void *arg)
{
	struct host_entry *h = arg;
	int64_t left_ms = IDLE_MS - (now_ns() - h->used_ns) / 1000000;
	bool busy = h->state == WARM_HOST_MAKING || (h->s && h->s->active);

	if (h->is_retired)
		left_ms = busy ? RETIRED_MS : 0;
	else if (busy)
		left_ms = IDLE_MS;
	if (left_ms > 0) {
		loop_timer_set(h->m->p.loop, &h->idle, (uint64_t)left_ms);
		return;
	}
	end_host(h);
	host_free(h);
}

static void host_failed(struct host_entry *h, const char *why)
{
	h->state = WARM_HOST_FAILED;
	h->retry_ms = h->retry_ms ? h->retry_ms * 2 : RETRY_FIRST_MS;
	if (h->retry_ms > RETRY_MOST_MS)
		h->retry_ms = RETRY_MOST_MS;
	h->retry_ns = now_ns() + (int64_t)h->retry_ms * 1000000;
	snprintf(h->why, sizeof(h->why), "%s", why);
	manager_log(h->m, "no warm sandboxes: %s", why);
}

static void on_host_made(void *arg, struct sandbox *s, const struct err *e)
{
	struct host_entry *h = arg;

	if (!s) {
		host_failed(h, e->msg);
		return;
	}
	h->s = sandbox_hold(s);
	h->state = WARM_HOST_READY;
	h->retry_ms = 0;
}

/* The options of a warm host: the daemon's defaults for a run; image and limits are set by the caller. */
static int host_options(const struct manager *m, struct create_options *ret, struct err *e)
{
	create_options_init(ret, m);
	ret->spec.root = ROOT_RO;
	ret->spec.empty = true;
	ret->transient = true;
	ret->ttl_ms = ret->idle_ms = 0;
	return spec_finish(&ret->spec, e);
}

/* Without the limits that a warm sandbox does not enforce itself. */
static struct warm_host_kind kind_of(const struct create_options *o)
{
	struct warm_host_kind k = {o->spec.limits, o->image_id};

	k.limits.timeout_ms = k.limits.output_bytes = 0;
	return k;
}

static bool is_usual(const struct host_entry *h)
{
	struct create_options plain;
	struct warm_host_kind usual;
	struct err e;
	bool same = host_options(h->m, &plain, &e) == 0 &&
		    manager_choose_image(h->m, &h->who, &plain, &e) == 0;

	usual = kind_of(&plain);
	same = same && host_is_kind(h, &usual);
	create_options_done(&plain);
	return same;
}

static void make_host(struct host_entry *h)
{
	struct create_options o;
	struct err e;

	h->state = WARM_HOST_MAKING;
	if (host_options(h->m, &o, &e) < 0) {
		create_options_done(&o);
		host_failed(h, e.msg);
		return;
	}
	o.spec.limits = h->limits;
	free(o.spec.image);
	o.spec.image = str_copy(h->image);
	memcpy(o.image_id, h->image, sizeof(o.image_id));
	/* The host begins with as many lanes as configured and grows up to this while requests wait. */
	o.warm_host[0] = o.warm_host[1] = LANES_MAX;
	o.warm_host[2] = (uint8_t)h->m->p.config->warm.node;
	manager_create(h->m, &h->who, &o, on_host_made, h);
}

static struct host_entry *add_host(struct manager *m, const struct caller *who,
				   const struct warm_host_kind *k)
{
	struct host_entry *h = must_alloc(calloc(1, sizeof(*h)));

	*h = (struct host_entry){.m = m,
				 .who = *who,
				 .limits = k->limits,
				 .used_ns = now_ns(),
				 .next = m->warm_hosts};
	snprintf(h->image, sizeof(h->image), "%s", k->image);
	/* The ceilings were applied to each run before it gets here. */
	h->who.has_ceiling = false;
	h->idle = (struct loop_timer){.call = on_host_idle, .arg = h};
	loop_timer_set(m->p.loop, &h->idle, IDLE_MS);
	m->warm_hosts = h;
	if (is_usual(h))
		make_host(h);
	return h;
}

static void retire_host(struct host_entry *h)
{
	h->is_retired = true;
	loop_timer_set(h->m->p.loop, &h->idle, 0);
}

/* The host that was unused longest, among those of one token or (NULL) of all; NULL: none is idle. */
static struct host_entry *find_oldest(struct manager *m, const char *token, int64_t unused_ns)
{
	struct host_entry *oldest = NULL;

	for (struct host_entry *h = m->warm_hosts; h; h = h->next)
		if (!h->is_retired && (!token || takes_runs_of(h, token)) &&
		    h->state != WARM_HOST_MAKING && (!h->s || !h->s->active) &&
		    now_ns() - h->used_ns >= unused_ns && (!oldest || h->used_ns < oldest->used_ns))
			oldest = h;
	return oldest;
}

/*
 * Makes room for one more host of this token, if need be by retiring another; false: too many. A token
 * that has none takes the place of any host that is idle.
 */
static bool make_room(struct manager *m, const char *token)
{
	struct host_entry *oldest;
	size_t all = 0, own = 0;

	for (struct host_entry *h = m->warm_hosts; h; h = h->next) {
		all += !h->is_retired;
		own += takes_runs_of(h, token);
	}
	if (own < WARM_HOSTS_PER_TOKEN && all < WARM_HOSTS_MAX)
		return true;
	oldest = own ? find_oldest(m, token, UNUSED_NS) : find_oldest(m, NULL, YIELD_NS);
	if (!oldest)
		return false;
	retire_host(oldest);
	return true;
}

/* The sandbox of the host has ended, or its link is lost. */
static bool host_is_lost(const struct host_entry *h)
{
	return h->s && (h->s->state != STATE_RUNNING || !h->s->link);
}

/* Finds the host, or begins to make it; NULL: *ret_why says why there can be none. */
static struct host_entry *find_or_add(struct manager *m, const struct caller *who,
				      const struct warm_host_kind *k, const char **ret_why)
{
	struct host_entry *h = find_host(m, who->token, k);
	bool is_new = !h;

	if (is_new && !make_room(m, who->token)) {
		*ret_why = "too many kinds of warm sandboxes are in use";
		return NULL;
	}
	if (is_new)
		h = add_host(m, who, k);
	else if (h->state == WARM_HOST_NAMED)
		make_host(h);
	return h;
}

struct sandbox *manager_warm_host(struct manager *m, const struct caller *who,
				  const struct create_options *o, const char **ret_why)
{
	static const char *const why[] = {
		[WARM_HOST_NAMED] =
			"warm sandboxes with these limits or of this image are made if they are "
			"asked for again",
		[WARM_HOST_MAKING] = "warm sandboxes are being made",
		[WARM_HOST_READY] = NULL};
	struct warm_host_kind own = kind_of(o);
	struct host_entry *h;

	*ret_why = NULL;
	if (m->p.config->warm.lanes == 0)
		return NULL;
	h = find_or_add(m, who, &own, ret_why);
	if (!h)
		return NULL;
	if (h->state == WARM_HOST_READY && host_is_lost(h)) {
		end_host(h);
		host_failed(h, "the warm host is gone");
	}
	if (h->state == WARM_HOST_FAILED && now_ns() >= h->retry_ns)
		make_host(h);
	h->used_ns = now_ns();
	*ret_why = h->state == WARM_HOST_FAILED ? h->why : why[h->state];
	return h->state == WARM_HOST_READY ? h->s : NULL;
}

void manager_warm_host_refused(struct manager *m, const struct caller *who,
			       const struct create_options *o, const struct err *e)
{
	struct warm_host_kind own = kind_of(o);
	struct host_entry *h = e->errnum == ESTALE ? find_host(m, who->token, &own) : NULL;

	/* The files of the image have changed. The next request makes another host. */
	if (h && h->state == WARM_HOST_READY)
		retire_host(h);
}

uint32_t warm_running(struct manager *m, const char *token)
{
	uint32_t count = 0;

	for (const struct host_entry *h = m->warm_hosts; h; h = h->next)
		if (h->s && str_equal(h->who.token, token))
			count += h->s->active;
	return count;
}

bool options_are_plain(const struct create_options *o)
{
	const struct sandbox_spec *s = &o->spec;

	return s->provider == PROVIDER_NS && s->level == LEVEL_CONTAINER &&
	       (!s->hostname || str_equal(s->hostname, "cloche")) && o->volume_count == 0 &&
	       s->tmpfs.count == 0 && !o->snapshot[0] && !spec_wants_root(s) &&
	       s->disk_type == DISK_MEMORY;
}

bool manager_warm_host_suits(struct manager *m, const struct caller *who,
			     const struct create_options *o)
{
	struct err e;

	/* A request beyond the caller's limits runs cold, where it is refused by name. */
	return create_check(m, who, o, &e) == 0 && options_are_plain(o) &&
	       o->spec.net == NET_NONE && o->spec.root == ROOT_RO && o->spec.require.count == 0 &&
	       o->spec.optional.count == 0 && !o->spec.workdir;
}

bool options_are_warm_host(const struct create_options *o)
{
	return o->warm_host[0] > 0;
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

	/* The warm host itself has proven this layer before its first task. */
	proven |= b->proven & LAYER_BIT(LAYER_TIME_NS);
	r->proven = proven;
	r->missing = ~proven & (LAYER_BIT(LAYER_COUNT) - 1);
	r->landlock_abi = landlock_abi;
	snprintf(r->seccomp, sizeof(r->seccomp), "%s@%s", seccomp_profile_default.name,
		 seccomp_profile_default.digest);
	/* The operator's own, of which the warm host was told. */
	if (strchr(b->seccomp, ' '))
		str_append(r->seccomp, sizeof(r->seccomp), "", "%s", strchr(b->seccomp, ' '));
	r->cgroup = !has_cgroup ? "none" : b->cgroup_version == 2 ? "v2" : "v1";
	r->memory = proven & LAYER_BIT(LAYER_MEMORY) ? "cgroup" : "watch";
	r->disk = proven & LAYER_BIT(LAYER_DISK) ? "tmpfs" : "none";
	memcpy(r->denial_kinds, kinds, sizeof(kinds));
	memcpy(r->recycled, recycled, sizeof(recycled) - (has_cgroup ? 0 : sizeof(*recycled)));
}

void warm_change(struct manager *m)
{
	for (struct host_entry *h = m->warm_hosts; h; h = h->next)
		retire_host(h);
}

void warm_stop(struct manager *m)
{
	while (m->warm_hosts) {
		if (m->warm_hosts->s)
			sandbox_release(take_ptr(m->warm_hosts->s));
		host_free(m->warm_hosts);
	}
}
