/*
 * Resolves names outside, by c-ares: the DNS servers of the settings or of resolv.conf, and the hosts file. A sandbox's
 * queries for one name are made once; answers are kept for their time to live, within bounds.
 *
 * Of each sandbox a few look-ups are under way at one time, and the others wait in its own row. So one whose names
 * nobody answers fills neither the socket of the name server, which would lose the queries of others, nor their row.
 */
#include "egress/egress_internal.h"

#include "wire/dns.h"

#include <ares.h>
#include <netdb.h>
#include <netinet/in.h>

#define CACHE_SIZE 1024 /* a power of two */
#define TTL_MAX_S 60
#define FAILED_TTL_S 1
#define TRY_MS 2000
#define TRIES 2
#define SOCKETS 64
#define AT_ONCE 64 /* look-ups of one sandbox */

struct resolver_job {
	struct resolver *resolver;
	struct asker *asker;
	struct resolver_job *next, **back;
	struct resolver_query *queries;
	bool is_begun;
	char name[NET_NAME];
};

/* The look-ups of one sandbox, also those that it waits for no more. */
struct asker {
	struct budget budget;
	size_t refs;			  /* one of the sandbox, one of each look-up */
	struct resolver_job *jobs, **end; /* in the order in which they were asked for */
	struct resolver_job *waiting;	  /* the first that is not begun; none behind it is */
	size_t under_way;		  /* texts, too */
	bool is_beginning;
};

struct cached {
	char *name;
	int64_t until_ns;
	struct resolved found; /* none: it failed */
	char why[64];
};

struct resolver_socket {
	struct loop_watch watch;
	struct resolver *resolver;
};

struct resolver {
	struct role *role;
	ares_channel channel;
	struct resolver_socket *sockets[SOCKETS];
	struct loop_timer timer;
	size_t under_way;
	bool is_ending;
	struct cached cache[CACHE_SIZE];
};

/* ---- who asks ---- */

struct asker *asker_new(struct role *r, bool is_operator)
{
	struct asker *a = must_alloc(calloc(1, sizeof(*a)));

	a->budget = (struct budget){
		.max = UINT64_MAX, .pool = &r->lookup_pool, .is_operator = is_operator};
	a->refs = 1;
	a->end = &a->jobs;
	return a;
}

void asker_unref(struct asker *a)
{
	if (a && !--a->refs)
		free(a);
}

static bool asker_begins(struct asker *a)
{
	if (!budget_take(&a->budget, 1))
		return false;
	a->refs++;
	return true;
}

static void asker_ends(struct asker *a)
{
	budget_give(&a->budget, 1);
	asker_unref(a);
}

/* ---- sockets and time ---- */

static void set_timer(struct resolver *x)
{
	struct timeval most = {5, 0}, left, *t = ares_timeout(x->channel, &most, &left);

	if (x->under_way || t != &most)
		loop_timer_set(x->role->loop, &x->timer,
			       (uint64_t)t->tv_sec * 1000 + (uint64_t)t->tv_usec / 1000 + 1);
	else
		loop_timer_stop(x->role->loop, &x->timer);
}

static void on_timer(void *arg)
{
	struct resolver *x = arg;

	ares_process_fd(x->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
	set_timer(x);
}

static void on_socket(void *arg, uint32_t events)
{
	struct resolver_socket *s = arg;
	struct resolver *x = s->resolver;
	int fd = s->watch.fd;

	ares_process_fd(x->channel, events & ~(uint32_t)EPOLLOUT ? fd : ARES_SOCKET_BAD,
			events & EPOLLOUT ? fd : ARES_SOCKET_BAD);
	set_timer(x);
}

/* c-ares says what it waits for; neither: the socket is about to be closed. */
static void on_state(void *arg, int fd, int readable, int writable)
{
	struct resolver *x = arg;
	struct resolver_socket **free_place = NULL, *s = NULL;
	uint32_t events = (readable ? EPOLLIN : 0u) | (writable ? EPOLLOUT : 0u);

	for (size_t i = 0; i < SOCKETS; i++) {
		if (x->sockets[i] && x->sockets[i]->watch.fd == fd)
			free_place = &x->sockets[i], s = x->sockets[i];
		else if (!x->sockets[i] && !s)
			free_place = &x->sockets[i];
	}
	if (!events) {
		if (!s)
			return;
		loop_unwatch(x->role->loop, &s->watch);
		free(s);
		*free_place = NULL;
		return;
	}
	if (!s && !free_place)
		return;
	if (!s) {
		s = *free_place = must_alloc(calloc(1, sizeof(*s)));
		s->resolver = x;
		s->watch = (struct loop_watch){.fd = fd, .call = on_socket, .arg = s};
	}
	loop_change(x->role->loop, &s->watch, events);
}

/* ---- cache ---- */

static struct cached *place_in_cache(struct resolver *x, const char *name)
{
	uint64_t h = 14695981039346656037ull;

	for (const char *c = name; *c; c++)
		h = (h ^ (unsigned char)*c) * 1099511628211ull;
	return &x->cache[(h >> 20) & (CACHE_SIZE - 1)];
}

static void keep(struct resolver *x, const char *name, const struct resolved *r, const char *why,
		 int ttl_s)
{
	struct cached *c = place_in_cache(x, name);

	free(c->name);
	*c = (struct cached){.name = str_copy(name), .found = *r};
	c->until_ns = now_ns() + (int64_t)(ttl_s < TTL_MAX_S ? ttl_s : TTL_MAX_S) * 1000000000;
	snprintf(c->why, sizeof(c->why), "%s", why);
}

/* ---- queries ---- */

static void begin_waiting(struct asker *a);

static void job_unlink(struct resolver_job *job)
{
	struct asker *a = job->asker;

	if (a->waiting == job)
		a->waiting = job->next;
	*job->back = job->next;
	if (job->next)
		job->next->back = job->back;
	else
		a->end = job->back;
}

static void finish_job(struct resolver_job *job, const struct resolved *r, const char *why)
{
	struct asker *a = job->asker;
	struct resolver_query *q;

	job_unlink(job);
	if (job->is_begun) {
		a->under_way--;
		job->resolver->under_way--;
	}
	job->is_begun = true; /* whoever cancels the last query does not free it */
	while ((q = job->queries)) {
		resolver_cancel(q);
		q->call(q->arg, r->count ? r : NULL, why);
	}
	free(job);
	begin_waiting(a);
	asker_ends(a);
}

static void on_answer(void *arg, int status, int timeouts, struct ares_addrinfo *info)
{
	struct resolver_job *job = arg;
	struct resolved found = {0};
	char why[64] = "";
	uint16_t port;
	int ttl = TTL_MAX_S;

	for (struct ares_addrinfo_node *n = info ? info->nodes : NULL; n; n = n->ai_next) {
		struct sockaddr_storage a = {0};

		if (found.count == RESOLVED_MAX || n->ai_addrlen > sizeof(a) ||
		    (n->ai_family != AF_INET && n->ai_family != AF_INET6))
			continue;
		memcpy(&a, n->ai_addr, n->ai_addrlen);
		address_of(&a, found.addresses[found.count++], &port);
		if (n->ai_ttl < ttl)
			ttl = n->ai_ttl;
	}
	ares_freeaddrinfo(info);
	/* Its channel goes away: the queries were told, or their owners are gone as well. */
	if (status == ARES_EDESTRUCTION)
		ttl = 0;
	if (!found.count)
		snprintf(why, sizeof(why), "cannot resolve: %s",
			 status == ARES_SUCCESS ? "no address" : ares_strerror(status));
	keep(job->resolver, job->name, &found, why,
	     found.count ? (ttl > 0 ? ttl : 0) : FAILED_TTL_S);
	finish_job(job, &found, why);
}

static void add_query(struct resolver_job *job, struct resolver_query *q)
{
	q->job = job;
	q->next = job->queries;
	q->back = &job->queries;
	if (q->next)
		q->next->back = &q->next;
	job->queries = q;
}

void resolver_cancel(struct resolver_query *q)
{
	struct resolver_job *job = q->job;

	if (!job)
		return;
	*q->back = q->next;
	if (q->next)
		q->next->back = q->back;
	q->job = NULL;
	if (job->queries || job->is_begun)
		return;
	job_unlink(job);
	asker_ends(job->asker);
	free(job);
}

/* c-ares may answer at once, and the end of a look-up begins the next one: by this loop, not from within. */
static void begin_waiting(struct asker *a)
{
	struct ares_addrinfo_hints hints = {.ai_family = AF_UNSPEC, .ai_flags = ARES_AI_NOSORT};
	struct resolver_job *job;

	if (a->is_beginning)
		return;
	a->is_beginning = true;
	while ((job = a->waiting) && a->under_way < AT_ONCE && !job->resolver->is_ending) {
		struct resolver *x = job->resolver;

		a->waiting = job->next;
		job->is_begun = true;
		a->under_way++;
		x->under_way++;
		ares_getaddrinfo(x->channel, job->name, NULL, &hints, on_answer, job);
		set_timer(x);
	}
	a->is_beginning = false;
}

static struct resolver_job *job_find(struct asker *a, const char *name)
{
	struct resolver_job *job = a->jobs;

	while (job && !str_equal(job->name, name))
		job = job->next;
	return job;
}

static struct resolver_job *job_new(struct resolver *x, struct asker *a, const char *name)
{
	struct resolver_job *job = must_alloc(calloc(1, sizeof(*job)));

	job->resolver = x;
	job->asker = a;
	snprintf(job->name, sizeof(job->name), "%s", name);
	job->back = a->end;
	*a->end = job;
	a->end = &job->next;
	if (!a->waiting)
		a->waiting = job;
	return job;
}

void resolver_ask(struct resolver *x, struct asker *a, const char *name, struct resolver_query *q)
{
	struct cached *c = place_in_cache(x, name);
	struct resolver_job *job;

	if (c->name && str_equal(c->name, name) && now_ns() < c->until_ns) {
		struct cached copy = *c;

		q->call(q->arg, copy.found.count ? &copy.found : NULL, copy.why);
		return;
	}
	job = job_find(a, name);
	if (!job && !asker_begins(a)) {
		q->call(q->arg, NULL, "cannot resolve: too many names at one time");
		return;
	}
	if (!job)
		job = job_new(x, a, name);
	add_query(job, q);
	begin_waiting(a);
}

/* ---- TXT ---- */

struct text_job {
	struct resolver *resolver;
	struct resolver_text *text; /* NULL: nobody waits any more */
	struct asker *asker;
};

#define TEXTS_MAX 16384

/* Records of several strings come as several replies; record_start says where one begins. */
static size_t join_texts(struct ares_txt_ext *reply, struct buf *ret)
{
	size_t count = 0, head = 0;
	uint16_t len = 0;

	for (; reply; reply = reply->next) {
		if (reply->record_start || !count) {
			head = ret->len;
			len = 0;
			count++;
			buf_add(ret, &len, sizeof(len));
		}
		if (ret->len + reply->length > TEXTS_MAX)
			break;
		buf_add(ret, reply->txt, reply->length);
		len = (uint16_t)(len + reply->length);
		memcpy(buf_head(ret) + head, &len, sizeof(len));
	}
	return count;
}

static void on_text(void *arg, int status, int timeouts, unsigned char *bytes, int len)
{
	auto_free struct text_job *job = arg;
	struct resolver_text *t = job->text;
	struct ares_txt_ext *reply = NULL;
	auto_buf struct buf texts = {0};
	size_t count = 0;

	job->asker->under_way--;
	job->resolver->under_way--;
	begin_waiting(job->asker);
	asker_ends(job->asker);
	if (!t)
		return;
	t->job = NULL;
	if (status == ARES_SUCCESS)
		status = ares_parse_txt_reply_ext(bytes, len, &reply);
	if (status == ARES_SUCCESS)
		count = join_texts(reply, &texts);
	if (reply)
		ares_free_data(reply);
	t->call(t->arg, &texts, count,
		status == ARES_SUCCESS || status == ARES_ENODATA ? DNS_OK
		: status == ARES_ENOTFOUND			 ? DNS_NXDOMAIN
								 : DNS_SERVFAIL);
}

bool resolver_ask_text(struct resolver *x, struct asker *a, const char *name,
		       struct resolver_text *t)
{
	if (a->under_way >= AT_ONCE || !asker_begins(a))
		return false;
	t->job = must_alloc(calloc(1, sizeof(*t->job)));
	*t->job = (struct text_job){.resolver = x, .text = t, .asker = a};
	a->under_way++;
	x->under_way++;
	ares_query(x->channel, name, 1, DNS_TXT, on_text, t->job);
	set_timer(x);
	return true;
}

void resolver_text_cancel(struct resolver_text *t)
{
	if (t->job)
		t->job->text = NULL;
	t->job = NULL;
}

/* ---- life ---- */

/* "1.1.1.1" and "[::1]:5353" as c-ares wants them: "1.1.1.1,[::1]:5353". */
static int set_servers(struct resolver *x, const struct egress_settings *s, struct err *e)
{
	char all[sizeof(s->dns) + sizeof(s->dns) / sizeof(s->dns[0])] = "";

	for (uint32_t i = 0; i < s->dns_count; i++)
		str_append(all, sizeof(all), ",", "%s", s->dns[i]);
	if (s->dns_count && ares_set_servers_ports_csv(x->channel, all) != ARES_SUCCESS)
		return err_set(e, ERR_INVALID, "dns: '%s' are not addresses of servers", all);
	return 0;
}

struct resolver *resolver_new(struct role *r, const struct egress_settings *s, struct err *e)
{
	struct resolver *x = must_alloc(calloc(1, sizeof(*x)));
	struct ares_options o = {.flags = ARES_FLAG_NOSEARCH,
				 .timeout = TRY_MS,
				 .tries = TRIES,
				 .sock_state_cb = on_state,
				 .sock_state_cb_data = x,
				 .lookups = (char[]){"fb"}};
	int rc;

	x->role = r;
	x->timer = (struct loop_timer){.call = on_timer, .arg = x};
	rc = ares_init_options(&x->channel, &o,
			       ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES |
				       ARES_OPT_SOCK_STATE_CB | ARES_OPT_LOOKUPS);
	if (rc != ARES_SUCCESS) {
		err_set(e, ERR_SYSTEM, "cannot start the resolver: %s", ares_strerror(rc));
		free(x);
		return NULL;
	}
	if (set_servers(x, s, e) < 0) {
		resolver_free(x);
		return NULL;
	}
	return x;
}

void resolver_free(struct resolver *x)
{
	static const struct resolved none;

	if (!x)
		return;
	x->is_ending = true;
	ares_destroy(x->channel);
	for (struct uplink *s = x->role->uplinks; s; s = s->next)
		while (s->asker->waiting)
			finish_job(s->asker->waiting, &none,
				   "cannot resolve: the settings have changed");
	loop_timer_stop(x->role->loop, &x->timer);
	for (size_t i = 0; i < CACHE_SIZE; i++)
		free(x->cache[i].name);
	free(x);
}
