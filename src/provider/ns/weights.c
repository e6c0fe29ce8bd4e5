/*
 * Sandboxes that are in no group of their owner: those from the pool, as a cgroup cannot be moved, and those of
 * older daemons. So that an owner with many such sandboxes has no more of the processors than others have, those of
 * an owner that compute share one weight.
 *
 * Theory of operation. A pass looks at the processor time of each of them, a few at a time. When it ends, each that
 * computes has its part of the owner's weight, and each other one the usual weight again. To compute is to use
 * a tenth of what the busiest one uses: on a host that does much else, nobody gets much. There is nothing to do while
 * fewer than two have an owner.
 */
#include "provider/ns/ns_internal.h"

#include <assert.h>

#define AT_ONCE 32   /* looked at before others have their turn */
#define GAP_MS 5     /* between these turns */
#define PAUSE_MS 200 /* between passes */
#define REST_MS 2000 /* while there is nothing to do */
#define BUSY 10	     /* percent of what the busiest uses */
#define BUSY_LEAST 5 /* thousandths of one processor */
#define OWNERS 256

static void on_time(void *arg);

static void look_after(struct ns *ns, uint64_t ms)
{
	ns->weigh.timer.call = on_time;
	ns->weigh.timer.arg = ns;
	loop_timer_set(ns->host->loop, &ns->weigh.timer, ms);
}

void ns_weigh(struct ns_sandbox *s)
{
	struct ns *ns = s->ns;

	if (strchr(ns_cgroup_name(s), '/'))
		return;
	s->alone.weight = CGROUP_SHARE_USUAL;
	TAILQ_INSERT_TAIL(&ns->weigh.all, s, alone.list);
	s->alone.is_weighed = true;
	if (!ns->weigh.timer.place)
		look_after(ns, REST_MS);
}

void ns_weigh_no_more(struct ns_sandbox *s)
{
	if (!s->alone.is_weighed)
		return;
	if (s->ns->weigh.next == s)
		s->ns->weigh.next = TAILQ_NEXT(s, alone.list);
	TAILQ_REMOVE(&s->ns->weigh.all, s, alone.list);
	s->alone.is_weighed = false;
}

static bool is_owned(const struct ns_sandbox *s)
{
	return !str_equal(s->i->info.owner, "-");
}

/* Owners that share a bucket share a weight. */
static uint16_t *count_of(struct ns *ns, const struct ns_sandbox *s)
{
	uint32_t sum = 2166136261;

	for (const char *c = s->i->info.owner; *c; c++)
		sum = (sum ^ (uint8_t)*c) * 16777619;
	static_assert(ARRAY_LEN(ns->weigh.busy) == OWNERS, "a bucket per value of a byte");
	return &ns->weigh.busy[(sum ^ sum >> 8 ^ sum >> 16 ^ sum >> 24) % OWNERS];
}

static void look_at(struct ns_sandbox *s)
{
	int64_t now = now_ns(), passed = now - s->alone.looked_ns;
	struct cgroup c;
	uint64_t used;

	if (!is_owned(s) || !ns_cgroup(s, &c))
		return;
	used = cgroup_cpu_us(&c);
	cgroup_close(&c);
	s->alone.use = s->alone.looked_ns && passed > 0
			       ? (used - s->alone.used_us) * 1000000 / (uint64_t)passed
			       : 0;
	s->alone.used_us = used;
	s->alone.looked_ns = now;
}

static void count_busy(struct ns *ns)
{
	uint64_t most = 0;
	struct ns_sandbox *s;

	TAILQ_FOREACH (s, &ns->weigh.all, alone.list)
		most = s->alone.use > most ? s->alone.use : most;
	memset(ns->weigh.busy, 0, sizeof(ns->weigh.busy));
	TAILQ_FOREACH (s, &ns->weigh.all, alone.list) {
		s->alone.is_busy = s->alone.use >= BUSY_LEAST && s->alone.use * 100 >= most * BUSY;
		*count_of(ns, s) += s->alone.is_busy;
	}
}

static void give_weight(struct ns_sandbox *s)
{
	unsigned n = s->alone.is_busy ? *count_of(s->ns, s) : 1;
	unsigned weight = CGROUP_SHARE_USUAL / n;
	struct cgroup c;

	if (weight == s->alone.weight || !ns_cgroup(s, &c))
		return;
	cgroup_weigh(&c, weight);
	cgroup_close(&c);
	s->alone.weight = weight;
}

static bool is_worth_it(const struct ns *ns)
{
	const struct ns_sandbox *s;
	int owned = 0;

	TAILQ_FOREACH (s, &ns->weigh.all, alone.list)
		if ((owned += is_owned(s)) > 1)
			return true;
	return false;
}

static void end_pass(struct ns *ns)
{
	struct ns_sandbox *s;

	count_busy(ns);
	TAILQ_FOREACH (s, &ns->weigh.all, alone.list)
		give_weight(s);
	ns->weigh.next = TAILQ_FIRST(&ns->weigh.all);
	if (ns->weigh.next)
		look_after(ns, is_worth_it(ns) ? PAUSE_MS : REST_MS);
}

static void on_time(void *arg)
{
	struct ns *ns = arg;

	if (!ns->weigh.next)
		ns->weigh.next = TAILQ_FIRST(&ns->weigh.all);
	if (!is_worth_it(ns)) {
		end_pass(ns);
		return;
	}
	for (int i = 0; ns->weigh.next && i < AT_ONCE; i++) {
		struct ns_sandbox *s = ns->weigh.next;

		ns->weigh.next = TAILQ_NEXT(s, alone.list);
		look_at(s);
	}
	if (ns->weigh.next)
		look_after(ns, GAP_MS);
	else
		end_pass(ns);
}
