/* Turns: one lane per tenant, so that the work of one does not hold up the others. */
#include "api/http/http_internal.h"

static struct lane **find_lane(struct server *s, const struct budget *b)
{
	struct lane **place = &s->lanes[((uintptr_t)b >> 6) % LANE_BUCKETS];

	while (*place && (*place)->budget != b)
		place = &(*place)->next;
	return place;
}

static void leave_lane(struct peer *p)
{
	struct lane *l = take_ptr(p->lane), **place;

	if (p->is_ready)
		TAILQ_REMOVE(&l->ready, p, ready);
	p->is_ready = false;
	if (p->in_line)
		TAILQ_REMOVE(&l->line, p, line);
	if (--l->members)
		return;
	if (l->is_active)
		TAILQ_REMOVE(&p->server->active, l, active);
	place = find_lane(p->server, l->budget);
	*place = l->next;
	free(l);
}

void lanes_enter(struct peer *p, const struct budget *b)
{
	bool was_ready = p->is_ready;
	struct lane **place;

	if (p->lane)
		leave_lane(p);
	if (!b)
		return;
	place = find_lane(p->server, b);
	if (!*place) {
		*place = must_alloc(calloc(1, sizeof(**place)));
		(*place)->budget = b;
		TAILQ_INIT(&(*place)->ready);
		TAILQ_INIT(&(*place)->line);
	}
	p->lane = *place;
	p->lane->members++;
	if (p->in_line)
		TAILQ_INSERT_TAIL(&p->lane->line, p, line);
	if (was_ready)
		peer_kick(p);
}

void lanes_line(struct peer *p, bool in_line)
{
	if (p->in_line == in_line)
		return;
	p->in_line = in_line;
	if (in_line)
		TAILQ_INSERT_TAIL(&p->lane->line, p, line);
	else
		TAILQ_REMOVE(&p->lane->line, p, line);
}

struct peer *lanes_oldest(struct server *s, const struct budget *b)
{
	struct lane *l = *find_lane(s, b);

	return l ? TAILQ_FIRST(&l->line) : NULL;
}

void peer_kick(struct peer *p)
{
	struct lane *l = p->lane;

	if (p->is_ready || !l)
		return;
	p->is_ready = true;
	TAILQ_INSERT_TAIL(&l->ready, p, ready);
	if (!l->is_active)
		TAILQ_INSERT_TAIL(&p->server->active, l, active);
	l->is_active = true;
	loop_task_add(p->server->api->loop, &p->server->task);
}

/* One turn of a lane. A connection that has more to do goes to the end. The lane may end meanwhile. */
static void run_lane(struct server *s, struct lane *l, int64_t until)
{
	struct peer *p;

	/* As long as it is in work, it is first in the line: its end takes it away. */
	while (TAILQ_FIRST(&s->active) == l && (p = TAILQ_FIRST(&l->ready))) {
		TAILQ_REMOVE(&l->ready, p, ready);
		p->is_ready = false;
		peer_run(p);
		if (now_ns() > until)
			break;
	}
	if (TAILQ_FIRST(&s->active) != l)
		return;
	TAILQ_REMOVE(&s->active, l, active);
	l->is_active = !TAILQ_EMPTY(&l->ready);
	if (l->is_active)
		TAILQ_INSERT_TAIL(&s->active, l, active);
}

void lanes_run(void *server)
{
	struct server *s = server;
	int64_t now = now_ns(), end = now + ROUND_NS;
	struct lane *l;

	while ((l = TAILQ_FIRST(&s->active)) && now < end) {
		run_lane(s, l, now + TURN_NS);
		now = now_ns();
	}
	if (!TAILQ_EMPTY(&s->active))
		loop_task_add(s->api->loop, &s->task);
}
