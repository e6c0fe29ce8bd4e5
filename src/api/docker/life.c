/* What happens to containers: start, stop, signals, waiting for the end, removal. */
#include "api/docker/docker_internal.h"

#include <strings.h>

#define STOP_S 10

int signal_read(const char *name, int dflt, int *ret, struct err *e)
{
	struct err inner;
	uint64_t n = 0;

	*ret = dflt;
	if (!name || !*name)
		return 0;
	if (strncasecmp(name, "SIG", 3) == 0)
		name += 3;
	for (int sig = 1; sig < 32; sig++)
		if (sigabbrev_np(sig) && strcasecmp(name, sigabbrev_np(sig)) == 0)
			n = (uint64_t)sig;
	if (!n && (parse_count(name, &n, &inner) < 0 || n < 1 || n > 64))
		return err_field(e, ERR_INVALID, "signal", "Invalid signal: %.40s", name);
	*ret = (int)n;
	return 0;
}

/* ---- waiting for the end ---- */

struct box_waiting {
	struct box_waiting *next;
	struct exchange *x; /* answered with the exit code; or: */
	void (*call)(void *arg);
	void *arg;
	struct container *c; /* NULL: it was called */
	bool for_removal;
};

static void unlist_waiting(struct box_waiting *w)
{
	struct box_waiting **at = w->c ? &w->c->waiting : NULL;

	while (at && *at && *at != w)
		at = &(*at)->next;
	if (at && *at)
		*at = w->next;
	w->c = NULL;
}

static void waiting_done(void *data)
{
	unlist_waiting(data);
}

/* Its memory is the exchange's. */
static struct box_waiting *waiting_new(struct exchange *x)
{
	struct box_waiting *w = must_alloc(calloc(1, sizeof(*w)));

	w->x = x;
	exchange_also_free(x, w, waiting_done);
	return w;
}

static void waiting_add(struct box_waiting *w, struct container *c)
{
	w->c = c;
	w->next = c->waiting;
	c->waiting = w;
}

static void answer_wait(struct exchange *x, const struct container *c)
{
	char text[64];
	int len = snprintf(text, sizeof(text), "{\"StatusCode\":%d}\n", c->code);

	exchange_write(x, text, (size_t)len);
	exchange_finish(x);
}

void waiting_end(struct container *c, bool removed)
{
	struct box_waiting *w, *later = NULL;

	while ((w = c->waiting)) {
		c->waiting = w->next;
		if (w->for_removal && !removed) {
			w->next = later;
			later = w;
			continue;
		}
		w->c = NULL;
		if (w->call)
			w->call(w->arg);
		else
			answer_wait(w->x, c);
	}
	c->waiting = later;
}

static void on_wait_gone(void *arg)
{
	struct box_waiting *w = arg;

	unlist_waiting(w);
	exchange_answer_gone(w->x);
}

void docker_wait(struct exchange *x)
{
	const char *until = exchange_arg(x, "condition");
	struct container *c = docker_of(x)->c;
	struct box_waiting *w;

	if (until && *until && !str_equal(until, "not-running") && !str_equal(until, "next-exit") &&
	    !str_equal(until, "removed")) {
		docker_fail(x, 400, "invalid condition: \"%.40s\"", until);
		return;
	}
	/* The head goes out at once: clients start the container when they have it. */
	exchange_set_endless(x);
	exchange_stream(x, 200, "application/json", EXCHANGE_UNKNOWN_LENGTH);
	if ((!until || !*until || str_equal(until, "not-running")) && !container_is_running(c) &&
	    c->state != BOX_STARTING) {
		answer_wait(x, c);
		return;
	}
	w = waiting_new(x);
	w->for_removal = until && str_equal(until, "removed");
	waiting_add(w, c);
	exchange_on_gone(x, on_wait_gone, w);
}

/* ---- starting ---- */

static void on_started(void *arg, const struct err *e)
{
	struct exchange *x = arg;

	if (e)
		exchange_error(x, e);
	else
		docker_empty(x, 204);
}

static void start_awake(struct exchange *x, struct sandbox *s)
{
	struct container *c = docker_of(x)->c;

	if (c->is_gone || c->removing)
		docker_fail(x, 409, "container is marked for removal and cannot be started");
	else if (container_is_running(c) || c->state == BOX_STARTING)
		docker_empty(x, 304);
	else
		run_start_main(c, &x->caller, on_started, x);
}

void docker_start(struct exchange *x)
{
	struct container *c = docker_of(x)->c;

	if (container_is_paused(c))
		docker_fail(x, 409, "cannot start a paused container, try unpause instead");
	else if (container_is_running(c) || c->state == BOX_STARTING)
		docker_empty(x, 304);
	else
		container_awake(x, start_awake);
}

/* ---- stopping ---- */

struct thawing {
	struct exchange *x;
	docker_handler *then;
};

static void on_thawed(void *arg, struct sandbox *s, const struct err *e)
{
	struct thawing t = *(struct thawing *)arg;

	free(arg);
	if (s)
		t.then(t.x);
	else
		exchange_error(t.x, e);
}

/* What is frozen takes no signal: first it goes on, then the handler is called again. */
static void thaw(struct exchange *x, docker_handler *then)
{
	struct thawing *t = must_alloc(calloc(1, sizeof(*t)));

	*t = (struct thawing){x, then};
	sandbox_resume(docker_of(x)->c->s, &x->caller, on_thawed, t);
}

struct stopping {
	struct exchange *x;
	struct container *c; /* the request holds it */
	struct loop_timer kill;
	void (*then)(struct exchange *x);
};

static void ignore_answer(void *arg, json_t *value, const struct err *e)
{
	json_decref(value);
}

static void on_kill_timer(void *arg)
{
	struct stopping *st = arg;
	const struct box_run *r = container_run(st->c);

	if (container_is_running(st->c) && r)
		sandbox_signal(st->c->s, r->eid, SIGKILL, true, ignore_answer, NULL);
}

static void stopping_done(void *data)
{
	struct stopping *st = data;

	loop_timer_stop(st->x->api->loop, &st->kill);
}

static void on_stopped(void *arg)
{
	struct stopping *st = arg;

	loop_timer_stop(st->x->api->loop, &st->kill);
	st->then(st->x);
}

/* Sends the signal that the container wants for its end, and SIGKILL when its time is over. */
static void stop_box(struct exchange *x, void (*then)(struct exchange *x))
{
	struct container *c = docker_of(x)->c;
	const json_t *config = container_config(c);
	json_int_t own = json_integer_value(json_object_get(config, "StopTimeout"));
	const char *after = exchange_arg(x, "t"), *name = exchange_arg(x, "signal");
	struct stopping *st;
	struct box_waiting *w;
	struct err e = {0};
	uint64_t seconds = own > 0 ? (uint64_t)own : STOP_S;
	int sig;

	if (signal_read(name && *name ? name : body_text(config, "StopSignal"), SIGTERM, &sig, &e) <
		    0 ||
	    (after && after[0] != '-' && *after &&
	     exchange_arg_uint(x, "t", seconds, 86400, &seconds, &e) < 0)) {
		exchange_error(x, &e);
		return;
	}
	st = must_alloc(calloc(1, sizeof(*st)));
	*st = (struct stopping){.x = x, .c = c, .then = then};
	st->kill = (struct loop_timer){.call = on_kill_timer, .arg = st};
	exchange_also_free(x, st, stopping_done);
	w = waiting_new(x);
	w->call = on_stopped;
	w->arg = st;
	waiting_add(w, c);
	c->stopping = true;
	sandbox_signal(c->s, container_run(c)->eid, seconds ? sig : SIGKILL, !seconds,
		       ignore_answer, NULL);
	/* -1: for as long as it takes. */
	if (seconds && !(after && after[0] == '-'))
		loop_timer_set(x->api->loop, &st->kill, seconds * 1000);
}

static void answer_stopped(struct exchange *x)
{
	docker_empty(x, 204);
}

void docker_stop(struct exchange *x)
{
	struct container *c = docker_of(x)->c;

	c->stopping = true;
	loop_timer_stop(x->api->loop, &c->again);
	if (container_is_paused(c))
		thaw(x, docker_stop);
	else if (!container_is_running(c))
		docker_empty(x, 304);
	else
		stop_box(x, answer_stopped);
}

static void start_anew(struct exchange *x)
{
	if (docker_of(x)->c->is_gone)
		docker_fail(x, 404, "No such container: %s", docker_of(x)->c->id);
	else
		container_awake(x, start_awake);
}

void docker_restart(struct exchange *x)
{
	struct container *c = docker_of(x)->c;

	if (container_is_paused(c))
		thaw(x, docker_restart);
	else if (container_is_running(c))
		stop_box(x, start_anew);
	else
		container_awake(x, start_awake);
}

static void answer_signalled(void *arg, json_t *value, const struct err *e)
{
	json_decref(value);
	if (e && e->kind != ERR_NONE)
		exchange_error(arg, e);
	else
		docker_empty(arg, 204);
}

void docker_kill(struct exchange *x)
{
	struct container *c = docker_of(x)->c;
	struct err e = {0};
	char number[16];
	int sig;

	if (signal_read(exchange_arg(x, "signal"), SIGKILL, &sig, &e) < 0) {
		exchange_error(x, &e);
	} else if (!container_is_running(c)) {
		docker_fail(x, 409, "cannot kill container: %s: container %s is not running",
			    c->name, c->id);
	} else if (container_is_paused(c)) {
		thaw(x, docker_kill);
	} else {
		c->stopping = c->stopping || sig == SIGKILL;
		snprintf(number, sizeof(number), "%d", sig);
		docker_event(c, "kill", "signal", number);
		sandbox_signal(c->s, container_run(c)->eid, sig, sig == SIGKILL, answer_signalled,
			       x);
	}
}

/* ---- freezing ---- */

static void on_state_changed(void *arg, struct sandbox *s, const struct err *e)
{
	const char *action = docker_of(arg)->word;

	if (s && action)
		docker_event(docker_of(arg)->c, action, NULL, NULL);
	if (s)
		docker_empty(arg, 204);
	else
		exchange_error(arg, e);
}

void docker_pause(struct exchange *x)
{
	struct container *c = docker_of(x)->c;

	if (container_is_paused(c))
		docker_fail(x, 409, "Container %s is already paused", c->id);
	else if (container_needs_running(x, c)) {
		docker_of(x)->word = "pause";
		sandbox_pause(c->s, &x->caller, on_state_changed, x);
	}
}

void docker_unpause(struct exchange *x)
{
	struct container *c = docker_of(x)->c;

	docker_of(x)->word = "unpause";
	if (container_is_paused(c))
		sandbox_resume(c->s, &x->caller, on_state_changed, x);
	else
		docker_fail(x, 409, "Container %s is not paused", c->id);
}

void docker_resize(struct exchange *x)
{
	struct container *c = docker_of(x)->c;
	struct err e = {0};
	uint64_t rows, cols;

	if (exchange_arg_uint(x, "h", 0, 10000, &rows, &e) < 0 ||
	    exchange_arg_uint(x, "w", 0, 10000, &cols, &e) < 0)
		exchange_error(x, &e);
	else if (container_needs_running(x, c))
		sandbox_resize(c->s, container_run(c)->eid, (uint32_t)rows, (uint32_t)cols,
			       answer_signalled, x);
}

/* ---- names, removal ---- */

void docker_rename(struct exchange *x)
{
	struct container *c = docker_of(x)->c;
	const char *name = exchange_arg(x, "name");
	char old[DOCKER_NAME];
	struct err e = {0};

	name = name && name[0] == '/' ? name + 1 : name;
	if (container_check_name(x, name ? name : "", &e) < 0) {
		exchange_error(x, &e);
		return;
	}
	snprintf(old, sizeof(old), "%s", c->name);
	snprintf(c->name, sizeof(c->name), "%s", name);
	if (container_save(c, &e) == 0) {
		docker_event(c, "rename", "oldName", old);
		docker_empty(x, 204);
		return;
	}
	snprintf(c->name, sizeof(c->name), "%s", old);
	exchange_error(x, &e);
}

static const struct body_table update_table = BODY_TABLE(
	BODY_ALONE, FIELD("CpuPeriod", BODY_INTEGER, "microseconds"),
	FIELD("CpuQuota", BODY_INTEGER, "microseconds"), FIELD("Memory", BODY_INTEGER, "bytes"),
	FIELD("NanoCpus", BODY_INTEGER, "processors"),
	FIELD("PidsLimit", BODY_INTEGER, "processes"));

static void on_updated(void *arg, struct sandbox *s, const struct err *e)
{
	if (s)
		exchange_json(arg, 200, json_pack("{s:n}", "Warnings"));
	else
		exchange_error(arg, e);
}

void docker_update(struct exchange *x)
{
	struct container *c = docker_of(x)->c;
	struct sandbox_change change = {.has_limits = true};
	struct sandbox_spec spec;
	struct err e = {0};
	json_t *in = docker_body(x->json, &update_table, &e);

	spec_init(&spec);
	spec.limits = sandbox_spec(c->s)->limits;
	if (docker_is_set(json_object_get(json_object_get(x->json, "RestartPolicy"), "Name")))
		docker_fail(x, 501, "RestartPolicy: is chosen when a container is made");
	else if (!in || limits_read(in, &spec, &e) < 0)
		exchange_error(x, &e);
	else {
		spec.disk_type = sandbox_spec(c->s)->disk_type;
		spec_fit_disk(&spec);
		change.limits = spec.limits;
		sandbox_change(c->s, &x->caller, &change, on_updated, x);
	}
	spec_done(&spec);
	json_decref(in);
}

static void on_removed(void *arg, struct sandbox *s, const struct err *e)
{
	docker_of(arg)->c->removing = s != NULL;
	on_state_changed(arg, s, e);
}

void docker_remove(struct exchange *x)
{
	struct container *c = docker_of(x)->c;

	if (docker_flag(x, "link", false)) {
		docker_fail(x, 400, "links are not offered; name a network instead");
	} else if (container_is_running(c) && !docker_flag(x, "force", false)) {
		docker_fail(x, 409,
			    "cannot remove container \"/%s\": container is %s: stop the container "
			    "before removing or force remove",
			    c->name, container_state_name(c));
	} else {
		c->removing = true;
		sandbox_destroy(c->s, &x->caller, on_removed, x);
	}
}
