/*
 * Recovery after a start: matches the rows of the store with the sandboxes that the broker found alive.
 * A sandbox with a row is taken over. A row without a sandbox ends with a reason. Of a sandbox without a row
 * (the database was lost) the broker may have a copy of the row. If it has none, the sandbox was never reported
 * to a client and is destroyed; but if the database is new or rows of it cannot be read, nothing is known, and
 * the sandbox is kept.
 */
#include "manager/manager_internal.h"

static bool load_row(void *arg, const struct store_row *row)
{
	struct manager *m = arg;
	struct sandbox *s;
	struct err e;

	if (!ipc_id_is_valid(row->id) || manager_lookup(m, row->id))
		return false;
	s = sandbox_hold(sandbox_new(m, row->id));
	if (sandbox_load(s, row, &e) < 0) {
		/* As if there were no row: the broker may have a copy that is whole. */
		manager_log(m, "%s", e.msg);
		sandbox_release(s);
		return false;
	}
	/* Until the broker has reported the live ones, only stopped sandboxes have a known state. */
	s->state = state_find(row->state) == STATE_STOPPED ? STATE_STOPPED : STATE_CREATING;
	sandbox_add(s);
	quota_add(s);
	sandbox_release(s);
	return true;
}

void recover_load(struct manager *m)
{
	struct err e;

	if (m->p.store && store_each(m->p.store, load_row, m, &e) < 0)
		manager_log(m, "%s", e.msg);
}

/* ---- sandboxes without a row ---- */

bool rows_are_lost(const struct manager *m)
{
	return m->p.store && store_is_lost(m->p.store);
}

/* A sandbox that the store does not know, until the broker's copy of its row is here. */
struct unknown {
	struct manager *m;
	struct ipc_booted booted; /* it lives, with this link; or */
	int fd;
	struct ipc_snapshot snapshot; /* it is stopped, and this is the snapshot of its files; or */
	bool is_foreign;	      /* its record cannot be read */
};

static void adopt_sandbox(struct manager *m, const struct ipc_booted *b, int fd);
static void keep_foreign(struct manager *m, const char *id);
static void set_remaining_ttl(struct sandbox *s);

/* Nothing is known but what the broker's record says. */
static void fill_unknown(struct sandbox *s, const struct unknown *u)
{
	create_options_done(&s->o);
	create_options_init(&s->o, s->m);
	s->o.spec.provider = u->booted.provider;
	s->o.spec.level = u->booted.level;
	s->created_ms = u->booted.started_ms ? u->booted.started_ms : u->snapshot.created_ms;
	s->started_ms = s->created_ms;
	s->expires_ms = s->o.ttl_ms ? unix_ms() + s->o.ttl_ms : 0;
}

static struct sandbox *make_unknown(const struct unknown *u, const char *text)
{
	const char *id = u->snapshot.id[0] ? u->snapshot.sandbox : u->booted.id;
	struct sandbox *s = sandbox_hold(sandbox_new(u->m, id));
	struct err e;

	memcpy(s->owner.token, u->snapshot.id[0] ? u->snapshot.owner : u->booted.owner,
	       sizeof(s->owner.token));
	if (!text[0] || sandbox_load_text(s, text, &e) < 0)
		fill_unknown(s, u);
	memcpy(s->kept, u->snapshot.id, sizeof(s->kept));
	s->state = STATE_CREATING;
	sandbox_add(s);
	quota_add(s);
	manager_log(u->m, "sandbox %s has no row in the database; brought back from %s", s->id,
		    text[0] ? "the broker's copy" : "the broker's record, without its settings");
	sandbox_release(s);
	return s;
}

/* Without a copy of its row it was never reported to a client, unless rows are missing in the database. */
static bool is_explained(const struct unknown *u, const char *text)
{
	return !u->is_foreign && !text[0] && !rows_are_lost(u->m);
}

static void drop_unknown(const struct unknown *u)
{
	if (u->snapshot.id[0]) {
		manager_log(u->m, "snapshot %s is left over; removed", u->snapshot.id);
		snapshot_drop(u->m, u->snapshot.id, u->snapshot.owner);
	} else {
		manager_log(u->m, "sandbox %s has no owner; destroyed", u->booted.id);
		broker_ask_id(u->m->p.broker, IPC_DESTROY, u->booted.id, NULL, NULL);
	}
}

/* The broker's copy of a row; "" if it has none. */
static char *copied_row(const struct ipc *reply, int fd)
{
	char *text = NULL;
	size_t len;

	if (reply->type != IPC_ROW_IS)
		return str_copy("");
	if (fd >= 0 && io_read_whole(fd, IPC_ROW_LONG, &text, &len) == 0)
		return text;
	return str_copy(reply->row.text);
}

static void on_row(void *arg, const struct ipc *reply, int fd)
{
	struct unknown *u = arg;
	auto_free char *text = copied_row(reply, fd);
	const char *id = u->snapshot.id[0] ? u->snapshot.sandbox : u->booted.id;
	struct manager *m = u->m;
	struct sandbox *s;

	close_fd(&fd);
	if (manager_lookup(m, id) || is_explained(u, text)) {
		drop_unknown(u);
	} else {
		s = make_unknown(u, text);
		if (u->is_foreign) {
			keep_foreign(m, id);
		} else if (u->snapshot.id[0]) {
			sandbox_move(s, STATE_STOPPED, BY_START);
			set_remaining_ttl(s);
		} else {
			adopt_sandbox(m, &u->booted, take_fd(&u->fd));
		}
		sandbox_save_back(s);
	}
	close_fd(&u->fd);
	free(u);
	recover_step(m);
}

static void ask_row(const struct unknown *what)
{
	struct unknown *u = must_alloc(malloc(sizeof(*u)));
	struct ipc m = {.type = IPC_ROW_GET};

	*u = *what;
	u->m->recovering++;
	memcpy(m.row.id, u->snapshot.id[0] ? u->snapshot.sandbox : u->booted.id, sizeof(m.row.id));
	memcpy(m.row.snapshot, u->snapshot.id, sizeof(m.row.snapshot));
	broker_ask(u->m->p.broker, &m, -1, on_row, u);
}

void recover_stopped(struct manager *m, const struct ipc_snapshot *kept)
{
	if (m->p.store)
		ask_row(&(struct unknown){.m = m, .fd = -1, .snapshot = *kept});
}

void recover_step(struct manager *m)
{
	if (--m->recovering > 0 || !m->was_told || m->ready)
		return;
	m->ready = true;
	if (m->p.store)
		store_is_whole(m->p.store);
	if (m->p.on_ready)
		m->p.on_ready(m->p.arg);
	pool_refill(m);
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
	if (!s && !b->transient && m->p.store && strcmp(b->owner, "-") != 0) {
		ask_row(&(struct unknown){.m = m, .booted = *b, .fd = fd});
		return;
	}
	if (!s || s->state != STATE_CREATING || b->transient) {
		manager_log(m, "sandbox %s has no owner; destroyed", b->id);
		close_fd(&fd);
		broker_ask_id(m->p.broker, IPC_DESTROY, b->id, NULL, NULL);
		return;
	}
	s->booted = *b;
	if (b->net || b->net_how)
		network_is(s, b->net, b->net_how);
	s->o.spec.limits = b->limits;
	if (!b->has_row)
		row_hand_over(s);
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
	set_remaining_ttl(s);
	sandbox_save_back(s);
	return true;
}

/* Of a sandbox that lived when the host went down only its disk is left; it is stopped now. */
static void note_stopped(struct manager *m, const struct ipc_snapshot *kept)
{
	struct sandbox *s = manager_lookup(m, kept->sandbox);

	if (s && s->state == STATE_CREATING && !s->kept[0] &&
	    str_equal(s->owner.token, kept->owner))
		memcpy(s->kept, kept->id, sizeof(s->kept));
}

/* Its row stays as it is: the version of cloche that it belongs to needs the row. */
static void keep_foreign(struct manager *m, const char *id)
{
	struct sandbox *s = manager_lookup(m, id);
	struct unknown u = {.m = m, .fd = -1, .is_foreign = true};

	if (!s && m->p.store) {
		memcpy(u.booted.id, id, sizeof(u.booted.id));
		ask_row(&u);
		return;
	}
	if (!s || s->state != STATE_CREATING)
		return;
	snprintf(s->reason, sizeof(s->reason),
		 "its record is damaged or of another version of cloche, or could not be compared "
		 "with it; it is left alone until it is destroyed");
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
		m->was_told = true;
		m->recovering++;
		snapshots_sweep(m);
		recover_step(m);
		break;
	case IPC_SNAPSHOT_IS:
		note_stopped(m, &news->snapshot);
		break;
	case IPC_SIGNER:
		secrets_news(m, &news->signer);
		break;
	case IPC_IMAGES:
		images_news(m, fd);
		break;
	case IPC_NETWORK_IS:
	case IPC_NET_RECORD:
	case IPC_NET_METER:
	case IPC_NET_ASKS:
		network_news(m, news);
		break;
	case IPC_DIED:
		sandbox_died(m, &news->died);
		break;
	}
	close_fd(&fd);
}
