/* What happens without a request: the end by age or idleness, forgetting ended sandboxes, acks. */
#include "manager/manager_internal.h"

#include "wire/guest.h"
#include "wire/pack.h"

#define ENDED_MS 60000
#define ENDED_LOOK_MS 5000
#define ENDED_MAX 500
#define ACK_MS 2000
/* The daemon ends an expired sandbox; if it does not, the guest ends itself this much later. */
#define GUEST_LATER_MS 3000

/* ---- TTL ---- */

bool sandbox_pause_stops_clock(const struct sandbox *s)
{
	return s->o.pause_on_timeout || strcmp(s->o.door, "e2b") == 0;
}

void sandbox_set_ttl(struct sandbox *s, uint64_t ttl_ms)
{
	struct loop *l = s->m->p.loop;

	s->expires_ms = ttl_ms ? unix_ms() + ttl_ms : 0;
	if (ttl_ms)
		loop_timer_set(l, &s->ttl, ttl_ms);
	else
		loop_timer_stop(l, &s->ttl);
}

void sandbox_follow_expiry(struct sandbox *s)
{
	uint64_t now = unix_ms();

	if (s->expires_ms)
		sandbox_set_ttl(s, s->expires_ms > now ? s->expires_ms - now : 1);
}

uint64_t sandbox_ttl_left_ms(const struct sandbox *s)
{
	int64_t left;

	/* A guest that is to be paused must not end itself. */
	if (!s->ttl.place || s->o.pause_on_timeout)
		return 0;
	left = (s->ttl.at_ns - now_ns()) / 1000000;
	return (uint64_t)(left > 0 ? left : 0) + GUEST_LATER_MS;
}

void sandbox_expire(struct sandbox *s, const char *why)
{
	sandbox_end(s, STATE_DESTROYED, BY_TIMER, why);
}

/*
 * The sandbox has timed out: it is destroyed or paused, as its options say. If the pause fails, an
 * expired sandbox is destroyed (ends); one that is merely idle goes on.
 */
static void time_out(struct sandbox *s, bool ends, const char *why)
{
	struct job *j;

	if (!s->o.pause_on_timeout && (ends || !s->o.pause_when_idle)) {
		sandbox_expire(s, why);
		return;
	}
	if (s->state != STATE_RUNNING && s->state != STATE_UNREACHABLE)
		return;
	j = job_new(s, JOB_PAUSE, BY_TIMER);
	j->ends = ends;
	job_submit(j);
}

static void on_ttl_timer(void *arg)
{
	struct sandbox *s = arg;

	if (s->state == STATE_PAUSED && sandbox_pause_stops_clock(s))
		return;
	s->expires_ms = s->o.pause_on_timeout ? 0 : s->expires_ms;
	time_out(s, true, "its time was over");
}

/* ---- idleness ---- */

static void set_idle_timer(struct sandbox *s, uint64_t after_ms)
{
	if (s->o.idle_ms && s->state == STATE_RUNNING && !s->pooled && !s->o.transient)
		loop_timer_set(s->m->p.loop, &s->idle, after_ms ? after_ms : 1);
}

static void on_guest_usage(void *arg, struct sandbox *s, struct unpack *u, const struct err *e)
{
	bool busy = usage_read(u, &(struct ipc_stats){0}) > 0 && !u->bad;
	bool used = (uint64_t)(now_ns() - s->used_ns) / 1000000 < s->o.idle_ms;

	if (!s->known || s->state != STATE_RUNNING)
		return;
	if (busy)
		s->used_ns = now_ns();
	if (e || busy || s->active || used)
		set_idle_timer(s, s->o.idle_ms);
	else
		time_out(s, false, "it was idle for too long");
}

/* Only the guest knows of commands in the background, so it is asked. */
static void on_idle_timer(void *arg)
{
	struct sandbox *s = arg;
	uint64_t unused_ms = (uint64_t)(now_ns() - s->used_ns) / 1000000;

	if (s->state != STATE_RUNNING || !s->link || s->active || s->current ||
	    link_open_calls(s->link) > s->idle_execs) {
		s->used_ns = now_ns();
		set_idle_timer(s, s->o.idle_ms);
		return;
	}
	if (unused_ms < s->o.idle_ms) {
		set_idle_timer(s, s->o.idle_ms - unused_ms);
		return;
	}
	guest_ask(s, G_STATS, &(struct buf){0}, on_guest_usage, NULL);
}

void sandbox_used(struct sandbox *s)
{
	s->used_ns = now_ns();
	if (!s->idle.place)
		set_idle_timer(s, s->o.idle_ms);
}

void sandbox_active(struct sandbox *s, int by)
{
	s->active += (unsigned)by;
	if (options_are_warm_host(&s->o))
		s->m->metrics.runs += (uint64_t)by;
	sandbox_used(s);
}

/* ---- a guest that does not answer ---- */

#define REACH_MS 2000u
#define REACH_DOUBLINGS 4

static void on_reach_timer(void *arg)
{
	sandbox_run_queue(arg);
}

void sandbox_reach_later(struct sandbox *s)
{
	loop_timer_set(s->m->p.loop, &s->reach, REACH_MS << s->reach_tries);
	s->reach_tries += s->reach_tries < REACH_DOUBLINGS;
}

/* ---- acknowledging ---- */

/*
 * The guest lists ended commands until they are acknowledged, and nothing waits for that. So
 * acknowledgements are sent along with the next command and do not wake the guest by themselves.
 */
void acks_send(void *sandbox)
{
	static const struct call_ops nothing = {0};
	struct sandbox *s = sandbox;

	loop_timer_stop(s->m->p.loop, &s->acking);
	for (unsigned i = 0; i < s->ack_count && s->link && s->state == STATE_RUNNING; i++) {
		struct buf b = {0};

		pack_u32(&b, s->acks[i]);
		link_call(s->link, G_ACK, buf_head(&b), b.len, &nothing, NULL);
		buf_done(&b);
	}
	s->ack_count = 0;
}

void ack(struct sandbox *s, uint32_t eid)
{
	if (s->o.transient)
		return;
	if (s->ack_count == ARRAY_LEN(s->acks))
		acks_send(s);
	s->acks[s->ack_count++] = eid;
	if (!s->acking.place)
		loop_timer_set(s->m->p.loop, &s->acking, ACK_MS);
}

/* ---- forgetting ---- */

static void forget_oldest(struct manager *m)
{
	struct sandbox *s = m->ended;

	m->ended = s->next_ended;
	if (!m->ended)
		m->ended_end = &m->ended;
	m->ended_count--;
	sandbox_remove(s);
}

void ended_add(struct sandbox *s)
{
	struct manager *m = s->m;

	if (s->o.transient) {
		sandbox_remove(s);
		return;
	}
	if (s->ended_ns)
		return;
	s->ended_ns = now_ns();
	s->next_ended = NULL;
	*m->ended_end = s;
	m->ended_end = &s->next_ended;
	/* The rest is small, and the number of ended sandboxes is bounded. */
	free(take_ptr(s->history));
	if (++m->ended_count > ENDED_MAX)
		forget_oldest(m);
	if (!m->ended_timer.place)
		loop_timer_set(m->p.loop, &m->ended_timer, ENDED_LOOK_MS);
}

static void on_ended_timer(void *arg)
{
	struct manager *m = arg;
	int64_t old = now_ns() - ENDED_MS * 1000000LL;

	while (m->ended && m->ended->ended_ns <= old)
		forget_oldest(m);
	if (m->ended)
		loop_timer_set(m->p.loop, &m->ended_timer, ENDED_LOOK_MS);
}

void ended_start(struct manager *m)
{
	m->ended_timer = (struct loop_timer){.call = on_ended_timer, .arg = m};
}

/* ---- all timers of a sandbox ---- */

void timers_init(struct sandbox *s)
{
	s->ttl = (struct loop_timer){.call = on_ttl_timer, .arg = s};
	s->idle = (struct loop_timer){.call = on_idle_timer, .arg = s};
	s->acking = (struct loop_timer){.call = acks_send, .arg = s};
	s->reach = (struct loop_timer){.call = on_reach_timer, .arg = s};
}

void timers_stop(struct sandbox *s)
{
	struct loop *l = s->m->p.loop;

	loop_timer_stop(l, &s->ttl);
	loop_timer_stop(l, &s->idle);
	loop_timer_stop(l, &s->acking);
	loop_timer_stop(l, &s->reach);
}
