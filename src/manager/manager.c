/* The tables of the manager: adding, finding, listing and counting sandboxes, and their life cycle. */
#include "manager/manager_internal.h"

#include "base/id.h"
#include "manager/warm/snippets.h"

#include <stdarg.h>

const double manager_bucket_ms[MANAGER_BUCKETS] = {1,	2,   5,	   10,	 20,	50,
						   100, 250, 1000, 5000, 30000, 0};

/* ---- small things ---- */

/* 20 letters of 5 random bits each: cannot be guessed. */
void id_make(char ret[IPC_ID])
{
	while (id_letters(ret, ID_LETTERS) < 0)
		continue;
}

void manager_log(struct manager *m, const char *fmt, ...)
{
	char text[1024];
	va_list args;

	if (!m->p.log)
		return;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	m->p.log(text);
}

void histogram_add(struct manager_histogram *h, double ms)
{
	size_t i = 0;

	while (i < MANAGER_BUCKETS - 1 && ms > manager_bucket_ms[i])
		i++;
	h->buckets[i]++;
	h->count++;
	h->sum_ms += ms;
}

bool caller_sees_all(const struct caller *who)
{
	return who->token[0] == '\0' || (who->scopes & SCOPE_ADMIN);
}

const struct manager_metrics *manager_metrics(const struct manager *m)
{
	return &m->metrics;
}

/* ---- answers from the loop ---- */

struct later {
	struct loop_task task;
	sandbox_done done;
	json_done done_json;
	void *arg;
	struct err err;
	bool failed;
};

static void give_answer(void *arg)
{
	struct later *l = arg;
	const struct err *e = l->failed ? &l->err : NULL;

	if (l->done)
		l->done(l->arg, NULL, e);
	else if (l->done_json)
		l->done_json(l->arg, NULL, e);
	free(l);
}

static void add_later(struct manager *m, const struct later *what, const struct err *e)
{
	struct later *l = must_alloc(calloc(1, sizeof(*l)));

	*l = *what;
	l->failed = e != NULL;
	if (e)
		l->err = *e;
	l->task = (struct loop_task){.call = give_answer, .arg = l};
	loop_task_add(m->p.loop, &l->task);
}

void answer_later(struct manager *m, sandbox_done done, void *arg, const struct err *e)
{
	add_later(m, &(struct later){.done = done, .arg = arg}, e);
}

void answer_json_later(struct manager *m, json_done done, void *arg, const struct err *e)
{
	add_later(m, &(struct later){.done_json = done, .arg = arg}, e);
}

/* ---- the tables ---- */

static size_t bucket_of(const char *id)
{
	unsigned hash = 5381;

	while (*id)
		hash = hash * 33 + (unsigned char)*id++;
	return hash % SANDBOX_BUCKETS;
}

struct sandbox *manager_lookup(struct manager *m, const char *id)
{
	struct sandbox *s = m->table[bucket_of(id)];

	while (s && strcmp(s->id, id) != 0)
		s = s->next_same;
	return s;
}

/* The counter of /metrics that this sandbox counts in. */
static uint64_t *counter_of(struct sandbox *s)
{
	struct manager_metrics *c = &s->m->metrics;

	return s->pooled		      ? &c->pooled
	       : options_are_warm_host(&s->o) ? &c->warm_hosts
	       : s->o.transient		      ? &c->runs
					      : &c->by_state[s->state];
}

void sandbox_add(struct sandbox *s)
{
	struct manager *m = s->m;
	struct sandbox **bucket = &m->table[bucket_of(s->id)];

	s->next_same = *bucket;
	*bucket = s;
	s->next = NULL;
	s->back = m->last;
	*m->last = s;
	m->last = &s->next;
	s->known = true;
	sandbox_hold(s);
	++*counter_of(s);
}

void sandbox_remove(struct sandbox *s)
{
	struct manager *m = s->m;
	struct sandbox **at = &m->table[bucket_of(s->id)];

	if (!s->known)
		return;
	/* The prefork of snippets holds the sandbox and must not be its last holder. */
	snippets_free(s);
	while (*at != s)
		at = &(*at)->next_same;
	*at = s->next_same;
	*s->back = s->next;
	if (s->next)
		s->next->back = s->back;
	else
		m->last = s->back;
	s->known = false;
	--*counter_of(s);
	sandbox_release(s);
}

struct sandbox *sandbox_new(struct manager *m, const char *id)
{
	struct sandbox *s = must_alloc(calloc(1, sizeof(*s)));

	s->m = m;
	if (id)
		snprintf(s->id, sizeof(s->id), "%s", id);
	else
		id_make(s->id);
	spec_init(&s->o.spec);
	s->end_state = STATE_DESTROYED;
	s->queue_end = &s->queue;
	s->next_task = (struct loop_task){.call = sandbox_run_queue, .arg = s};
	timers_init(s);
	return s;
}

struct sandbox *sandbox_hold(struct sandbox *s)
{
	s->holds++;
	return s;
}

static void sandbox_free(struct sandbox *s)
{
	timers_stop(s);
	sandbox_close_link(s);
	loop_task_remove(s->m->p.loop, &s->next_task);
	while (s->waiters)
		sandbox_unwait(s->waiters);
	network_free(s);
	questions_free(s);
	list_done(&s->secret_allow);
	free(s->history);
	json_decref(s->layers);
	create_options_done(&s->o);
	free(s);
}

void sandbox_release(struct sandbox *s)
{
	if (s && --s->holds == 0)
		sandbox_free(s);
}

/* ---- finding ---- */

static bool is_findable(const struct sandbox *s, const struct caller *who)
{
	return !s->pooled && !s->refused &&
	       (!who || caller_sees_all(who) || strcmp(who->token, s->owner.token) == 0);
}

static bool sandbox_is_visible(const struct sandbox *s, const struct caller *who)
{
	return !s->o.transient && is_findable(s, who);
}

struct sandbox *manager_find(struct manager *m, const struct caller *who, const char *id,
			     struct err *e)
{
	struct sandbox *s = manager_lookup(m, id);

	if (!s || !is_findable(s, who)) {
		err_set(e, ERR_NOT_FOUND, "there is no such sandbox");
		return NULL;
	}
	return s;
}

void sandbox_act_as_owner(const struct sandbox *s, struct caller *who)
{
	memcpy(who->token, s->owner.token, sizeof(who->token));
	who->id[0] = '\0';
	snprintf(who->name, sizeof(who->name), "%s", who->token[0] ? s->owner.name : "operator");
}

struct sandbox *manager_find_any(struct manager *m, const char *id)
{
	struct sandbox *s = manager_lookup(m, id);

	return s && sandbox_is_visible(s, NULL) ? s : NULL;
}

void manager_each(struct manager *m, const struct caller *who,
		  bool (*call)(void *arg, struct sandbox *s), void *arg)
{
	for (struct sandbox *s = m->first, *next; s; s = next) {
		next = s->next;
		if (sandbox_is_visible(s, who) && !call(arg, s))
			return;
	}
}

/* "k=v": the value of k is v. */
static bool has_metadata(const struct sandbox *s, const char *pair)
{
	const char *equals = strchr(pair, '=');
	auto_free char *key = strndup(pair, equals ? (size_t)(equals - pair) : strlen(pair));
	const char *value = json_string_value(json_object_get(s->o.metadata, must_alloc(key)));

	return value && (!equals || strcmp(value, equals + 1) == 0);
}

static bool matches_filter(const struct sandbox *s, const char *state, const struct list *metadata)
{
	if (state && strcmp(state_name(s->state), state) != 0)
		return false;
	for (size_t i = 0; metadata && i < metadata->count; i++)
		if (!has_metadata(s, metadata->items[i]))
			return false;
	return true;
}

/*
 * The cursor names the last sandbox of a page by time and id, "MILLISECONDS-ID", so that it stays valid
 * after that sandbox is gone.
 */
static bool is_after(const struct sandbox *s, uint64_t ms, const char *id)
{
	return s->created_ms > ms || (s->created_ms == ms && strcmp(s->id, id) > 0);
}

static int read_cursor(const char *cursor, uint64_t *ret_ms, char ret_id[IPC_ID], struct err *e)
{
	char *end;

	errno = 0;
	*ret_ms = strtoull(cursor, &end, 10);
	if (errno || end == cursor || *end != '-' || !ipc_id_is_valid(end + 1))
		return err_field(e, ERR_INVALID, "cursor", "cursor: this is none of ours");
	snprintf(ret_id, IPC_ID, "%s", end + 1);
	return 0;
}

static int by_age(const void *a, const void *b)
{
	const struct sandbox *x = *(struct sandbox *const *)a, *y = *(struct sandbox *const *)b;

	if (x->created_ms != y->created_ms)
		return x->created_ms < y->created_ms ? -1 : 1;
	return strcmp(x->id, y->id);
}

/* All sandboxes that match, by age. */
static size_t collect_sandboxes(struct manager *m, const struct caller *who, const char *state,
				const struct list *metadata, struct sandbox ***ret)
{
	struct sandbox **all = NULL;
	size_t count = 0, room = 0;

	for (struct sandbox *s = m->first; s; s = s->next) {
		if (!sandbox_is_visible(s, who) || !matches_filter(s, state, metadata))
			continue;
		all = array_room(all, count, &room, sizeof(struct sandbox *));
		all[count++] = s;
	}
	if (count)
		qsort(all, count, sizeof(struct sandbox *), by_age);
	*ret = all;
	return count;
}

json_t *manager_list(struct manager *m, const struct caller *who, const char *state,
		     const struct list *metadata, size_t limit, const char *cursor, struct err *e)
{
	auto_free struct sandbox **all = NULL;
	char after[IPC_ID] = "";
	uint64_t after_ms = 0;
	size_t count, taken = 0;
	json_t *array, *last = json_null();

	if (state && state_find(state) == STATE_COUNT) {
		err_field(e, ERR_INVALID, "state", "state: '%s' is no state", state);
		return NULL;
	}
	if (cursor && cursor[0] && read_cursor(cursor, &after_ms, after, e) < 0)
		return NULL;
	count = collect_sandboxes(m, who, state, metadata, &all);
	array = json_array();
	for (size_t i = 0; i < count; i++) {
		if (after[0] && !is_after(all[i], after_ms, after))
			continue;
		if (limit && taken == limit) {
			struct sandbox *s = all[i - 1];

			last = json_sprintf("%llu-%s", (unsigned long long)s->created_ms, s->id);
			break;
		}
		json_array_append_new(array, sandbox_describe(all[i]));
		taken++;
	}
	return json_pack("{s:o,s:o}", "sandboxes", array, "cursor", last);
}

/* ---- life ---- */

struct manager *manager_new(const struct manager_parts *parts)
{
	struct manager *m = must_alloc(calloc(1, sizeof(*m)));

	m->p = *parts;
	m->last = &m->first;
	m->ended_end = &m->ended;
	m->next_seq = 1;
	m->shares = shares_new();
	m->alerts = buckets_new();
	shares_set_max(m->shares, SHARE_OUTPUT, m->p.config->output_budget);
	admission_start(m);
	id_make(m->epoch);
	pool_start(m);
	ended_start(m);
	stats_start(m);
	recover_load(m);
	return m;
}

void manager_set_config(struct manager *m, const struct config *config)
{
	const struct config *old = m->p.config;

	m->p.config = config;
	shares_set_max(m->shares, SHARE_OUTPUT, config->output_budget);
	admission_change(m);
	pool_change(m, old);
	warm_change(m);
}

struct shares *manager_shares(struct manager *m)
{
	return m->shares;
}

void manager_drain(struct manager *m)
{
	m->draining = true;
}

void manager_let_go(struct manager *m)
{
	for (struct sandbox *s = m->first, *next; s; s = next) {
		next = s->next;
		sandbox_close_link(s);
	}
}

void manager_free(struct manager *m)
{
	if (!m)
		return;
	loop_timer_stop(m->p.loop, &m->pool_timer);
	loop_timer_stop(m->p.loop, &m->sample_timer);
	loop_timer_stop(m->p.loop, &m->ended_timer);
	while (m->first) {
		struct sandbox *s = m->first;

		sandbox_close_link(s);
		timers_stop(s);
		sandbox_remove(s);
	}
	warm_stop(m);
	admission_stop(m);
	pool_stop(m);
	events_free(m);
	shares_free(m->shares);
	buckets_free(m->alerts);
	json_decref(m->layers);
	image_listing_done(&m->images);
	free(m);
}

/* ---- options ---- */

void create_options_init(struct create_options *o, const struct manager *m)
{
	const struct config *c = m->p.config;

	*o = (struct create_options){0};
	spec_init(&o->spec);
	o->spec.limits = c->sandbox.limits;
	o->spec.root = ROOT_OVERLAY;
	o->spec.empty = true;
	if (c->sandbox.image[0]) {
		free(o->spec.image);
		o->spec.image = str_copy(c->sandbox.image);
	}
	snprintf(o->door, sizeof(o->door), "rest");
	o->ttl_ms = c->sandbox.ttl_ms;
	o->idle_ms = c->sandbox.idle_ms;
}

void create_options_done(struct create_options *o)
{
	spec_done(&o->spec);
	list_done(&o->services);
	json_decref(o->metadata);
	json_decref(o->door_data);
	list_done(&o->env);
	list_done(&o->publish);
	list_done(&o->placeholders);
	*o = (struct create_options){0};
}

/* ---- properties of a sandbox ---- */

const char *sandbox_id(const struct sandbox *s)
{
	return s->id;
}

enum sandbox_state sandbox_state(const struct sandbox *s)
{
	return s->state;
}

const struct sandbox_spec *sandbox_spec(const struct sandbox *s)
{
	return &s->o.spec;
}

const json_t *sandbox_metadata(const struct sandbox *s)
{
	return s->o.metadata;
}

const json_t *sandbox_door_data(const struct sandbox *s)
{
	return s->o.door_data;
}

int sandbox_set_door_data(struct sandbox *s, json_t *data, struct err *e)
{
	json_t *old = s->o.door_data;

	s->o.door_data = data;
	if (s->state != STATE_CREATING && sandbox_save(s, e) < 0) {
		s->o.door_data = old;
		json_decref(data);
		return -1;
	}
	json_decref(old);
	return 0;
}

const char *sandbox_owner(const struct sandbox *s)
{
	return s->owner.token;
}

bool sandbox_is_owned_by(const struct sandbox *s, const struct caller *who)
{
	return !s->pooled && strcmp(who->token, s->owner.token) == 0;
}

void sandbox_set_name(struct sandbox *s, const char *name)
{
	snprintf(s->o.name, sizeof(s->o.name), "%s", name);
}

const char *sandbox_door(const struct sandbox *s)
{
	return s->o.door;
}

const char *sandbox_agent(const struct sandbox *s)
{
	return s->o.agent;
}

const char *sandbox_agent_uid(const struct sandbox *s)
{
	return s->o.agent_uid;
}

uint64_t sandbox_started_ms(const struct sandbox *s)
{
	return s->started_ms;
}

uint64_t sandbox_expires_ms(const struct sandbox *s)
{
	return s->expires_ms;
}

struct waiter *sandbox_wait(struct sandbox *s, void (*call)(void *arg, struct sandbox *s),
			    void *arg)
{
	struct waiter *w = must_alloc(calloc(1, sizeof(*w)));

	*w = (struct waiter){.s = s, .call = call, .arg = arg, .next = s->waiters};
	w->back = &s->waiters;
	if (w->next)
		w->next->back = &w->next;
	s->waiters = w;
	return w;
}

void sandbox_unwait(struct waiter *w)
{
	if (!w)
		return;
	*w->back = w->next;
	if (w->next)
		w->next->back = w->back;
	free(w);
}
