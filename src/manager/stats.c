/*
 * What sandboxes use, and used lately. Asking costs the broker a few file reads, so only those are
 * sampled that were used, or asked for, within the last minute.
 */
#include "manager/manager_internal.h"

#include "wire/pack.h"
#include "wire/guest.h"

#define SAMPLE_MS 5000
#define SAMPLES 120 /* ten minutes */
#define RECENT_NS (60 * 1000000000LL)
#define HEALTH_MS 5000

struct sample {
	uint64_t time_ms;
	uint64_t memory_bytes, cpu_us, pids, disk_bytes;
	uint64_t net_rx_bytes, net_tx_bytes, io_read_bytes, io_write_bytes;
	float cpu_percent;
};

struct history {
	struct sample samples[SAMPLES];
	size_t next, count;
	int64_t last_ns;
	uint64_t last_cpu_us;
	double cpu_percent;
};

void history_free(struct history *h)
{
	free(h);
}

/* ---- samples ---- */

static void add_sample(struct sandbox *s, const struct ipc_stats *st)
{
	struct history *h = s->history;
	int64_t now = now_ns();

	if (!h)
		h = s->history = must_alloc(calloc(1, sizeof(*h)));
	if (h->last_ns && now > h->last_ns && st->cpu_us >= h->last_cpu_us &&
	    now - h->last_ns > 100000000)
		h->cpu_percent =
			(double)(st->cpu_us - h->last_cpu_us) * 1e5 / (double)(now - h->last_ns);
	/* Two questions at once must not make a rate out of nothing. */
	if (h->last_ns && now - h->last_ns <= 100000000)
		return;
	h->last_ns = now;
	h->last_cpu_us = st->cpu_us;
	h->samples[h->next] = (struct sample){.time_ms = unix_ms(),
					      .memory_bytes = st->memory_bytes,
					      .cpu_us = st->cpu_us,
					      .pids = st->pids,
					      .disk_bytes = st->disk_bytes,
					      .net_rx_bytes = st->net_rx_bytes,
					      .net_tx_bytes = st->net_tx_bytes,
					      .io_read_bytes = st->io_read_bytes,
					      .io_write_bytes = st->io_write_bytes,
					      .cpu_percent = (float)h->cpu_percent};
	h->next = (h->next + 1) % SAMPLES;
	h->count += h->count < SAMPLES;
}

static json_t *history_json(const struct history *h)
{
	json_t *all = json_array();

	for (size_t i = 0; h && i < h->count; i++) {
		const struct sample *p = &h->samples[(h->next + SAMPLES - h->count + i) % SAMPLES];

		json_array_append_new(all,
				      json_pack("{s:o,s:I,s:f,s:f,s:I,s:I,s:I,s:I,s:I,s:I}", "time",
						time_json(p->time_ms), "memory_bytes",
						(json_int_t)p->memory_bytes, "cpu_ms",
						(double)p->cpu_us / 1e3, "cpu_percent",
						(double)p->cpu_percent, "pids", (json_int_t)p->pids,
						"disk_bytes", (json_int_t)p->disk_bytes,
						"net_rx_bytes", (json_int_t)p->net_rx_bytes,
						"net_tx_bytes", (json_int_t)p->net_tx_bytes,
						"io_read_bytes", (json_int_t)p->io_read_bytes,
						"io_write_bytes", (json_int_t)p->io_write_bytes));
	}
	return all;
}

static json_t *stats_json(const struct sandbox *s, const struct ipc_stats *st)
{
	return json_pack("{s:I,s:I,s:I,s:f,s:f,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "memory_bytes",
			 (json_int_t)st->memory_bytes, "memory_limit_bytes",
			 (json_int_t)st->memory_limit_bytes, "memory_peak_bytes",
			 (json_int_t)st->memory_peak_bytes, "cpu_ms", (double)st->cpu_us / 1e3,
			 "cpu_percent", s->history ? s->history->cpu_percent : 0.0, "pids",
			 (json_int_t)st->pids, "disk_bytes", (json_int_t)st->disk_bytes,
			 "disk_limit_bytes", (json_int_t)st->disk_limit_bytes, "net_rx_bytes",
			 (json_int_t)st->net_rx_bytes, "net_tx_bytes", (json_int_t)st->net_tx_bytes,
			 "io_read_bytes", (json_int_t)st->io_read_bytes, "io_write_bytes",
			 (json_int_t)st->io_write_bytes);
}

/* ---- of a sandbox elsewhere, or without a cgroup: what its guest sees ---- */

struct guest_question {
	broker_done done;
	void *arg;
	bool is_ours;
	struct ipc reply;
};

static void on_guest_stats(void *arg, uint8_t type, const void *payload, size_t len)
{
	struct guest_question *q = arg;
	struct unpack u = unpack_from(payload, len);
	struct ipc_stats *st = &q->reply.stats;

	if (type != G_OK)
		return;
	st->pids = unpack_u32(&u);
	/* Not counting our own pid 1. */
	st->pids -= q->is_ours && st->pids;
	st->cpu_us = unpack_u64(&u);
	st->memory_bytes = unpack_u64(&u);
	st->disk_bytes = unpack_u64(&u);
	st->disk_limit_bytes = unpack_u64(&u);
	st->net_rx_bytes = unpack_u64(&u);
	st->net_tx_bytes = unpack_u64(&u);
}

static void on_guest_stats_end(void *arg, const struct err *e)
{
	struct guest_question *q = arg;

	if (e)
		q->reply.err = *e;
	q->done(q->arg, &q->reply, -1);
	free(q);
}

static const struct call_ops guest_stats_ops = {.on_frame = on_guest_stats,
						.on_end = on_guest_stats_end};

static bool ask_guest(struct sandbox *s, broker_done done, void *arg)
{
	bool is_ours = provider_can(s->o.spec.provider, CAN_PROVE);
	struct guest_question *q;

	if ((is_ours && s->booted.proven & LAYER_BIT(LAYER_CGROUP)) || !s->link ||
	    s->state != STATE_RUNNING)
		return false;
	q = must_alloc(calloc(1, sizeof(*q)));
	*q = (struct guest_question){.done = done, .arg = arg, .reply.type = IPC_STATS_ARE};
	q->is_ours = is_ours;
	if (is_ours)
		q->reply.stats.memory_limit_bytes = s->o.spec.limits.memory_bytes;
	link_call(s->link, G_STATS, NULL, 0, &guest_stats_ops, q);
	return true;
}

static void ask_stats(struct sandbox *s, broker_done done, void *arg)
{
	if (ask_guest(s, done, arg))
		return;
	struct ipc m = {.type = IPC_STATS};

	memcpy(m.id, s->id, sizeof(m.id));
	broker_ask(s->m->p.broker, &m, -1, done, arg);
}

/* ---- sampling ---- */

static void on_sampled(void *arg, const struct ipc *reply, int fd)
{
	struct sandbox *s = arg;

	close_fd(&fd);
	if (reply->err.kind == ERR_NONE)
		add_sample(s, &reply->stats);
	sandbox_release(s);
}

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
		ask_stats(s, on_sampled, sandbox_hold(s));
		most--;
	}
}

void stats_start(struct manager *m)
{
	m->sample_timer = (struct loop_timer){.call = on_sample_timer, .arg = m};
	loop_timer_set(m->p.loop, &m->sample_timer, SAMPLE_MS);
}

/* ---- one ---- */

struct question {
	struct sandbox *s;
	json_done done;
	void *arg;
};

static void on_stats(void *arg, const struct ipc *reply, int fd)
{
	struct question *q = arg;
	json_t *value = NULL;

	close_fd(&fd);
	if (reply->err.kind == ERR_NONE) {
		add_sample(q->s, &reply->stats);
		value = stats_json(q->s, &reply->stats);
		json_object_set_new(value, "history", history_json(q->s->history));
	}
	q->done(q->arg, value, value ? NULL : &reply->err);
	sandbox_release(q->s);
	free(q);
}

static bool has_processes(const struct sandbox *s)
{
	return s->state == STATE_RUNNING || s->state == STATE_PAUSED;
}

static int check_processes(const struct sandbox *s, struct err *e)
{
	return has_processes(s)
		       ? 0
		       : err_set(e, ERR_CONFLICT, "the sandbox is %s", state_name(s->state));
}

void sandbox_stats(struct sandbox *s, json_done done, void *arg)
{
	struct question *q;
	struct err e;

	if (check_processes(s, &e) < 0) {
		answer_json_later(s->m, done, arg, NULL, &e);
		return;
	}
	s->asked_ns = now_ns();
	q = must_alloc(calloc(1, sizeof(*q)));
	*q = (struct question){.s = sandbox_hold(s), .done = done, .arg = arg};
	ask_stats(s, on_stats, q);
}

/* ---- all of a caller's ---- */

struct census {
	struct manager *m;
	json_t *all;
	size_t open;
	json_done done;
	void *arg;
};

struct census_item {
	struct census *c;
	struct sandbox *s;
};

static void census_step(struct census *c)
{
	if (--c->open > 0)
		return;
	c->done(c->arg, json_pack("{s:o}", "sandboxes", c->all), NULL);
	free(c);
}

static void on_counted(void *arg, const struct ipc *reply, int fd)
{
	struct census_item *i = arg;
	json_t *value;

	close_fd(&fd);
	if (reply->err.kind == ERR_NONE) {
		add_sample(i->s, &reply->stats);
		value = stats_json(i->s, &reply->stats);
		json_object_set_new(value, "id", json_string(i->s->id));
		json_object_set_new(value, "name", json_string(i->s->o.name));
		json_object_set_new(value, "state", json_string(state_name(i->s->state)));
		json_array_append_new(i->c->all, value);
	}
	sandbox_release(i->s);
	census_step(i->c);
	free(i);
}

static bool count_one(void *arg, struct sandbox *s)
{
	struct census_item *i;

	if (!has_processes(s))
		return true;
	i = must_alloc(calloc(1, sizeof(*i)));
	*i = (struct census_item){arg, sandbox_hold(s)};
	i->c->open++;
	s->asked_ns = now_ns();
	ask_stats(s, on_counted, i);
	return true;
}

static void on_census_begun(void *arg, json_t *value, const struct err *e)
{
	census_step(arg);
}

void manager_stats(struct manager *m, const struct caller *who, json_done done, void *arg)
{
	struct census *c = must_alloc(calloc(1, sizeof(*c)));

	*c = (struct census){.m = m, .all = json_array(), .open = 1, .done = done, .arg = arg};
	manager_each(m, who, count_one, c);
	answer_json_later(m, on_census_begun, c, NULL, NULL);
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
