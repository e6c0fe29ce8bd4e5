/*
 * What sandboxes use now and used lately, and whether they answer. Asking costs the broker a few file
 * reads, so only sandboxes that were used or asked about within the last minute are sampled.
 */
#include "manager/manager_internal.h"

#include "wire/guest.h"

#define SAMPLE_MS 5000
#define SAMPLES 120 /* ten minutes */
#define RECENT_NS (60 * 1000000000LL)
#define RATE_NS 100000000 /* a rate over less time means nothing */
#define FRESH_NS                                                                                   \
	1000000000LL /* a list of all shows numbers of this age: asking is the broker's time */
#define HEALTH_MS 5000

/* The numbers of a sandbox, in the order in which they are shown. */
#define USAGE(name, is_past)                                                                       \
	{                                                                                          \
#name, offsetof(struct ipc_stats, name), is_past                                   \
	}

static const struct usage_field {
	const char *name;
	size_t at;
	bool is_past; /* in the history, too */
} usage_fields[] = {
	USAGE(memory_bytes, true),
	USAGE(memory_limit_bytes, false),
	USAGE(memory_peak_bytes, false),
	USAGE(cpu_us, true),
	USAGE(pids, true),
	USAGE(disk_bytes, true),
	USAGE(disk_limit_bytes, false),
	USAGE(net_rx_bytes, true),
	USAGE(net_tx_bytes, true),
	USAGE(io_read_bytes, true),
	USAGE(io_write_bytes, true),
};

struct usage {
	uint64_t time_ms;
	uint64_t numbers[ARRAY_LEN(usage_fields)];
	double cpu_percent;
};

struct history {
	struct usage samples[SAMPLES];
	size_t next, count;
	int64_t last_ns;
	uint64_t last_cpu_us;
	double cpu_percent;
};

/* ---- as JSON ---- */

static json_t *usage_json(const struct usage *u, bool is_past)
{
	json_t *o = json_object();

	if (is_past)
		json_object_set_new(o, "time", time_json(u->time_ms));
	for (size_t i = 0; i < ARRAY_LEN(usage_fields); i++) {
		const struct usage_field *f = &usage_fields[i];

		if (f->at == offsetof(struct ipc_stats, cpu_us)) {
			json_object_set_new(o, "cpu_ms", json_real((double)u->numbers[i] / 1e3));
			json_object_set_new(o, "cpu_percent", json_real(u->cpu_percent));
		} else if (f->is_past || !is_past) {
			json_object_set_new(o, f->name, json_integer((json_int_t)u->numbers[i]));
		}
	}
	return o;
}

static json_t *history_json(const struct history *h)
{
	json_t *all = json_array();

	for (size_t i = 0; i < h->count; i++)
		json_array_append_new(
			all, usage_json(&h->samples[(h->next + SAMPLES - h->count + i) % SAMPLES],
					true));
	return all;
}

/* ---- samples ---- */

static struct usage take_sample(struct sandbox *s, const struct ipc_stats *known)
{
	struct ipc_stats with_network = *known;
	const struct ipc_stats *st = &with_network;
	struct usage u = {.time_ms = unix_ms()};
	struct history *h = s->history;
	int64_t now = now_ns(), passed;

	if (!h)
		h = s->history = must_alloc(calloc(1, sizeof(*h)));
	network_usage(s, &with_network);
	passed = now - h->last_ns;
	for (size_t i = 0; i < ARRAY_LEN(usage_fields); i++)
		memcpy(&u.numbers[i], (const char *)st + usage_fields[i].at, sizeof(uint64_t));
	/* Two questions at once must not make a rate out of nothing. */
	if (!h->last_ns || passed > RATE_NS) {
		if (h->last_ns && st->cpu_us >= h->last_cpu_us)
			h->cpu_percent =
				(double)(st->cpu_us - h->last_cpu_us) * 1e5 / (double)passed;
		u.cpu_percent = h->cpu_percent;
		h->last_ns = now;
		h->last_cpu_us = st->cpu_us;
		h->samples[h->next] = u;
		h->next = (h->next + 1) % SAMPLES;
		h->count += h->count < SAMPLES;
	}
	u.cpu_percent = h->cpu_percent;
	return u;
}

/* ---- asking ---- */

#define ASKED_AT_ONCE 4 /* sandboxes of a list: the broker answers one question after the other */

/* All sandboxes of a caller are asked, a few at a time and in turns; the last answer completes the list. */
struct census {
	struct loop *loop;
	struct loop_task task;
	json_t *all;
	struct sandbox **members; /* held until they are asked */
	size_t count, room, at, open;
	json_done done;
	void *arg;
};

/* Without done and census only a sample is taken. */
struct usage_question {
	struct sandbox *s; /* held */
	json_done done;
	void *arg;
	struct census *census;
};

static void census_ask(struct census *c, struct sandbox *s);

static void census_go_on(void *arg)
{
	struct census *c = arg;

	while (c->at < c->count && c->open < ASKED_AT_ONCE) {
		if (loop_turn_is_over(c->loop)) {
			loop_task_add(c->loop, &c->task);
			return;
		}
		census_ask(c, c->members[c->at++]);
	}
	if (c->open)
		return;
	c->done(c->arg, json_pack("{s:o}", "sandboxes", c->all), NULL);
	free(c->members);
	free(c);
}

static void census_step(struct census *c)
{
	c->open--;
	loop_task_add(c->loop, &c->task);
}

static void census_show(struct census *c, const struct sandbox *s, const struct usage *u)
{
	json_t *value = usage_json(u, false);

	json_object_set_new(value, "id", json_string(s->id));
	json_object_set_new(value, "name", json_string(s->o.name));
	json_object_set_new(value, "state", json_string(state_name(s->state)));
	json_array_append_new(c->all, value);
}

static void usage_known(struct usage_question *q, const struct ipc_stats *st, const struct err *e)
{
	struct sandbox *s = q->s;
	struct usage u = {0};
	json_t *value = NULL;

	s->usage_asked--;
	if (!e)
		u = take_sample(s, st);
	if (q->done) {
		value = e ? NULL : usage_json(&u, false);
		if (value)
			json_object_set_new(value, "history", history_json(s->history));
		q->done(q->arg, value, e);
	} else if (!e && q->census) {
		census_show(q->census, s, &u);
	}
	if (q->census)
		census_step(q->census);
	sandbox_release(s);
	free(q);
}

static void on_broker_stats(void *arg, const struct ipc *reply, int fd)
{
	close_fd(&fd);
	usage_known(arg, &reply->stats, reply->err.kind == ERR_NONE ? NULL : &reply->err);
}

uint32_t usage_read(struct unpack *u, struct ipc_stats *ret)
{
	ret->pids = unpack_u32(u);
	ret->cpu_us = unpack_u64(u);
	ret->memory_bytes = unpack_u64(u);
	ret->disk_bytes = unpack_u64(u);
	ret->disk_limit_bytes = unpack_u64(u);
	ret->net_rx_bytes = unpack_u64(u);
	ret->net_tx_bytes = unpack_u64(u);
	return unpack_u32(u);
}

static bool is_local(const struct sandbox *s)
{
	return provider_can(s->o.spec.provider, CAN_PROVE);
}

static void on_guest_stats(void *arg, struct sandbox *s, struct unpack *u, const struct err *e)
{
	struct ipc_stats st = {0};

	usage_read(u, &st);
	if (is_local(s)) {
		st.pids -= st.pids > 0; /* pid 1 is cloche's own */
		st.memory_limit_bytes = s->o.spec.limits.memory_bytes;
	}
	usage_known(arg, &st, e);
}

/* A sandbox elsewhere, or without a cgroup: its guest is asked for what it sees. */
static bool only_guest_knows(const struct sandbox *s)
{
	return !(is_local(s) && s->booted.proven & LAYER_BIT(LAYER_CGROUP)) && s->link &&
	       s->state == STATE_RUNNING;
}

static void ask_usage(struct sandbox *s, const struct usage_question *what)
{
	struct usage_question *q = must_alloc(calloc(1, sizeof(*q)));

	*q = *what;
	q->s = sandbox_hold(s);
	s->usage_asked++;
	if (only_guest_knows(s))
		guest_ask(s, G_STATS, &(struct buf){0}, on_guest_stats, q);
	else
		broker_ask_id(s->m->p.broker, IPC_STATS, s->id, on_broker_stats, q);
}

/* ---- sampling ---- */

static bool is_recent(const struct sandbox *s, int64_t now)
{
	return s->active || now - s->used_ns < RECENT_NS ||
	       (s->asked_ns && now - s->asked_ns < RECENT_NS);
}

static void on_sample_timer(void *arg)
{
	struct manager *m = arg;
	int64_t now = now_ns();
	unsigned most = 64;

	loop_timer_set(m->p.loop, &m->sample_timer, SAMPLE_MS);
	for (struct sandbox *s = m->first; s && most; s = s->next) {
		if (s->state != STATE_RUNNING || s->pooled || s->o.transient || !is_recent(s, now))
			continue;
		if (s->history && now - s->history->last_ns < (SAMPLE_MS - 1000) * 1000000LL)
			continue;
		ask_usage(s, &(struct usage_question){0});
		most--;
	}
}

void stats_start(struct manager *m)
{
	m->sample_timer = (struct loop_timer){.call = on_sample_timer, .arg = m};
	loop_timer_set(m->p.loop, &m->sample_timer, SAMPLE_MS);
}

/* ---- one, and all of a caller's ---- */

static bool has_processes(const struct sandbox *s)
{
	return s->state == STATE_RUNNING || s->state == STATE_PAUSED ||
	       s->state == STATE_UNREACHABLE;
}

void sandbox_stats(struct sandbox *s, json_done done, void *arg)
{
	struct err e;

	if (!has_processes(s)) {
		err_set(&e, ERR_CONFLICT, "the sandbox is %s", state_name(s->state));
		answer_json_later(s->m, done, arg, &e);
		return;
	}
	s->asked_ns = now_ns();
	ask_usage(s, &(struct usage_question){.done = done, .arg = arg});
}

static void census_ask(struct census *c, struct sandbox *s)
{
	const struct history *h = s->history;

	if (has_processes(s)) {
		s->asked_ns = now_ns();
		/* Many lists at once cost one question. */
		if (h && h->count && (s->asked_ns - h->last_ns < FRESH_NS || s->usage_asked)) {
			census_show(c, s, &h->samples[(h->next + SAMPLES - 1) % SAMPLES]);
		} else {
			c->open++;
			ask_usage(s, &(struct usage_question){.census = c});
		}
	}
	sandbox_release(s);
}

static bool census_add(void *arg, struct sandbox *s)
{
	struct census *c = arg;

	if (!has_processes(s))
		return true;
	c->members = array_room(c->members, c->count, &c->room, sizeof(*c->members));
	c->members[c->count++] = sandbox_hold(s);
	return true;
}

void manager_stats(struct manager *m, const struct caller *who, json_done done, void *arg)
{
	struct census *c = must_alloc(calloc(1, sizeof(*c)));

	*c = (struct census){.loop = m->p.loop, .all = json_array(), .done = done, .arg = arg};
	c->task = (struct loop_task){
		.call = census_go_on, .arg = c, .user = shares_user(m->shares, who->token)};
	manager_each(m, who, census_add, c);
	loop_task_add(c->loop, &c->task);
}

/* ---- health ---- */

struct checkup {
	struct sandbox *s;
	struct call *call;
	int64_t begun_ns;
	struct loop_timer timer;
	json_done done;
	void *arg;
};

static void tell_health(struct checkup *c, bool healthy, const char *why)
{
	json_t *value =
		json_pack("{s:b,s:s,s:s,s:f}", "healthy", healthy, "state", state_name(c->s->state),
			  "reason", why, "latency_ms", (double)(now_ns() - c->begun_ns) / 1e6);

	loop_timer_stop(c->s->m->p.loop, &c->timer);
	call_drop(c->call);
	c->done(c->arg, value, NULL);
	sandbox_release(c->s);
	free(c);
}

static void on_pong(void *arg, const struct err *e)
{
	struct checkup *c = arg;

	c->call = NULL;
	tell_health(c, e == NULL, e ? e->msg : "");
}

static const struct call_ops pong_ops = {.on_end = on_pong};

static void on_late(void *arg)
{
	struct checkup *c = arg;
	bool running = c->s->state == STATE_RUNNING;

	tell_health(c, !running && c->s->state == STATE_PAUSED,
		    running			  ? "the guest does not answer"
		    : c->s->state == STATE_PAUSED ? ""
						  : c->s->reason);
}

void sandbox_health(struct sandbox *s, json_done done, void *arg)
{
	struct checkup *c = must_alloc(calloc(1, sizeof(*c)));
	bool asks = s->state == STATE_RUNNING && s->link;

	*c = (struct checkup){.s = sandbox_hold(s), .done = done, .arg = arg};
	c->begun_ns = now_ns();
	c->timer = (struct loop_timer){.call = on_late, .arg = c};
	loop_timer_set(s->m->p.loop, &c->timer, asks ? HEALTH_MS : 0);
	if (asks)
		c->call = link_call(s->link, G_PING, NULL, 0, &pong_ops, c);
}
