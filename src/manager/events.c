/* Events of sandboxes: a ring of the last few thousand, and subscriptions to them. */
#include "manager/manager_internal.h"

struct sandbox_event {
	char owner[IPC_ID];
	json_t *value;
};

struct subscription {
	struct manager *m;
	struct caller who;
	uint64_t next_seq; /* the next event to deliver */
	void (*call)(void *arg, const json_t *event);
	void *arg;
	struct loop_task task;
	struct subscription *next, **back;
};

static struct sandbox_event **event_at(struct manager *m, uint64_t seq)
{
	return &m->events[seq % ARRAY_LEN(m->events)];
}

static void sandbox_event_free(struct sandbox_event *e)
{
	if (!e)
		return;
	json_decref(e->value);
	free(e);
}

void event_add(struct sandbox *s, const char *type, json_t *more)
{
	if (s->pooled || s->o.transient || !s->known)
		json_decref(more);
	else
		event_add_any(s, type, more);
}

void event_add_any(struct sandbox *s, const char *type, json_t *more)
{
	struct sandbox_event *e = must_alloc(calloc(1, sizeof(*e)));
	struct manager *m = s->m;

	memcpy(e->owner, s->owner.token, sizeof(e->owner));
	e->value =
		json_pack("{s:I,s:s,s:o,s:s,s:s}", "seq", (json_int_t)m->next_seq, "epoch",
			  m->epoch, "time", time_json(unix_ms()), "type", type, "sandbox", s->id);
	if (more) {
		json_object_update_missing(e->value, more);
		json_decref(more);
	}
	sandbox_event_free(*event_at(m, m->next_seq));
	*event_at(m, m->next_seq++) = e;
	for (struct subscription *l = m->subscriptions; l; l = l->next)
		loop_task_add(m->p.loop, &l->task);
}

/* Delivers new events. The callback may end its own subscription. */
static void deliver_events(void *arg)
{
	struct subscription *l = arg;
	struct manager *m = l->m;
	uint64_t oldest =
		m->next_seq > ARRAY_LEN(m->events) ? m->next_seq - ARRAY_LEN(m->events) : 1;

	if (l->next_seq < oldest)
		l->next_seq = oldest;
	while (l->next_seq < m->next_seq) {
		struct sandbox_event *e = *event_at(m, l->next_seq++);
		struct subscription *still;
		json_t *value;

		if (!e || (!caller_sees_all(&l->who) && strcmp(l->who.token, e->owner) != 0))
			continue;
		value = json_incref(e->value);
		l->call(l->arg, value);
		json_decref(value);
		for (still = m->subscriptions; still && still != l; still = still->next)
			continue;
		if (!still)
			return;
	}
}

const char *manager_epoch(const struct manager *m)
{
	return m->epoch;
}

struct subscription *manager_subscribe(struct manager *m, const struct caller *who,
				       uint64_t from_seq,
				       void (*call)(void *arg, const json_t *event), void *arg)
{
	struct subscription *l = must_alloc(calloc(1, sizeof(*l)));

	*l = (struct subscription){.m = m, .who = *who, .call = call, .arg = arg};
	l->next_seq = from_seq ? from_seq : m->next_seq;
	if (l->next_seq > m->next_seq)
		l->next_seq = m->next_seq;
	l->task = (struct loop_task){.call = deliver_events, .arg = l};
	l->next = m->subscriptions;
	l->back = &m->subscriptions;
	if (l->next)
		l->next->back = &l->next;
	m->subscriptions = l;
	loop_task_add(m->p.loop, &l->task);
	return l;
}

void manager_unsubscribe(struct subscription *l)
{
	if (!l)
		return;
	loop_task_remove(l->m->p.loop, &l->task);
	*l->back = l->next;
	if (l->next)
		l->next->back = l->back;
	free(l);
}

void events_free(struct manager *m)
{
	while (m->subscriptions)
		manager_unsubscribe(m->subscriptions);
	for (size_t i = 0; i < ARRAY_LEN(m->events); i++)
		sandbox_event_free(m->events[i]);
}
