/* A sandbox as JSON: for clients, and for the store. */
#include "manager/manager_internal.h"

/* ---- for clients ---- */

json_t *time_json(uint64_t ms)
{
	char text[UTC_TEXT];

	if (ms == 0 || !*utc_text(ms / 1000, (uint32_t)(ms % 1000) * 1000000, 3, text))
		return json_null();
	return json_string(text);
}

static json_t *count_json(uint64_t value)
{
	return value ? json_integer((json_int_t)value) : json_null();
}

static json_t *seconds_json(uint64_t ms)
{
	return ms ? json_real((double)ms / 1e3) : json_null();
}

json_t *limits_json(const struct limits *l)
{
	return json_pack(
		"{s:o,s:f,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "memory", count_json(l->memory_bytes),
		"cpus", (double)l->cpus_milli / 1e3, "pids", count_json(l->pids), "disk",
		count_json(l->disk_bytes), "timeout", seconds_json(l->timeout_ms), "cpu_time",
		seconds_json(l->cpu_time_ms), "open_files", count_json(l->open_files), "file_size",
		count_json(l->file_size_bytes), "output_limit", count_json(l->output_bytes));
}

void layers_fill(const struct sandbox *s, struct result *r)
{
	const struct ipc_booted *b = &s->booted;
	size_t kinds = 0;

	r->level = b->level;
	r->rootless = b->rootless;
	r->proven = b->proven;
	r->missing = b->missing;
	r->is_remote = !provider_can(b->provider, CAN_PROVE);
	snprintf(r->seccomp, sizeof(r->seccomp), "%s", b->seccomp);
	r->landlock_abi = b->proven & LAYER_BIT(LAYER_LANDLOCK) ? b->landlock_abi : 0;
	r->cgroup = !(b->proven & LAYER_BIT(LAYER_CGROUP)) ? "none"
		    : b->cgroup_version == 2		   ? "v2"
							   : "v1";
	r->memory = r->is_remote ? "none" : b->memory_by_cgroup ? "cgroup" : "watch";
	r->disk = b->proven & LAYER_BIT(LAYER_DISK) ? b->disk : "none";
	/* What is refused there is not told. */
	if (r->is_remote)
		return;
	if (b->listening) {
		r->denial_kinds[kinds++] = "syscall";
		r->denial_kinds[kinds++] = "connect";
	}
	r->denial_kinds[kinds++] = "resolve";
	r->denial_kinds[kinds] = "limit";
}

/* Printed by the record's own code, so that there is one place that says what it looks like. */
static json_t *make_layers(const struct sandbox *s)
{
	struct result r = {0};
	auto_free char *text = NULL;
	json_t *layers;
	size_t len = 0;
	FILE *to = open_memstream(&text, &len);

	layers_fill(s, &r);
	result_print_layers(&r, must_alloc(to));
	fclose(to);
	layers = json_loadb(text, len, 0, NULL);
	if (r.is_remote && layers)
		json_object_set_new(layers, "note", json_string(s->booted.note));
	return layers ? layers : json_object();
}

/* Most sandboxes have the very same: they share it with the one before. */
static json_t *shared_layers(const struct sandbox *s)
{
	struct manager *m = s->m;
	json_t *layers = make_layers(s);

	if (m->layers && json_equal(m->layers, layers)) {
		json_decref(layers);
		return json_incref(m->layers);
	}
	json_decref(m->layers);
	m->layers = json_incref(layers);
	return layers;
}

json_t *sandbox_layers(const struct sandbox *s)
{
	struct sandbox *owner = (struct sandbox *)(uintptr_t)s;

	if (!s->booted.id[0])
		return json_null();
	if (!s->layers)
		owner->layers = shared_layers(s);
	return json_incref(s->layers);
}

static const char *net_name(int net)
{
	static const char *const names[] = {"none", "allow", "public", "isolated"};

	return (unsigned)net < ARRAY_LEN(names) ? names[net] : "none";
}

/* What the service decides is not ours to tell. */
static void describe_remote(json_t *o)
{
	static const char *const limits[] = {"memory",	   "cpus",     "pids",	   "disk",
					     "open_files", "cpu_time", "file_size"};

	for (size_t i = 0; i < ARRAY_LEN(limits); i++)
		json_object_set_new(json_object_get(o, "limits"), limits[i], json_null());
	json_object_set_new(o, "image", json_null());
	json_object_set_new(o, "network", json_null());
	json_object_set_new(o, "root", json_null());
}

json_t *sandbox_describe(const struct sandbox *s)
{
	const struct sandbox_spec *spec = &s->o.spec;
	bool is_remote = !provider_can(spec->provider, CAN_PROVE);
	json_t *o = json_pack("{s:s,s:s,s:s,s:s,s:s,s:s}", "id", s->id, "name", s->o.name, "state",
			      state_name(s->state), "image", spec->image ? spec->image : "host",
			      "level", is_remote ? "remote" : level_name(spec->level), "provider",
			      provider_name(spec->provider));

	json_object_set_new(o, "metadata",
			    s->o.metadata ? json_incref(s->o.metadata) : json_object());
	json_object_set_new(o, "created_at", time_json(s->created_ms));
	json_object_set_new(o, "started_at", time_json(s->started_ms));
	json_object_set_new(o, "expires_at", time_json(s->expires_ms));
	json_object_set_new(o, "limits", limits_json(&spec->limits));
	json_object_set_new(o, "network", json_string(net_name(spec->net)));
	json_object_set_new(o, "root", json_string(spec->root == ROOT_OVERLAY ? "overlay" : "ro"));
	json_object_set_new(o, "layers", sandbox_layers(s));
	json_object_set_new(o, "exit_code", json_null());
	json_object_set_new(o, "idle_timeout", seconds_json(s->o.idle_ms));
	json_object_set_new(o, "on_timeout", json_string(s->o.pause_on_timeout ? "pause" : "kill"));
	json_object_set_new(o, "auto_resume", json_boolean(s->o.auto_resume));
	json_object_set_new(o, "reason", s->reason[0] ? json_string(s->reason) : json_null());
	if (is_remote)
		describe_remote(o);
	return o;
}

/* ---- for the store ---- */

struct number {
	const char *key;
	size_t at;
};

#define LIMIT(member)                                                                              \
	{                                                                                          \
#member, offsetof(struct limits, member)                                           \
	}

static const struct number limit_numbers[] = {
	LIMIT(memory_bytes), LIMIT(cpus_milli),	     LIMIT(pids),
	LIMIT(disk_bytes),   LIMIT(timeout_ms),	     LIMIT(cpu_time_ms),
	LIMIT(open_files),   LIMIT(file_size_bytes), LIMIT(output_bytes),
};

static json_t *limits_out(const struct limits *l)
{
	json_t *o = json_object();

	for (size_t i = 0; i < ARRAY_LEN(limit_numbers); i++) {
		uint64_t value;

		memcpy(&value, (const char *)l + limit_numbers[i].at, sizeof(value));
		json_object_set_new(o, limit_numbers[i].key, json_integer((json_int_t)value));
	}
	return o;
}

static void limits_in(const json_t *o, struct limits *l)
{
	for (size_t i = 0; i < ARRAY_LEN(limit_numbers); i++) {
		uint64_t value =
			(uint64_t)json_integer_value(json_object_get(o, limit_numbers[i].key));

		memcpy((char *)l + limit_numbers[i].at, &value, sizeof(value));
	}
}

static json_t *volumes_out(const struct create_options *o)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < o->volume_count; i++)
		json_array_append_new(all, json_pack("{s:s,s:s,s:s,s:b}", "name",
						     o->volumes[i].name, "sub", o->volumes[i].sub,
						     "target", o->volumes[i].target, "writable",
						     o->volumes[i].writable));
	return all;
}

static void copy_text(char *dst, size_t size, const json_t *o, const char *key)
{
	const char *text = json_string_value(json_object_get(o, key));

	snprintf(dst, size, "%s", text ? text : "");
}

static void volumes_in(const json_t *all, struct create_options *o)
{
	for (size_t i = 0; i < json_array_size(all) && i < IPC_VOLUMES; i++) {
		const json_t *v = json_array_get(all, i);
		struct ipc_volume *to = &o->volumes[o->volume_count++];

		copy_text(to->name, sizeof(to->name), v, "name");
		copy_text(to->sub, sizeof(to->sub), v, "sub");
		copy_text(to->target, sizeof(to->target), v, "target");
		to->writable = json_is_true(json_object_get(v, "writable"));
	}
}

static json_t *list_out(const struct list *l)
{
	json_t *all = json_array();

	for (size_t i = 0; i < l->count; i++)
		json_array_append_new(all, json_string(l->items[i]));
	return all;
}

static void set_text(json_t *o, const char *key, const char *value)
{
	if (value && value[0])
		json_object_set_new(o, key, json_string(value));
}

static void set_number(json_t *o, const char *key, uint64_t value)
{
	json_object_set_new(o, key, json_integer((json_int_t)value));
}

static json_t *options_out(const struct sandbox *s)
{
	const struct create_options *c = &s->o;
	json_t *o = json_object();

	set_text(o, "owner_name", s->owner.name);
	set_text(o, "door", c->door);
	set_text(o, "image", c->spec.image);
	set_text(o, "workdir", c->spec.workdir);
	set_text(o, "hostname", c->spec.hostname);
	set_text(o, "snapshot", c->snapshot);
	set_text(o, "kept", s->kept);
	set_text(o, "reason", s->reason);
	set_number(o, "level", (uint64_t)c->spec.level);
	set_number(o, "root", (uint64_t)c->spec.root);
	set_number(o, "net", (uint64_t)c->spec.net);
	set_number(o, "provider", (uint64_t)c->spec.provider);
	set_number(o, "required_layers", c->spec.required_layers);
	set_number(o, "ttl_ms", c->ttl_ms);
	set_number(o, "idle_ms", c->idle_ms);
	set_number(o, "started_ms", s->started_ms);
	set_number(o, "max_sandboxes", s->owner.max_sandboxes);
	json_object_set_new(o, "pause_on_timeout", json_boolean(c->pause_on_timeout));
	json_object_set_new(o, "auto_resume", json_boolean(c->auto_resume));
	json_object_set_new(o, "limits", limits_out(&c->spec.limits));
	json_object_set_new(o, "volumes", volumes_out(c));
	json_object_set_new(o, "env", list_out(&c->env));
	if (c->metadata)
		json_object_set(o, "metadata", c->metadata);
	if (c->door_data)
		json_object_set(o, "door_data", c->door_data);
	return o;
}

int sandbox_save(struct sandbox *s, struct err *e)
{
	struct store_row row = {.created_ms = s->created_ms, .expires_ms = s->expires_ms};
	auto_free char *text = NULL;
	json_t *o;

	if (!s->m->p.store || s->o.transient || s->pooled)
		return 0;
	memcpy(row.id, s->id, sizeof(row.id));
	memcpy(row.owner, s->owner.token, sizeof(row.owner));
	memcpy(row.name, s->o.name, sizeof(row.name));
	snprintf(row.state, sizeof(row.state), "%s", state_name(s->state));
	o = options_out(s);
	text = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	row.options = must_alloc(text);
	return store_put(s->m->p.store, &row, e);
}

void sandbox_save_or_log(struct sandbox *s)
{
	struct err e;

	if (sandbox_save(s, &e) < 0)
		manager_log(s->m, "sandbox %s: %s", s->id, e.msg);
}

void sandbox_forget(struct sandbox *s)
{
	struct err e;

	if (!s->m->p.store || s->o.transient || s->pooled)
		return;
	if (store_remove(s->m->p.store, s->id, &e) < 0)
		manager_log(s->m, "sandbox %s: %s", s->id, e.msg);
}

static char *text_in(const json_t *o, const char *key)
{
	const char *text = json_string_value(json_object_get(o, key));

	return text ? str_copy(text) : NULL;
}

static void replace(char **text, char *by)
{
	free(*text);
	*text = by;
}

static uint64_t number_in(const json_t *o, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(o, key));
}

static void options_in(const json_t *o, struct sandbox *s)
{
	struct create_options *c = &s->o;
	const json_t *env = json_object_get(o, "env");

	copy_text(s->owner.name, sizeof(s->owner.name), o, "owner_name");
	copy_text(c->door, sizeof(c->door), o, "door");
	copy_text(c->snapshot, sizeof(c->snapshot), o, "snapshot");
	copy_text(s->kept, sizeof(s->kept), o, "kept");
	copy_text(s->reason, sizeof(s->reason), o, "reason");
	replace(&c->spec.image, text_in(o, "image"));
	replace(&c->spec.workdir, text_in(o, "workdir"));
	replace(&c->spec.hostname, text_in(o, "hostname"));
	c->spec.level = (int)number_in(o, "level");
	c->spec.root = (int)number_in(o, "root");
	c->spec.net = (int)number_in(o, "net");
	c->spec.provider = (int)number_in(o, "provider");
	c->spec.required_layers = (layer_set)number_in(o, "required_layers");
	c->ttl_ms = number_in(o, "ttl_ms");
	c->idle_ms = number_in(o, "idle_ms");
	s->started_ms = number_in(o, "started_ms");
	s->owner.max_sandboxes = (uint32_t)number_in(o, "max_sandboxes");
	c->pause_on_timeout = json_is_true(json_object_get(o, "pause_on_timeout"));
	c->auto_resume = json_is_true(json_object_get(o, "auto_resume"));
	limits_in(json_object_get(o, "limits"), &c->spec.limits);
	volumes_in(json_object_get(o, "volumes"), c);
	for (size_t i = 0; i < json_array_size(env); i++)
		if (json_is_string(json_array_get(env, i)))
			list_add(&c->env, json_string_value(json_array_get(env, i)));
	c->metadata = json_incref(json_object_get(o, "metadata"));
	c->door_data = json_incref(json_object_get(o, "door_data"));
}

int sandbox_load(struct sandbox *s, const struct store_row *row, struct err *e)
{
	json_t *o = json_loads(row->options ? row->options : "", 0, NULL);

	if (!json_is_object(o)) {
		json_decref(o);
		return err_set(e, ERR_SYSTEM, "the row of sandbox %s makes no sense", row->id);
	}
	memcpy(s->owner.token, row->owner, sizeof(s->owner.token));
	memcpy(s->o.name, row->name, sizeof(s->o.name));
	s->created_ms = row->created_ms;
	s->expires_ms = row->expires_ms;
	options_in(o, s);
	json_decref(o);
	return 0;
}
