/* States of a sandbox: start, stop, pause, resume, waiting for a state; statistics and events. */
#include "api/rest/rest.h"

#include "auth/shares.h"

const struct body_table v1_empty_table = {NULL, 0, BODY_ALONE};

/* ---- verbs ---- */

/* The last word of the path says what to do. */
void v1_change_state(struct exchange *x)
{
	static const struct {
		const char *verb;
		void (*call)(struct sandbox *s, const struct caller *who, sandbox_done done,
			     void *arg);
	} verbs[] = {
		{"/start", sandbox_start},
		{"/stop", sandbox_stop},
		{"/pause", sandbox_pause},
		{"/resume", sandbox_resume},
	};

	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		if (str_equal(strrchr(x->route->pattern, '/'), verbs[i].verb))
			verbs[i].call(x->sandbox, &x->caller, v1_answer_sandbox, x);
}

static void on_stopped(void *arg, struct sandbox *s, const struct err *e)
{
	struct exchange *x = arg;

	if (s)
		sandbox_start(s, &x->caller, v1_answer_sandbox, x);
	else
		exchange_error(arg, e);
}

void v1_restart(struct exchange *x)
{
	if (sandbox_state(x->sandbox) == STATE_STOPPED)
		sandbox_start(x->sandbox, &x->caller, v1_answer_sandbox, x);
	else
		sandbox_stop(x->sandbox, &x->caller, on_stopped, x);
}

/* ---- waiting ---- */

struct state_wait {
	struct exchange *x;
	struct sandbox *s; /* held */
	struct waiter *waiter;
	struct loop_timer timer;
	const char *state; /* NULL: any in which it does not run */
};

static void waiting_done(void *data)
{
	struct state_wait *w = data;

	loop_timer_stop(w->x->api->loop, &w->timer);
	sandbox_unwait(w->waiter);
	sandbox_release(w->s);
}

static bool is_there(const struct state_wait *w)
{
	enum sandbox_state is = sandbox_state(w->s);

	if (is == STATE_DESTROYED || is == STATE_FAILED)
		return true;
	if (w->state)
		return str_equal(w->state, state_name(is));
	return is == STATE_STOPPED || is == STATE_PAUSED;
}

static void answer_waiting(void *arg)
{
	struct state_wait *w = arg;
	json_t *o = sandbox_describe(w->s);

	loop_timer_stop(w->x->api->loop, &w->timer);
	sandbox_unwait(take_ptr(w->waiter));
	exchange_json(w->x, 200, o);
}

static void on_wanted_state(void *arg, struct sandbox *s)
{
	struct state_wait *w = arg;

	if (is_there(w))
		answer_waiting(w);
}

static bool is_state(const char *name)
{
	for (int i = 0; i < STATE_COUNT; i++)
		if (str_equal(name, state_name((enum sandbox_state)i)))
			return true;
	return false;
}

void v1_wait(struct exchange *x)
{
	struct state_wait *w;
	struct err e = {0};
	uint64_t most_ms;

	if (exchange_arg_time(x, "timeout", 30000, 3600000, &most_ms, &e) < 0) {
		exchange_error(x, &e);
		return;
	}
	if (exchange_arg(x, "state") && !is_state(exchange_arg(x, "state"))) {
		exchange_refuse(x, "state", "'%.40s' is none", exchange_arg(x, "state"));
		return;
	}
	w = exchange_attach(x, sizeof(*w), waiting_done);
	w->x = x;
	w->s = sandbox_hold(x->sandbox);
	w->state = exchange_arg(x, "state");
	w->timer = (struct loop_timer){.call = answer_waiting, .arg = w};
	if (is_there(w) || !most_ms) {
		answer_waiting(w);
		return;
	}
	w->waiter = sandbox_wait(x->sandbox, on_wanted_state, w);
	loop_timer_set(x->api->loop, &w->timer, most_ms);
	exchange_on_gone(x, answer_waiting, w);
}

/* ---- looking ---- */

void v1_stats(struct exchange *x)
{
	sandbox_stats(x->sandbox, v1_answer_json, x);
}

struct totals {
	const struct caller *who;
	json_t *all;
};

/* One row: what the tenant holds of everything that tenants share. */
static void add_totals(void *arg, const char *tenant, const struct budget *budgets)
{
	const struct totals *t = arg;
	json_t *row;
	uint64_t sum = 0;

	for (int i = 0; i < SHARE_COUNT; i++)
		sum += budgets[i].used;
	if (!str_equal(tenant, t->who->token) && (!caller_sees_all(t->who) || !sum))
		return;
	row = json_pack("{s:s}", "tenant", *tenant ? tenant : "operator");
	for (int i = 0; i < SHARE_COUNT; i++)
		json_object_set_new(row, share_name((enum share)i),
				    json_integer((json_int_t)budgets[i].used));
	json_array_append_new(t->all, row);
}

static void answer_all_stats(void *arg, json_t *value, const struct err *e)
{
	struct exchange *x = arg;
	struct totals t = {&x->caller, NULL};

	if (value) {
		t.all = json_array();
		shares_each(manager_shares(x->api->manager), add_totals, &t);
		json_object_set_new(value, "tenants", t.all);
	}
	v1_answer_json(x, value, e);
}

void v1_all_stats(struct exchange *x)
{
	manager_stats(x->api->manager, &x->caller, answer_all_stats, x);
}

void v1_health(struct exchange *x)
{
	sandbox_health(x->sandbox, v1_answer_json, x);
}

/* ---- events ---- */

struct event_watch {
	struct sse sse;
	struct subscription *subscription;
	const char *sandbox; /* only of this one, or NULL */
	bool over;
};

static void watching_done(void *data)
{
	struct event_watch *w = data;

	manager_unsubscribe(w->subscription);
	sse_close(&w->sse);
}

static void on_watcher_gone(void *arg)
{
	struct event_watch *w = arg;

	manager_unsubscribe(take_ptr(w->subscription));
	exchange_finish(w->sse.x);
}

static void on_event(void *arg, const json_t *event)
{
	struct event_watch *w = arg;
	const char *type = body_text(event, "type");
	const char *of = body_text(event, "sandbox");

	if (w->over || (w->sandbox && (!of || !str_equal(of, w->sandbox))))
		return;
	/* A client that does not read is disconnected; it can come back with from=SEQ. */
	if (!exchange_room(w->sse.x)) {
		w->over = true;
		exchange_abort(w->sse.x);
		return;
	}
	sse_send(&w->sse, type ? type : "event", json_incref((json_t *)event));
}

void v1_events(struct exchange *x)
{
	const char *epoch = exchange_arg(x, "epoch");
	struct event_watch *w;
	uint64_t from;

	if (!v1_arg_uint(x, "from", 0, INT64_MAX, &from))
		return;
	/* The caller counts by numbers that are gone: it has seen none of these. */
	if (epoch && !str_equal(epoch, manager_epoch(x->api->manager)))
		from = 1;
	exchange_set_header(x, "Cloche-Epoch", manager_epoch(x->api->manager));
	w = exchange_attach(x, sizeof(*w), watching_done);
	w->sandbox = exchange_arg(x, "sandbox");
	exchange_set_endless(x);
	sse_open(&w->sse, x);
	exchange_write(x, ": \n\n", 4);
	exchange_on_gone(x, on_watcher_gone, w);
	w->subscription = manager_subscribe(x->api->manager, &x->caller, from, on_event, w);
}
