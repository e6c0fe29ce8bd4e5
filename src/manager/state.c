/*
 * The states of a sandbox and the jobs that change them: who may move which sandbox where, the queue of
 * jobs, and the jobs pause, resume and change.
 */
#include "manager/manager_internal.h"

#include <assert.h>

#define IN(state) (1u << (state))

static const char *const state_names[] = {
	[STATE_CREATING] = "creating",	     [STATE_CREATED] = "created",
	[STATE_STARTING] = "starting",	     [STATE_RUNNING] = "running",
	[STATE_PAUSED] = "paused",	     [STATE_STOPPED] = "stopped",
	[STATE_UNREACHABLE] = "unreachable", [STATE_FAILED] = "failed",
	[STATE_DESTROYED] = "destroyed",
};
static_assert(ARRAY_LEN(state_names) == STATE_COUNT, "a name per state");

const char *state_name(enum sandbox_state s)
{
	return s < STATE_COUNT ? state_names[s] : "unknown";
}

enum sandbox_state state_find(const char *name)
{
	int i = 0;

	while (i < STATE_COUNT && strcmp(state_names[i], name) != 0)
		i++;
	return (enum sandbox_state)i;
}

/* ---- moves ---- */

#define ANYBODY (BY_CLIENT | BY_TIMER | BY_GUEST | BY_BROKER | BY_START)

static const unsigned char moves[STATE_COUNT][STATE_COUNT] = {
	[STATE_CREATING] = {[STATE_CREATED] = BY_BROKER,
			    [STATE_STARTING] = BY_BROKER | BY_START,
			    [STATE_RUNNING] = BY_GUEST | BY_START,
			    [STATE_PAUSED] = BY_START,
			    [STATE_STOPPED] = BY_START,
			    [STATE_FAILED] = BY_GUEST | BY_BROKER | BY_START,
			    [STATE_DESTROYED] = ANYBODY},
	[STATE_CREATED] = {[STATE_CREATING] = BY_CLIENT, /* claimed from the pool */
			   [STATE_FAILED] = BY_GUEST | BY_BROKER,
			   [STATE_DESTROYED] = ANYBODY},
	[STATE_STARTING] = {[STATE_RUNNING] = BY_GUEST,
			    [STATE_STOPPED] = BY_GUEST | BY_BROKER,
			    [STATE_FAILED] = BY_GUEST | BY_BROKER,
			    [STATE_DESTROYED] = ANYBODY},
	[STATE_RUNNING] = {[STATE_PAUSED] = BY_CLIENT | BY_TIMER,
			   [STATE_STOPPED] = BY_CLIENT,
			   [STATE_UNREACHABLE] = BY_GUEST,
			   [STATE_FAILED] = BY_GUEST | BY_BROKER,
			   [STATE_DESTROYED] = ANYBODY},
	[STATE_PAUSED] = {[STATE_RUNNING] = BY_CLIENT,
			  [STATE_STOPPED] = BY_CLIENT,
			  [STATE_FAILED] = BY_GUEST | BY_BROKER,
			  [STATE_DESTROYED] = ANYBODY},
	[STATE_UNREACHABLE] = {[STATE_RUNNING] = BY_GUEST,
			       [STATE_PAUSED] = BY_CLIENT | BY_TIMER,
			       [STATE_STOPPED] = BY_CLIENT,
			       [STATE_FAILED] = BY_GUEST | BY_BROKER,
			       [STATE_DESTROYED] = ANYBODY},
	[STATE_STOPPED] = {[STATE_STARTING] = BY_CLIENT, [STATE_DESTROYED] = BY_CLIENT | BY_TIMER},
	[STATE_FAILED] = {[STATE_DESTROYED] = BY_CLIENT | BY_TIMER},
};

/* A callback may remove any waiter, so the search begins anew after each. */
static void tell_waiters(struct sandbox *s)
{
	static unsigned round;
	struct waiter *w;

	round++;
	sandbox_hold(s);
	do {
		for (w = s->waiters; w && w->round == round; w = w->next)
			continue;
		if (w) {
			w->round = round;
			w->call(w->arg, s);
		}
	} while (w);
	sandbox_release(s);
}

bool sandbox_move(struct sandbox *s, enum sandbox_state to, enum mover by)
{
	bool counts = s->known && !s->pooled && !s->o.transient;
	char type[32];

	if (!(moves[s->state][to] & by)) {
		manager_log(s->m, "sandbox %s: cannot go from %s to %s", s->id,
			    state_name(s->state), state_name(to));
		return false;
	}
	if (counts) {
		s->m->metrics.by_state[s->state]--;
		s->m->metrics.by_state[to]++;
	}
	if (s->state == STATE_UNREACHABLE && to != STATE_FAILED && to != STATE_DESTROYED)
		s->reason[0] = '\0';
	s->state = to;
	if (!counts)
		return true;
	snprintf(type, sizeof(type), "sandbox.%s", state_name(to));
	event_add(s, type, s->reason[0] ? json_pack("{s:s}", "reason", s->reason) : NULL);
	tell_waiters(s);
	return true;
}

/* ---- the audit ---- */

void audit_caller(struct manager *m, const struct caller *who, const struct audit_entry *given,
		  void (*done)(void *arg, const struct err *e), void *arg)
{
	struct audit_entry entry = *given;

	if (!who)
		snprintf(entry.who, sizeof(entry.who), "daemon");
	else if (who->token[0])
		snprintf(entry.who, sizeof(entry.who), "%s %.38s", caller_id(who), who->name);
	else
		snprintf(entry.who, sizeof(entry.who), "operator");
	snprintf(entry.verdict, sizeof(entry.verdict), "allow");
	snprintf(entry.from, sizeof(entry.from), "%s", who ? who->address : "");
	audit_write(m->p.audit, &entry, done, arg);
}

static bool ends_work(const char *what);

void audit_decision(struct sandbox *s, const struct caller *who, const char *what, const char *why,
		    void (*done)(void *arg, const struct err *e), void *arg)
{
	struct audit_entry entry = {.uses_reserve = ends_work(what)};

	snprintf(entry.what, sizeof(entry.what), "%s", what);
	snprintf(entry.target, sizeof(entry.target), "%s", s->id);
	snprintf(entry.why, sizeof(entry.why), "%s", why);
	audit_caller(s->m, who, &entry, done, arg);
}

void audit_refused(struct manager *m, const struct err *why, struct err *ret)
{
	m->metrics.audit_refusals++;
	audit_refuse(why, ret);
}

/* ---- jobs ---- */

static void pause_begin(struct job *j);
static void resume_begin(struct job *j);
static void change_begin(struct job *j);

struct job_rule {
	const char *verb;
	const char *audit;	/* the audit entry that is written before the job begins, or NULL */
	bool audit_must_work;	/* new work needs the entry; ending a sandbox goes on without it */
	unsigned from, done_in; /* states */
	unsigned can;		/* capabilities that the provider needs */
	void (*begin)(struct job *j);
};

/* Its processes are there. None of these jobs needs its guest. */
#define ALIVE (IN(STATE_RUNNING) | IN(STATE_PAUSED) | IN(STATE_UNREACHABLE))

static const struct job_rule job_rules[] = {
	[JOB_CREATE] = {"create", "sandbox.create", true, IN(STATE_CREATING), 0, 0, create_begin},
	[JOB_WAKE] = {"use", "sandbox.resume", true, IN(STATE_PAUSED), IN(STATE_RUNNING), CAN_PAUSE,
		      resume_begin},
	[JOB_PAUSE] = {"pause", "sandbox.pause", false, ALIVE & ~IN(STATE_PAUSED), IN(STATE_PAUSED),
		       CAN_PAUSE, pause_begin},
	[JOB_RESUME] = {"resume", "sandbox.resume", true, IN(STATE_PAUSED), IN(STATE_RUNNING),
			CAN_PAUSE, resume_begin},
	[JOB_STOP] = {"stop", "sandbox.stop", false, ALIVE, IN(STATE_STOPPED), CAN_SNAPSHOT,
		      stop_begin},
	[JOB_START] = {"start", "sandbox.start", true, IN(STATE_STOPPED), IN(STATE_RUNNING),
		       CAN_SNAPSHOT, start_begin},
	[JOB_SNAPSHOT] = {"snapshot", "sandbox.snapshot", true, ALIVE, 0, CAN_SNAPSHOT,
			  snapshot_begin},
	[JOB_CHANGE] = {"change", "sandbox.change", true, ALIVE | IN(STATE_STOPPED), 0, 0,
			change_begin},
	[JOB_NETWORK] = {"change the network of", "sandbox.network", true,
			 IN(STATE_RUNNING) | IN(STATE_PAUSED) | IN(STATE_STOPPED), 0, CAN_NET,
			 network_begin},
	[JOB_CONNECT] = {"reach", NULL, false, IN(STATE_RUNNING), 0, 0, connect_begin},
	[JOB_DESTROY] = {"destroy", "sandbox.destroy", false, ~IN(STATE_DESTROYED),
			 IN(STATE_DESTROYED), 0, destroy_begin},
};
static_assert(ARRAY_LEN(job_rules) == JOB_COUNT, "a rule per job");

/* Such an entry is written even if the disk is full, and the job goes on even if that fails. */
static bool ends_work(const char *what)
{
	for (size_t i = 0; i < JOB_COUNT; i++)
		if (job_rules[i].audit && str_equal(job_rules[i].audit, what))
			return !job_rules[i].audit_must_work;
	return false;
}

struct job *job_new(struct sandbox *s, enum job_kind kind, enum mover by)
{
	struct job *j = must_alloc(calloc(1, sizeof(*j)));

	*j = (struct job){.kind = kind, .by = by, .s = sandbox_hold(s), .fd = -1};
	j->begun_ns = now_ns();
	return j;
}

struct job *job_new_for(struct sandbox *s, enum job_kind kind, const struct caller *who)
{
	struct job *j = job_new(s, kind, BY_CLIENT);

	j->is_own = !who;
	if (who)
		j->who = *who;
	return j;
}

bool job_is_current(const struct job *j)
{
	return j->s->current == j;
}

static void finish_job(void *arg)
{
	struct job *j = arg;
	struct sandbox *s = j->s;
	const struct err *e = j->err.kind == ERR_NONE ? NULL : &j->err;

	if (j->done)
		j->done(j->arg, e ? NULL : s, e);
	else if (j->done_json)
		j->done_json(j->arg, e ? NULL : json_incref(j->value), e);
	json_decref(j->value);
	json_decref(j->change.metadata);
	json_decref(j->old.metadata);
	job_secrets_done(&j->secrets);
	if (j->kind == JOB_NETWORK)
		spec_done(&j->network);
	free(j);
	sandbox_release(s);
}

void job_end(struct job *j, const struct err *e)
{
	struct sandbox *s = j->s;
	struct loop *l = s->m->p.loop;

	loop_timer_stop(l, &j->timer);
	if (e)
		j->err = *e;
	if (s->current == j) {
		s->current = NULL;
		loop_task_add(l, &s->next_task);
	} else if (j->begun && !e) {
		err_set(&j->err, ERR_CONFLICT, "the sandbox was destroyed meanwhile");
	}
	j->task = (struct loop_task){.call = finish_job, .arg = j};
	loop_task_add(l, &j->task);
}

static void on_job_audited(void *arg, const struct err *e)
{
	struct job *j = arg;
	const struct job_rule *rule = &job_rules[j->kind];
	struct err refused;

	if (!job_is_current(j)) {
		job_end(j, NULL);
		return;
	}
	if (e && !rule->audit_must_work)
		manager_log(j->s->m, "sandbox %s: %s, with no record of it in the audit log: %s",
			    j->s->id, rule->verb, e->msg);
	if (e && rule->audit_must_work) {
		audit_refused(j->s->m, e, &refused);
		if (j->kind == JOB_CREATE) {
			j->s->refused = true;
			sandbox_end(j->s, STATE_FAILED, BY_BROKER, refused.msg);
		}
		job_end(j, &refused);
		return;
	}
	rule->begin(j);
}

static void begin_job(struct job *j)
{
	const struct job_rule *rule = &job_rules[j->kind];
	struct sandbox *s = j->s;

	s->current = j;
	j->begun = true;
	if (!rule->audit || !s->m->p.audit || s->pooled)
		rule->begin(j);
	else if (j->by == BY_CLIENT)
		audit_decision(s, j->is_own ? NULL : &j->who, rule->audit,
			       j->kind == JOB_WAKE ? "auto_resume" : "", on_job_audited, j);
	else
		audit_decision(s, NULL, rule->audit, s->reason, on_job_audited, j);
}

static void try_begin_job(struct job *j)
{
	const struct job_rule *rule = &job_rules[j->kind];
	struct sandbox *s = j->s;
	struct err e;

	if (rule->done_in & IN(s->state)) {
		job_end(j, NULL);
	} else if (!(rule->from & IN(s->state))) {
		err_set(&e, ERR_CONFLICT, "cannot %s the sandbox: it is %s%s%s", rule->verb,
			state_name(s->state), s->reason[0] ? ": " : "", s->reason);
		job_end(j, &e);
	} else if (j->by == BY_CLIENT && provider_check(s->o.spec.provider, rule->can, &e) < 0) {
		job_end(j, &e);
	} else if (j->kind == JOB_WAKE && !s->o.auto_resume) {
		err_set(&e, ERR_CONFLICT, "the sandbox is paused; resume it first");
		job_end(j, &e);
	} else {
		begin_job(j);
	}
}

void sandbox_run_queue(void *arg)
{
	struct sandbox *s = arg;

	sandbox_hold(s);
	if (!s->current && !s->link &&
	    (s->state == STATE_RUNNING || (s->state == STATE_UNREACHABLE && !s->reach.place)))
		begin_job(job_new(s, JOB_CONNECT, BY_GUEST));
	while (!s->current && s->queue) {
		struct job *j = s->queue;

		s->queue = j->next;
		if (!s->queue)
			s->queue_end = &s->queue;
		j->next = NULL;
		try_begin_job(j);
	}
	sandbox_release(s);
}

void job_submit(struct job *j)
{
	struct sandbox *s = j->s;
	bool jumps = j->kind == JOB_DESTROY && !(s->current && s->current->kind == JOB_DESTROY);
	bool is_awake = j->kind == JOB_WAKE && s->state == STATE_RUNNING && s->current &&
			s->current->kind == JOB_SNAPSHOT;

	/* It runs while its snapshot waits for a turn; calls wait by themselves while it is copied. */
	if (is_awake) {
		job_end(j, NULL);
		return;
	}
	if (!s->current || jumps) {
		try_begin_job(j);
		return;
	}
	*s->queue_end = j;
	s->queue_end = &j->next;
}

void job_submit_new(struct sandbox *s, enum job_kind kind, const struct caller *who,
		    sandbox_done done, void *arg)
{
	struct job *j = job_new_for(s, kind, who);

	j->done = done;
	j->arg = arg;
	job_submit(j);
}

/* ---- steps of a job ---- */

static void take_step(struct job *j, const struct err *e)
{
	job_step step = take_ptr(j->step);

	if (job_is_current(j))
		step(j, e);
	else
		job_end(j, NULL);
}

static void on_broker_reply(void *arg, const struct ipc *reply, int fd)
{
	struct job *j = arg;
	struct err e = reply->err;

	if (!e.kind && reply->type == IPC_BOOTED && fd < 0)
		err_set(&e, ERR_SYSTEM, "the broker gave no link");
	j->reply = reply;
	j->fd = fd;
	take_step(j, e.kind ? &e : NULL);
	/* The job is still there: jobs are freed from the loop only. */
	j->reply = NULL;
	close_fd(&j->fd);
}

void job_ask_with(struct job *j, const struct ipc *m, int fd, job_step step)
{
	j->step = step;
	broker_ask(j->s->m->p.broker, m, fd, on_broker_reply, j);
}

void job_ask(struct job *j, const struct ipc *m, job_step step)
{
	job_ask_with(j, m, -1, step);
}

void job_ask_for(struct job *j, uint32_t type, job_step step)
{
	j->step = step;
	broker_ask_id(j->s->m->p.broker, type, j->s->id, on_broker_reply, j);
}

static void on_retry_timer(void *arg)
{
	struct job *j = arg;

	if (job_is_current(j))
		j->again(j);
	else
		job_end(j, NULL);
}

void job_retry(struct job *j, uint64_t after_ms, void (*again)(struct job *j))
{
	j->again = again;
	j->timer = (struct loop_timer){.call = on_retry_timer, .arg = j};
	loop_timer_set(j->s->m->p.loop, &j->timer, after_ms);
}

static void on_guest_configured(void *arg, const struct err *e)
{
	take_step(arg, e);
}

void job_configure(struct job *j, uint64_t ttl_ms, job_step step)
{
	static const struct call_ops ops = {.on_end = on_guest_configured};

	j->step = step;
	sandbox_configure(j->s, ttl_ms, &ops, j);
}

/* ---- settings, to be put back if a job fails ---- */

static void keep_settings(struct job *j)
{
	const struct sandbox *s = j->s;

	j->old = (struct settings){.limits = s->o.spec.limits,
				   .ttl_ms = s->o.ttl_ms,
				   .idle_ms = s->o.idle_ms,
				   .expires_ms = s->expires_ms,
				   .metadata = json_incref(s->o.metadata)};
}

static void put_settings_back(struct job *j)
{
	struct sandbox *s = j->s;

	s->o.spec.limits = j->old.limits;
	quota_recount(s);
	s->o.ttl_ms = j->old.ttl_ms;
	s->o.idle_ms = j->old.idle_ms;
	s->expires_ms = j->old.expires_ms;
	json_decref(s->o.metadata);
	s->o.metadata = json_incref(j->old.metadata);
}

static bool runs_its_clock(const struct sandbox *s)
{
	return s->state != STATE_PAUSED || !sandbox_pause_stops_clock(s);
}

static uint64_t expiry_after(uint64_t ttl_ms)
{
	return ttl_ms ? unix_ms() + ttl_ms : 0;
}

/* ---- pause and resume ---- */

static void on_paused(struct job *j, const struct err *e)
{
	struct sandbox *s = j->s;

	if (!e) {
		sandbox_move(s, STATE_PAUSED, j->by == BY_TIMER ? BY_TIMER : BY_CLIENT);
	} else {
		link_suspend(s->link, false);
		sandbox_save_back(s);
	}
	if (e && j->ends)
		sandbox_end(s, STATE_DESTROYED, BY_TIMER,
			    "its time was over, and it cannot be paused here");
	job_end(j, e);
}

/* The guest has dropped its TTL, so it can be frozen for any time. */
static void freeze_sandbox(struct job *j, const struct err *e)
{
	if (e) {
		sandbox_save_back(j->s);
		job_end(j, e);
		return;
	}
	link_suspend(j->s->link, true);
	job_ask_for(j, IPC_PAUSE, on_paused);
}

static void pause_begin(struct job *j)
{
	struct sandbox *s = j->s;
	struct err e;

	if (sandbox_save_as(s, STATE_PAUSED, &e) < 0) {
		if (j->by == BY_CLIENT) {
			job_end(j, &e);
			return;
		}
		/* The broker's record says that it is paused; and its files must not end with its time. */
		manager_log(s->m, "sandbox %s: %s", s->id, e.msg);
	}
	if (!sandbox_pause_stops_clock(s) || !s->expires_ms || !s->link)
		freeze_sandbox(j, NULL);
	else
		job_configure(j, 0, freeze_sandbox);
}

static void on_resumed(struct job *j, const struct err *e)
{
	struct sandbox *s = j->s;

	if (e) {
		put_settings_back(j);
		sandbox_save_back(s);
		job_end(j, e);
		return;
	}
	sandbox_move(s, STATE_RUNNING, BY_CLIENT);
	link_suspend(s->link, false);
	if (sandbox_pause_stops_clock(s))
		sandbox_set_ttl(s, s->o.ttl_ms);
	sandbox_used(s);
	if (s->link)
		job_configure(j, sandbox_ttl_left_ms(s), job_end);
	else
		job_end(j, NULL);
}

static void resume_begin(struct job *j)
{
	struct sandbox *s = j->s;
	struct err e;

	keep_settings(j);
	if (sandbox_pause_stops_clock(s))
		s->expires_ms = expiry_after(s->o.ttl_ms);
	if (sandbox_save_as(s, STATE_RUNNING, &e) < 0) {
		put_settings_back(j);
		job_end(j, &e);
		return;
	}
	job_ask_for(j, IPC_RESUME, on_resumed);
}

void sandbox_wake(struct sandbox *s, const struct caller *who, sandbox_done done, void *arg)
{
	sandbox_used(s);
	job_submit_new(s, JOB_WAKE, who, done, arg);
}

void sandbox_pause(struct sandbox *s, const struct caller *who, sandbox_done done, void *arg)
{
	job_submit_new(s, JOB_PAUSE, who, done, arg);
}

void sandbox_resume(struct sandbox *s, const struct caller *who, sandbox_done done, void *arg)
{
	job_submit_new(s, JOB_RESUME, who, done, arg);
}

void sandbox_stop(struct sandbox *s, const struct caller *who, sandbox_done done, void *arg)
{
	job_submit_new(s, JOB_STOP, who, done, arg);
}

void sandbox_start(struct sandbox *s, const struct caller *who, sandbox_done done, void *arg)
{
	job_submit_new(s, JOB_START, who, done, arg);
}

/* ---- change ---- */

/* The broker has set the new limits, if there were any; the row has the new settings. */
static void change_rest(struct job *j, const struct err *refused)
{
	struct sandbox *s = j->s;
	const struct sandbox_change *c = &j->change;

	if (refused) {
		put_settings_back(j);
		sandbox_save_back(s);
		job_end(j, refused);
		return;
	}
	if (c->has_limits)
		s->booted.limits = c->limits;
	if (c->has_ttl && runs_its_clock(s))
		sandbox_set_ttl(s, c->ttl_ms);
	sandbox_used(s);
	if (s->state == STATE_RUNNING && s->link && (c->has_ttl || c->has_limits))
		job_configure(j, sandbox_ttl_left_ms(s), job_end);
	else
		job_end(j, NULL);
}

static int save_change(struct job *j, struct err *e)
{
	struct sandbox *s = j->s;
	const struct sandbox_change *c = &j->change;

	keep_settings(j);
	if (c->has_limits)
		s->o.spec.limits = c->limits;
	quota_recount(s);
	if (c->has_idle)
		s->o.idle_ms = c->idle_ms;
	if (c->has_ttl) {
		s->o.ttl_ms = c->ttl_ms;
		if (runs_its_clock(s))
			s->expires_ms = expiry_after(c->ttl_ms);
	}
	if (c->has_metadata) {
		json_decref(s->o.metadata);
		s->o.metadata = json_deep_copy(c->metadata);
	}
	if (sandbox_save(s, e) == 0)
		return 0;
	put_settings_back(j);
	return -1;
}

static void change_begin(struct job *j)
{
	struct sandbox *s = j->s;
	struct ipc m = {.type = IPC_UPDATE};
	bool asks = j->change.has_limits && s->state != STATE_STOPPED;
	struct err e;

	if ((asks && (provider_check(s->o.spec.provider, CAN_UPDATE, &e) < 0 ||
		      limits_check(s->m, &j->who, &j->change.limits, &e) < 0)) ||
	    (j->change.has_limits && quota_check_change(s, &j->who, &j->change.limits, &e) < 0) ||
	    save_change(j, &e) < 0) {
		job_end(j, &e);
		return;
	}
	if (!asks) {
		change_rest(j, NULL);
		return;
	}
	fill_boot(s, &m.boot);
	job_ask(j, &m, change_rest);
}

void sandbox_change(struct sandbox *s, const struct caller *who, const struct sandbox_change *c,
		    sandbox_done done, void *arg)
{
	struct job *j;
	struct err e;

	if (manager_times_check(s->m, c->has_ttl ? &c->ttl_ms : NULL,
				c->has_idle ? &c->idle_ms : NULL, &e) < 0) {
		answer_later(s->m, done, arg, &e);
		return;
	}
	j = job_new_for(s, JOB_CHANGE, who);
	j->done = done;
	j->arg = arg;
	j->change = *c;
	j->change.metadata = c->has_metadata ? json_incref(c->metadata) : NULL;
	job_submit(j);
}
