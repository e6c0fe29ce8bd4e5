/* Destroying: the row is removed first, then the sandbox; what cannot be destroyed is tried again, and listed. */
#include "manager/manager_internal.h"

#define DESTROY_TRIES 5

static void destroy_ask(struct job *j);

static void destroy_finish(struct job *j)
{
	struct sandbox *s = j->s;

	s->kept[0] = '\0';
	s->expires_ms = 0;
	quota_remove(s);
	if (s->end_state != STATE_FAILED)
		s->m->metrics.destroyed++;
	else if (!s->refused)
		s->m->metrics.failed++;
	sandbox_move(s, s->end_state, s->end_state == STATE_FAILED ? BY_BROKER : BY_CLIENT);
	/* The next destroy of a failed sandbox removes it for good. */
	s->end_state = STATE_DESTROYED;
	if (s->refused)
		sandbox_remove(s);
	else
		ended_add(s);
	job_end(j, NULL);
}

/* Everything of it is gone, or the first part of it that is asked for next. */
static void on_destroyed(struct job *j, const struct err *e)
{
	struct sandbox *s = j->s;

	if (!e || (s->state == STATE_STOPPED && e->kind == ERR_NOT_FOUND)) {
		destroy_finish(j);
		return;
	}
	if (e->kind == ERR_SYSTEM && ++j->tries < DESTROY_TRIES) {
		job_retry(j, 100u << j->tries, destroy_ask);
		return;
	}
	manager_log(s->m, "sandbox %s cannot be destroyed: %s", s->id, e->msg);
	snprintf(s->reason, sizeof(s->reason), "cannot be destroyed: %.200s", e->msg);
	s->refused = false; /* it still exists, so it must be listed */
	if (s->state != STATE_FAILED && s->state != STATE_STOPPED)
		sandbox_move(s, STATE_FAILED, BY_BROKER);
	sandbox_save_back(s);
	job_end(j, e);
}

/* A sandbox that is stopped consists of the snapshot of its files. */
static void destroy_ask(struct job *j)
{
	struct sandbox *s = j->s;
	struct ipc m = {.type = IPC_SNAPSHOT_DELETE};

	if (s->state != STATE_STOPPED) {
		if (s->kept[0])
			snapshot_drop(s->m, s->kept, s->owner.token);
		job_ask_for(j, IPC_DESTROY, on_destroyed);
		return;
	}
	memcpy(m.snapshot.id, s->kept, sizeof(m.snapshot.id));
	memcpy(m.snapshot.owner, s->owner.token, sizeof(m.snapshot.owner));
	job_ask(j, &m, on_destroyed);
}

void destroy_begin(struct job *j)
{
	struct sandbox *s = j->s;
	struct err e;

	/* A client's destroy has removed the row. Here the sandbox ends for its own reasons, in any case. */
	if (j->by != BY_CLIENT && sandbox_forget(s, &e) < 0)
		manager_log(s->m, "sandbox %s: %s", s->id, e.msg);
	timers_stop(s);
	sandbox_close_link(s);
	/* The sandbox is still being booted; the answer to the boot continues here. */
	if (s->booting)
		j->waits = true;
	else
		destroy_ask(j);
}

void destroy_go_on(struct sandbox *s)
{
	struct job *j = s->current;

	if (!j || j->kind != JOB_DESTROY || !j->waits)
		return;
	j->waits = false;
	destroy_ask(j);
}

void sandbox_destroy(struct sandbox *s, const struct caller *who, sandbox_done done, void *arg)
{
	struct err e;

	/* Before the job begins: a sandbox that stays must go on with the job that it has. */
	if (sandbox_forget(s, &e) < 0)
		answer_later(s->m, done, arg, &e);
	else
		job_submit_new(s, JOB_DESTROY, who, done, arg);
}

void sandbox_end(struct sandbox *s, enum sandbox_state state, enum mover by, const char *reason)
{
	if (s->current && s->current->kind == JOB_DESTROY)
		return;
	if (s->state == STATE_FAILED || s->state == STATE_DESTROYED)
		return;
	s->end_state = state;
	snprintf(s->reason, sizeof(s->reason), "%s", reason);
	job_submit(job_new(s, JOB_DESTROY, by));
}

/* One request that destroys all sandboxes of a caller. */
#define DESTROYS_AT_ONCE 64 /* of one request: others use the broker, too */

struct destroy_all {
	struct manager *m;
	struct caller who;
	char (*ids)[IPC_ID];
	size_t total, room, next; /* of ids */
	size_t open, count;
	struct loop_task task;
	void (*done)(void *arg, size_t count);
	void *arg;
};

static void on_one_destroyed(void *arg, struct sandbox *s, const struct err *e)
{
	struct destroy_all *a = arg;

	a->count += s != NULL;
	a->open--;
	loop_task_add(a->m->p.loop, &a->task);
}

/* Destroys some of those that are left, as many as a turn has time for. */
static void destroy_some(void *arg)
{
	struct destroy_all *a = arg;
	struct loop *l = a->m->p.loop;

	while (a->next < a->total && a->open < DESTROYS_AT_ONCE && !loop_turn_is_over(l)) {
		struct sandbox *s = manager_lookup(a->m, a->ids[a->next++]);

		if (!s || s->state == STATE_DESTROYED || s->state == STATE_FAILED)
			continue;
		a->open++;
		sandbox_destroy(s, &a->who, on_one_destroyed, a);
	}
	if (a->next < a->total && a->open < DESTROYS_AT_ONCE) {
		loop_task_add(l, &a->task);
	} else if (a->next == a->total && !a->open) {
		a->done(a->arg, a->count);
		free(a->ids);
		free(a);
	}
}

static bool note_id(void *arg, struct sandbox *s)
{
	struct destroy_all *a = arg;

	a->ids = array_room(a->ids, a->total, &a->room, sizeof(*a->ids));
	memcpy(a->ids[a->total++], s->id, sizeof(s->id));
	return true;
}

void manager_destroy_all(struct manager *m, const struct caller *who,
			 void (*done)(void *arg, size_t count), void *arg)
{
	struct destroy_all *a = must_alloc(calloc(1, sizeof(*a)));

	*a = (struct destroy_all){.m = m, .who = *who, .done = done, .arg = arg};
	a->task = (struct loop_task){
		.call = destroy_some, .arg = a, .user = shares_user(m->shares, who->token)};
	manager_each(m, who, note_id, a);
	loop_task_add(m->p.loop, &a->task);
}
