/* Containers: the tables of their owners, their states, and the record that outlives the front. */
#include "api/docker/docker_internal.h"

#define RECORD_MAX (256u << 10)

/* Who has containers; kept until the front ends, so that its number is bounded by that of tokens. */
struct tenant {
	struct tenant *next;
	char owner[IPC_ID];
	struct container *first; /* the newest */
	struct docker_network *networks;
	struct docker_events *events;
};

struct docker_state {
	struct tenant *tenants;
};

static struct docker_state *state_of(struct api *api)
{
	if (!api->door_state[DOOR_DOCKER])
		api->door_state[DOOR_DOCKER] = must_alloc(calloc(1, sizeof(struct docker_state)));
	return api->door_state[DOOR_DOCKER];
}

static struct tenant *tenant_of(struct api *api, const char *owner, bool make)
{
	struct docker_state *st = state_of(api);
	struct tenant *t = st->tenants;

	while (t && !str_equal(t->owner, owner))
		t = t->next;
	if (t || !make)
		return t;
	t = must_alloc(calloc(1, sizeof(*t)));
	snprintf(t->owner, sizeof(t->owner), "%s", owner);
	t->events = docker_events_new();
	t->next = st->tenants;
	return st->tenants = t;
}

struct docker_network **exchange_networks(const struct exchange *x)
{
	return &tenant_of(x->api, x->caller.token, true)->networks;
}

struct docker_events *exchange_events(const struct exchange *x)
{
	return tenant_of(x->api, x->caller.token, true)->events;
}

struct docker_events *container_events(const struct container *c)
{
	return c->tenant->events;
}

/* ---- finding ---- */

struct container *container_first(const struct exchange *x)
{
	const struct tenant *t = tenant_of(x->api, x->caller.token, false);

	return t ? t->first : NULL;
}

static struct container *find_name(const struct exchange *x, const char *name)
{
	struct container *c = container_first(x);

	while (c && !str_equal(c->name, name))
		c = c->next;
	return c;
}

struct container *container_find(const struct exchange *x, const char *what, struct err *e)
{
	size_t len = strlen(what), matches = 0;
	struct container *found;

	what += what[0] == '/';
	found = find_name(x, what);
	for (struct container *c = container_first(x); c && !found && len; c = c->next)
		if (str_equal(c->id, what))
			found = c;
	if (found && found->s)
		return found;
	for (struct container *c = container_first(x); c && len; c = c->next)
		if (c->s && str_starts(c->id, what)) {
			found = c;
			matches++;
		}
	if (matches == 1)
		return found;
	if (matches)
		err_set(e, ERR_INVALID, "multiple IDs found with provided prefix: %.80s", what);
	else
		err_set(e, ERR_NOT_FOUND, "No such container: %.120s", what);
	return NULL;
}

int container_check_name(const struct exchange *x, const char *name, struct err *e)
{
	const struct container *other = find_name(x, name);

	if (!str_only(name, STR_ALNUM "_.-", 2, DOCKER_NAME - 1) || !strchr(STR_ALNUM, name[0]))
		return err_field(e, ERR_INVALID, "name",
				 "Invalid container name (%.60s), only [a-zA-Z0-9][a-zA-Z0-9_.-] "
				 "are allowed",
				 name);
	if (!other)
		return 0;
	return err_field(e, ERR_CONFLICT, "name",
			 "Conflict. The container name \"/%.60s\" is already in use by container "
			 "\"%s\". You have to remove (or rename) that container to be able to "
			 "reuse that name.",
			 name, other->id);
}

/* ---- life ---- */

struct container *container_hold(struct container *c)
{
	c->holds++;
	return c;
}

void container_release(struct container *c)
{
	if (--c->holds)
		return;
	for (size_t i = 0; i < c->run_count; i++)
		free(c->runs[i].stamps);
	if (c->s)
		sandbox_release(c->s);
	json_decref(c->record);
	free(c);
}

static struct container *add_container(struct api *api, const char *owner)
{
	struct container *c = must_alloc(calloc(1, sizeof(*c)));

	c->api = api;
	c->tenant = tenant_of(api, owner, true);
	c->next = c->tenant->first;
	c->tenant->first = c;
	c->record = json_object();
	return container_hold(c);
}

struct container *container_new(struct exchange *x, const char *name, struct err *e)
{
	char id[DOCKER_ID], made[DOCKER_NAME];
	struct container *c;

	docker_id_make(id);
	if (name)
		name += name[0] == '/';
	snprintf(made, sizeof(made), "cloche_%.10s", id);
	if (container_check_name(x, name && *name ? name : made, e) < 0)
		return NULL;
	c = add_container(x->api, x->caller.token);
	snprintf(c->id, sizeof(c->id), "%s", id);
	snprintf(c->name, sizeof(c->name), "%s", name && *name ? name : made);
	c->created_ns = docker_now_ns();
	return c;
}

void container_end(struct container *c)
{
	struct container **at = &c->tenant->first;

	if (c->is_gone)
		return;
	c->is_gone = true;
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	sandbox_unwait(take_ptr(c->waiter));
	loop_timer_stop(c->api->loop, &c->again);
	run_lost(c, 128 + SIGKILL);
	docker_event(c, "destroy", NULL, NULL);
	waiting_end(c, true);
	attached_end(c);
	execs_end(c);
	container_release(c);
}

static void on_box_state(void *arg, struct sandbox *s)
{
	struct container *c = arg;
	enum sandbox_state state = sandbox_state(s);

	if (state == STATE_DESTROYED || state == STATE_FAILED) {
		container_end(c);
	} else if (state == STATE_STOPPED) {
		run_lost(c, 128 + SIGKILL);
	} else if (state == STATE_RUNNING && c->state == BOX_RUNNING && !c->main) {
		run_resume(c);
	}
}

void container_made(struct container *c, struct sandbox *s)
{
	c->s = sandbox_hold(s);
	c->waiter = sandbox_wait(s, on_box_state, c);
	if (c->state == BOX_CREATING)
		c->state = BOX_CREATED;
}

/* ---- the record ---- */

static json_t *run_json(const struct box_run *r)
{
	return json_pack("{s:I,s:I}", "eid", (json_int_t)r->eid, "started",
			 (json_int_t)r->started_ns);
}

int container_save(struct container *c, struct err *e)
{
	json_t *data, *runs = json_array();

	for (size_t i = 0; i < c->run_count; i++)
		json_array_append_new(runs, run_json(&c->runs[i]));
	json_object_update_new(c->record,
			       json_pack("{s:s,s:s,s:i,s:I,s:I,s:I,s:I,s:i,s:b,s:s,s:o}", "id",
					 c->id, "name", c->name, "state", (int)c->state, "pid",
					 (json_int_t)c->pid, "created", (json_int_t)c->created_ns,
					 "started", (json_int_t)c->started_ns, "finished",
					 (json_int_t)c->finished_ns, "code", c->code, "oom",
					 c->oom_killed, "error", c->error, "runs", runs));
	if (!c->s || c->is_gone)
		return 0;
	/* What other doors keep with the sandbox stays. */
	data = json_object();
	if (sandbox_door_data(c->s))
		json_object_update(data, (json_t *)sandbox_door_data(c->s));
	json_object_set_new(data, "docker", json_deep_copy(c->record));
	return sandbox_set_door_data(c->s, data, e);
}

bool container_too_long(const struct container *c)
{
	return json_dumpb(c->record, NULL, 0, JSON_COMPACT) > RECORD_MAX;
}

static uint64_t number_of(const json_t *o, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(o, key));
}

static void read_runs(struct container *c)
{
	const json_t *run;
	size_t i;

	json_array_foreach (json_object_get(c->record, "runs"), i, run)
		if (c->run_count < DOCKER_RUNS)
			c->runs[c->run_count++] =
				(struct box_run){.eid = (uint32_t)number_of(run, "eid"),
						 .started_ns = number_of(run, "started")};
}

static bool open_container(void *arg, struct sandbox *s)
{
	json_t *record = json_object_get(sandbox_door_data(s), "docker");
	struct container *c;

	if (!json_is_object(record) || sandbox_state(s) == STATE_DESTROYED ||
	    sandbox_state(s) == STATE_FAILED)
		return true;
	c = add_container(arg, sandbox_owner(s));
	json_decref(c->record);
	c->record = json_deep_copy(record);
	snprintf(c->id, sizeof(c->id), "%s", container_text(c, "id"));
	snprintf(c->name, sizeof(c->name), "%s", container_text(c, "name"));
	snprintf(c->error, sizeof(c->error), "%s", container_text(c, "error"));
	c->state = (enum container_state)number_of(record, "state");
	c->pid = (uint32_t)number_of(record, "pid");
	c->created_ns = number_of(record, "created");
	c->started_ns = number_of(record, "started");
	c->finished_ns = number_of(record, "finished");
	c->code = (int)number_of(record, "code");
	c->oom_killed = json_is_true(json_object_get(record, "oom"));
	read_runs(c);
	c->next_seq = UINT64_MAX;
	if (json_is_true(json_object_get(record, "segment")) &&
	    !segment_find(c->tenant->networks, container_network(c)))
		segment_add(&c->tenant->networks, c->tenant->owner, container_network(c), NULL);
	container_made(c, s);
	if (c->state == BOX_STARTING)
		c->state = BOX_CREATED;
	if (c->state == BOX_RUNNING)
		run_resume(c);
	return true;
}

void docker_open_all(struct api *api)
{
	manager_each(api->manager, NULL, open_container, api);
}

void docker_free(struct api *api)
{
	struct docker_state *st = api->door_state[DOOR_DOCKER];
	struct docker_network *n;
	struct tenant *t, *next;

	for (t = st ? st->tenants : NULL; t; t = next) {
		while (t->first)
			container_end(t->first);
		while ((n = t->networks)) {
			t->networks = n->next;
			segment_free(n);
		}
		docker_events_free(t->events);
		next = t->next;
		free(t);
	}
	free(st);
	api->door_state[DOOR_DOCKER] = NULL;
}

/* ---- what it is ---- */

void choose_alias(const json_t *aliases, const char *id, char ret_name[IPC_NAME])
{
	json_t *one;
	size_t i;

	if (!body_has_type(aliases, BODY_LIST))
		return;
	json_array_foreach ((json_t *)aliases, i, one) {
		const char *alias = json_string_value(one);

		if (str_only(alias, STR_ALNUM "-", 1, IPC_NAME - 1) &&
		    strncmp(alias, id, 12) != 0) {
			snprintf(ret_name, IPC_NAME, "%s", alias);
			return;
		}
	}
}

void container_join(struct container *c, const char *network, const json_t *aliases)
{
	json_t *host = json_object_get(c->record, "host");

	json_object_set_new(c->record, "segment", json_true());
	if (host)
		json_object_set_new(host, "NetworkMode", json_string(network));
	if (body_has_type(aliases, BODY_LIST))
		json_object_set(c->record, "aliases", (json_t *)aliases);
}

const char *container_network(const struct container *c)
{
	const char *mode = body_text(container_host(c), "NetworkMode");

	if (body_flag(container_config(c), "NetworkDisabled"))
		return "none";
	return !mode || str_equal(mode, "default") ? "bridge" : mode;
}

bool container_is_paused(const struct container *c)
{
	return c->s && sandbox_state(c->s) == STATE_PAUSED && c->state == BOX_RUNNING;
}

bool container_is_running(const struct container *c)
{
	return c->state == BOX_RUNNING && !c->is_gone;
}

const char *container_state_name(const struct container *c)
{
	static const char *const names[] = {[BOX_CREATING] = "created",
					    [BOX_CREATED] = "created",
					    [BOX_STARTING] = "created",
					    [BOX_RUNNING] = "running",
					    [BOX_EXITED] = "exited"};

	return container_is_paused(c) ? "paused" : c->removing ? "removing" : names[c->state];
}

const json_t *container_config(const struct container *c)
{
	return json_object_get(c->record, "config");
}

const json_t *container_host(const struct container *c)
{
	return json_object_get(c->record, "host");
}

const char *container_text(const struct container *c, const char *key)
{
	const char *text = json_string_value(json_object_get(c->record, key));

	return text ? text : "";
}

uint64_t run_time(const struct box_run *r, uint64_t seq)
{
	uint64_t at = r->started_ns;

	for (size_t low = 0, high = r->stamp_count; low < high;) {
		size_t mid = (low + high) / 2;

		if (r->stamps[mid].seq > seq) {
			high = mid;
		} else {
			at = r->stamps[mid].unix_ns;
			low = mid + 1;
		}
	}
	return at;
}

bool container_needs_running(struct exchange *x, const struct container *c)
{
	if (container_is_paused(c))
		docker_fail(x, 409, "Container %s is paused, unpause the container before exec",
			    c->id);
	else if (!container_is_running(c))
		docker_fail(x, 409, "container %s is not running", c->id);
	else
		return true;
	return false;
}

/* ---- its sandbox ---- */

struct waking {
	struct exchange *x;
	void (*call)(struct exchange *x, struct sandbox *s);
};

static void on_awake(void *arg, struct sandbox *s, const struct err *e)
{
	struct waking w = *(struct waking *)arg;

	free(arg);
	if (s)
		w.call(w.x, s);
	else
		exchange_error(w.x, e);
}

static void on_box_started(void *arg, struct sandbox *s, const struct err *e)
{
	on_awake(arg, s, e);
}

void container_awake(struct exchange *x, void (*call)(struct exchange *x, struct sandbox *s))
{
	struct container *c = docker_of(x)->c;
	struct waking *w = must_alloc(calloc(1, sizeof(*w)));

	*w = (struct waking){x, call};
	/* Another door has stopped it: its files are there. */
	if (sandbox_state(c->s) == STATE_STOPPED)
		sandbox_start(c->s, &x->caller, on_box_started, w);
	else
		sandbox_wake(c->s, &x->caller, on_awake, w);
}
