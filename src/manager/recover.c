/*
 * Recovery after a start: matches the rows of the store with the sandboxes that the broker found alive.
 * A sandbox with a row is taken over. A row without a sandbox ends with a reason. A sandbox without a row
 * was never reported to a client and is destroyed.
 */
#include "manager/manager_internal.h"

static void load_row(void *arg, const struct store_row *row)
{
	struct manager *m = arg;
	struct sandbox *s;
	struct err e;

	if (!ipc_id_is_valid(row->id) || manager_lookup(m, row->id))
		return;
	s = sandbox_new(m, row->id);
	if (sandbox_load(s, row, &e) < 0)
		manager_log(m, "%s", e.msg);
	/* Until the broker has reported the live ones, only stopped sandboxes have a known state. */
	s->state = state_find(row->state) == STATE_STOPPED ? STATE_STOPPED : STATE_CREATING;
	s->actor = s->owner;
	sandbox_add(s);
	quota_add(s);
}

void recover_load(struct manager *m)
{
	struct err e;

	if (m->p.store && store_each(m->p.store, load_row, m, &e) < 0)
		manager_log(m, "%s", e.msg);
}

/* ---- news of the broker ---- */

static void set_remaining_ttl(struct sandbox *s)
{
	if (s->state != STATE_PAUSED || !sandbox_pause_stops_clock(s))
		sandbox_follow_expiry(s);
}

static void adopt_sandbox(struct manager *m, const struct ipc_booted *b, int fd)
{
	struct sandbox *s = manager_lookup(m, b->id);

	if (!s && strcmp(b->owner, "-") == 0 && fd >= 0) {
		pool_adopt(m, b, fd);
		return;
	}
	if (!s || s->state != STATE_CREATING || b->transient) {
		manager_log(m, "sandbox %s has no owner; destroyed", b->id);
		close_fd(&fd);
		broker_ask_id(m->p.broker, IPC_DESTROY, b->id, NULL, NULL);
		return;
	}
	s->booted = *b;
	s->o.spec.limits = b->limits;
	if (s->kept[0]) {
		/* The daemon ended during a stop or start. The sandbox lives, so its own files count. */
		snapshot_drop(m, s->kept, s->owner.token);
		s->kept[0] = '\0';
	}
	sandbox_move(s, b->paused ? STATE_PAUSED : STATE_RUNNING, BY_START);
	if (fd >= 0)
		sandbox_open_link(s, fd, b->generation);
	else
		loop_task_add(m->p.loop, &s->next_task);
	set_remaining_ttl(s);
	sandbox_used(s);
	if (s->link && s->state == STATE_RUNNING)
		manager_log(m, "sandbox %s is taken up again, %s", s->id, state_name(s->state));
}

/* The processes are gone, but a stop had saved the files: the sandbox is stopped. */
static bool is_stopped_after_all(struct sandbox *s)
{
	if (!s->kept[0])
		return false;
	sandbox_move(s, STATE_STOPPED, BY_START);
	sandbox_save_back(s);
	return true;
}

/* Its row stays as it is: the version of cloche that it belongs to needs the row. */
static void keep_foreign(struct manager *m, const char *id)
{
	struct sandbox *s = manager_lookup(m, id);

	if (!s || s->state != STATE_CREATING)
		return;
	snprintf(s->reason, sizeof(s->reason),
		 "it belongs to another version of cloche, and is left alone");
	sandbox_move(s, STATE_FAILED, BY_START);
}

static void end_missing(struct manager *m)
{
	struct err e;

	for (struct sandbox *s = m->first, *next; s; s = next) {
		bool late;

		next = s->next;
		if (s->state == STATE_STOPPED)
			set_remaining_ttl(s);
		if (s->state != STATE_CREATING || s->pooled || is_stopped_after_all(s))
			continue;
		late = s->expires_ms && s->expires_ms <= unix_ms() && !s->o.pause_on_timeout;
		snprintf(s->reason, sizeof(s->reason), "%s",
			 late ? "its time was over while the daemon was away"
			      : "it was gone when the daemon came back");
		manager_log(m, "sandbox %s: %s", s->id, s->reason);
		quota_remove(s);
		if (sandbox_forget(s, &e) < 0)
			manager_log(m, "sandbox %s: %s", s->id, e.msg);
		sandbox_move(s, late ? STATE_DESTROYED : STATE_FAILED, BY_START);
		broker_ask_id(m->p.broker, IPC_DESTROY, s->id, NULL, NULL);
		ended_add(s);
	}
}

static void sandbox_died(struct manager *m, const struct ipc_died *d)
{
	struct sandbox *s = manager_lookup(m, d->id);

	if (!s)
		return;
	if (s->pooled) {
		pool_lost(s);
		return;
	}
	sandbox_end(s, STATE_FAILED, BY_BROKER,
		    d->by_oom	? "it was killed for memory"
		    : d->why[0] ? d->why
				: "its first process was killed");
}

void manager_news(struct manager *m, const struct ipc *news, int fd)
{
	switch (news->type) {
	case IPC_ADOPTED:
		adopt_sandbox(m, &news->booted, take_fd(&fd));
		break;
	case IPC_FOREIGN:
		keep_foreign(m, news->id);
		break;
	case IPC_READY:
		end_missing(m);
		snapshots_sweep(m);
		m->ready = true;
		pool_refill(m);
		break;
	case IPC_DIED:
		sandbox_died(m, &news->died);
		break;
	}
	close_fd(&fd);
}
