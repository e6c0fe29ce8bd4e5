/* A sandbox as JSON: for clients, and for the store. */
#include "manager/manager_internal.h"

#include "model/root_inside.h"

#include <sys/mman.h>

/* ---- for clients ---- */

json_t *time_json(uint64_t ms)
{
	char text[UTC_TEXT];

	if (ms == 0 || !*utc_text(ms / 1000, (uint32_t)(ms % 1000) * 1000000, 3, text))
		return json_null();
	return json_string(text);
}

json_t *text_or_null(const char *text)
{
	json_t *o = text && *text ? json_string(text) : NULL;

	return o ? o : json_null();
}

static json_t *seconds_json(uint64_t ms)
{
	return ms ? json_real((double)ms / 1e3) : json_null();
}

/* Of a remote sandbox only the limits that the daemon enforces are known. */
static bool is_known_limit(const struct field *f, bool is_remote)
{
	return !is_remote || str_equal(f->name, "timeout") || str_equal(f->name, "output_limit");
}

static json_t *limits_json(const struct limits *l, bool is_remote)
{
	json_t *o = json_object(), *value;

	for (const struct field *f = limit_field(NULL); f; f = limit_field(f)) {
		uint64_t n = limit_value(l, f);

		if (!is_known_limit(f, is_remote) || (!n && f->type != FIELD_MILLI))
			value = json_null();
		else if (f->type == FIELD_TIME || f->type == FIELD_MILLI)
			value = json_real((double)n / 1e3);
		else
			value = json_integer((json_int_t)n);
		json_object_set_new(o, f->name, value);
	}
	return o;
}

void layers_fill(const struct sandbox *s, struct result *r)
{
	const struct ipc_booted *b = &s->booted;
	size_t kinds = 0;

	r->level = b->level;
	r->rootless = b->rootless;
	r->proven = b->proven;
	r->missing = b->missing;
	r->wants_vm = s->o.wants_vm;
	r->is_remote = !provider_can(b->provider, CAN_PROVE);
	snprintf(r->seccomp, sizeof(r->seccomp), "%s", b->seccomp);
	r->landlock_abi = b->proven & LAYER_BIT(LAYER_LANDLOCK) ? b->landlock_abi : 0;
	r->cgroup = !(b->proven & LAYER_BIT(LAYER_CGROUP)) ? "none"
		    : b->cgroup_version == 2		   ? "v2"
							   : "v1";
	r->memory = r->is_remote ? "none" : b->memory_by_cgroup ? "cgroup" : "watch";
	r->disk = b->proven & LAYER_BIT(LAYER_DISK) ? b->disk : "none";
	r->encrypted = b->has_disk & IPC_DISK_ENCRYPTED ? "fscrypt" : b->has_disk ? "none" : NULL;
	r->network = network_how(s);
	r->caps = root_inside_caps(b->root_inside);
	r->root_inside = root_inside_name(b->root_inside);
	/* A remote service does not report denials. */
	if (r->is_remote)
		return;
	if (b->listening) {
		r->denial_kinds[kinds++] = "syscall";
		r->denial_kinds[kinds++] = "connect";
	}
	r->denial_kinds[kinds++] = "resolve";
	r->denial_kinds[kinds] = "limit";
}

/* Printed by the code of the result record, so that the format is defined in one place. */
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

/* Most sandboxes have the same layers: they share one object. */
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

static json_t *sandbox_layers(const struct sandbox *s)
{
	struct sandbox *owner = (struct sandbox *)(uintptr_t)s;

	if (!s->booted.id[0])
		return json_null();
	if (!s->layers)
		owner->layers = shared_layers(s);
	return json_incref(s->layers);
}

static void list_out(const struct list *l, const char *key, json_t *o);

json_t *sandbox_describe(const struct sandbox *s)
{
	const struct sandbox_spec *spec = &s->o.spec;
	const char *image = spec->image ? spec->image : "host", *level = level_name(spec->level);
	const char *net = net_mode_name(sandbox_network_mode(s)),
		   *root = spec->root == ROOT_OVERLAY ? "overlay" : "ro";
	bool is_remote = !provider_can(spec->provider, CAN_PROVE);
	json_t *o;

	if (is_remote) {
		image = net = root = NULL; /* decided by the service */
		level = "remote";
	}
	o = json_pack(
		"{s:s,s:s,s:s,s:s?,s:s,s:s,s:o,s:o,s:o,s:o,s:o,s:s?,s:s?,s:o,s:n,s:o,s:s,s:b}",
		"id", s->id, "name", s->o.name, "state", state_name(s->state), "image", image,
		"level", level, "provider", provider_name(spec->provider), "metadata",
		s->o.metadata ? json_incref(s->o.metadata) : json_object(), "created_at",
		time_json(s->created_ms), "started_at", time_json(s->started_ms), "expires_at",
		time_json(s->expires_ms), "limits", limits_json(&spec->limits, is_remote),
		"network", net, "root", root, "layers", sandbox_layers(s), "exit_code",
		"idle_timeout", seconds_json(s->o.idle_ms), "on_timeout",
		s->o.pause_on_timeout ? "pause" : "kill", "auto_resume", s->o.auto_resume);
	/* A reason may have been cut within a character, which must not spoil the rest. */
	json_object_set_new(o, "disk_type",
			    json_string(spec->disk_type == DISK_IMAGE ? "disk" : "memory"));
	if (images_note(s))
		json_object_set_new(o, "notes", json_pack("[s]", images_note(s)));
	if (s->o.image_id[0] && !is_remote)
		json_object_set_new(o, "image_id", json_string(s->o.image_id));
	if (s->o.services.count)
		list_out(&s->o.services, "services", o);
	list_out(&s->o.publish, "publish", o);
	json_object_set_new(o, "secrets", secrets_names(&spec->secrets));
	json_object_set_new(o, "agent", s->o.agent[0] ? json_string(s->o.agent) : json_null());
	json_object_set_new(o, "reason", s->reason[0] ? json_string(s->reason) : json_null());
	return o;
}

/* ---- for the store ---- */

enum member_kind { MEMBER_TEXT, MEMBER_POINTER, MEMBER_NUMBER, MEMBER_BOOL };

/* A member of a struct, and its key in a row of the store. */
struct member {
	const char *key;
	enum member_kind kind;
	size_t at, size;
};

#define FIELD(key, kind, type, member)                                                             \
	{                                                                                          \
		key, MEMBER_##kind, offsetof(type, member), sizeof(((type *)NULL)->member)         \
	}
#define SANDBOX(key, kind, member) FIELD(key, kind, struct sandbox, member)
#define OPTION(key, kind, member) FIELD(key, kind, struct create_options, member)
#define VOLUME(kind, member) FIELD(#member, kind, struct ipc_volume, member)
#define LIMIT(member) FIELD(#member, NUMBER, struct limits, member)

static const struct member sandbox_fields[] = {
	SANDBOX("owner_name", TEXT, owner.name),
	SANDBOX("kept", TEXT, kept),
	SANDBOX("reason", TEXT, reason),
	SANDBOX("started_ms", NUMBER, started_ms),
	SANDBOX("max_sandboxes", NUMBER, owner.max_sandboxes),
};

static const struct member option_fields[] = {
	OPTION("door", TEXT, door),
	OPTION("image", POINTER, spec.image),
	OPTION("image_id", TEXT, image_id),
	OPTION("workdir", POINTER, spec.workdir),
	OPTION("hostname", POINTER, spec.hostname),
	OPTION("user", POINTER, spec.user),
	OPTION("snapshot", TEXT, snapshot),
	OPTION("services_user", TEXT, services_user),
	OPTION("level", NUMBER, spec.level),
	OPTION("root", NUMBER, spec.root),
	OPTION("disk_type", NUMBER, spec.disk_type),
	OPTION("net", NUMBER, spec.net),
	OPTION("net_asks", BOOL, spec.net_asks),
	OPTION("net_group", POINTER, spec.net_group),
	OPTION("net_rate", NUMBER, spec.net_limits.rate),
	OPTION("net_tx", NUMBER, spec.net_limits.tx_bytes),
	OPTION("net_rx", NUMBER, spec.net_limits.rx_bytes),
	OPTION("net_connections", NUMBER, spec.net_limits.connections),
	OPTION("net_names", NUMBER, spec.net_limits.names),
	OPTION("net_requests", NUMBER, spec.net_limits.requests),
	OPTION("provider", NUMBER, spec.provider),
	OPTION("required_layers", NUMBER, spec.required_layers),
	OPTION("ttl_ms", NUMBER, ttl_ms),
	OPTION("idle_ms", NUMBER, idle_ms),
	OPTION("pause_on_timeout", BOOL, pause_on_timeout),
	OPTION("auto_resume", BOOL, auto_resume),
	OPTION("pause_when_idle", BOOL, pause_when_idle),
	OPTION("wants_vm", BOOL, wants_vm),
	OPTION("agent", TEXT, agent),
	OPTION("agent_uid", TEXT, agent_uid),
};

static const struct member limit_fields[] = {
	LIMIT(memory_bytes), LIMIT(cpus_milli),	     LIMIT(pids),
	LIMIT(disk_bytes),   LIMIT(timeout_ms),	     LIMIT(cpu_time_ms),
	LIMIT(open_files),   LIMIT(file_size_bytes), LIMIT(output_bytes),
};

static const struct member volume_fields[] = {VOLUME(TEXT, name), VOLUME(TEXT, sub),
					      VOLUME(TEXT, target), VOLUME(BOOL, writable)};

#define ALL(fields) fields, ARRAY_LEN(fields)

static void fields_out(const struct member *f, size_t count, const void *from, json_t *o)
{
	for (; count > 0; f++, count--) {
		const void *at = (const char *)from + f->at;
		const char *text = f->kind == MEMBER_POINTER ? *(char *const *)at : at;

		if (f->kind == MEMBER_BOOL)
			json_object_set_new(o, f->key, json_boolean(*(const uint8_t *)at));
		else if (f->kind == MEMBER_NUMBER && f->size == sizeof(uint64_t))
			json_object_set_new(o, f->key,
					    json_integer((json_int_t) * (const uint64_t *)at));
		else if (f->kind == MEMBER_NUMBER)
			json_object_set_new(o, f->key, json_integer(*(const uint32_t *)at));
		else if (text && text[0])
			json_object_set_new(o, f->key, json_string(text));
	}
}

static void fields_in(const struct member *f, size_t count, const json_t *o, void *to)
{
	for (; count > 0; f++, count--) {
		const json_t *value = json_object_get(o, f->key);
		const char *text = json_string_value(value);
		uint64_t number = (uint64_t)json_integer_value(value);
		void *at = (char *)to + f->at;

		if (f->kind == MEMBER_BOOL) {
			*(uint8_t *)at = json_is_true(value);
		} else if (f->kind == MEMBER_TEXT) {
			snprintf(at, f->size, "%s", text ? text : "");
		} else if (f->kind == MEMBER_POINTER) {
			free(*(char **)at);
			*(char **)at = text ? str_copy(text) : NULL;
		} else if (f->size == sizeof(uint64_t)) {
			*(uint64_t *)at = number;
		} else {
			*(uint32_t *)at = (uint32_t)number;
		}
	}
}

static void list_out(const struct list *l, const char *key, json_t *o)
{
	json_t *array = json_array();

	for (size_t i = 0; i < l->count; i++)
		json_array_append_new(array, json_string(l->items[i]));
	json_object_set_new(o, key, array);
}

static void list_in(const json_t *o, const char *key, struct list *ret)
{
	const json_t *array = json_object_get(o, key);

	for (size_t i = 0; i < json_array_size(array); i++)
		if (json_is_string(json_array_get(array, i)))
			list_add(ret, json_string_value(json_array_get(array, i)));
}

static json_t *options_out(const struct create_options *c)
{
	json_t *o = json_object(), *limits = json_object(), *volumes = json_array();

	fields_out(ALL(option_fields), c, o);
	fields_out(ALL(limit_fields), &c->spec.limits, limits);
	for (uint32_t i = 0; i < c->volume_count; i++) {
		json_t *volume = json_object();

		fields_out(ALL(volume_fields), &c->volumes[i], volume);
		json_array_append_new(volumes, volume);
	}
	list_out(&c->env, "env", o);
	list_out(&c->publish, "publish", o);
	list_out(&c->services, "services", o);
	list_out(&c->spec.secrets, "secrets", o);
	list_out(&c->placeholders, "placeholders", o);
	list_out(&c->spec.tmpfs, "tmpfs", o);
	list_out(&c->spec.allow, "allow", o);
	list_out(&c->spec.deny, "deny", o);
	json_object_set_new(o, "limits", limits);
	json_object_set_new(o, "volumes", volumes);
	if (c->metadata)
		json_object_set(o, "metadata", c->metadata);
	return o;
}

static void options_in(const json_t *o, struct create_options *c)
{
	const json_t *volumes = json_object_get(o, "volumes");
	struct limits in_memory;
	struct err ignored;

	fields_in(ALL(option_fields), o, c);
	fields_in(ALL(limit_fields), json_object_get(o, "limits"), &c->spec.limits);
	for (size_t i = 0; i < json_array_size(volumes) && i < IPC_VOLUMES; i++)
		fields_in(ALL(volume_fields), json_array_get(volumes, i),
			  &c->volumes[c->volume_count++]);
	list_in(o, "env", &c->env);
	list_in(o, "publish", &c->publish);
	list_in(o, "services", &c->services);
	list_in(o, "secrets", &c->spec.secrets);
	list_in(o, "placeholders", &c->placeholders);
	list_in(o, "tmpfs", &c->spec.tmpfs);
	list_in(o, "allow", &c->spec.allow);
	list_in(o, "deny", &c->spec.deny);
	/* It was right when it was written. */
	in_memory = limits_in_memory(&c->spec.limits, c->spec.disk_type);
	(void)!tmpfs_parse(&c->spec.tmpfs, &in_memory, &c->spec.tmpfs_mounts, &ignored);
	c->metadata = json_incref(json_object_get(o, "metadata"));
}

void create_options_inherit(struct create_options *o, const struct sandbox *from)
{
	json_t *all = options_out(&from->o);

	create_options_init(o, from->m);
	options_in(all, o);
	json_decref(all);
	/* A port of the host leads to one sandbox, and so does a placeholder. */
	list_done(&o->publish);
	list_done(&o->placeholders);
	json_decref(o->metadata);
	o->metadata = json_deep_copy(from->o.metadata);
}

/* The row as text: for the store, and for the broker. */
static json_t *row_json(const struct sandbox *s)
{
	json_t *o = options_out(&s->o);

	fields_out(ALL(sandbox_fields), s, o);
	if (s->o.door_data)
		json_object_set(o, "door_data", s->o.door_data);
	/* Columns of the store; the broker's copy has only the text. */
	json_object_set_new(o, "name", json_string(s->o.name));
	json_object_set_new(o, "created_ms", json_integer((json_int_t)s->created_ms));
	json_object_set_new(o, "expires_ms", json_integer((json_int_t)s->expires_ms));
	return o;
}

static void on_row_put(void *arg, const struct ipc *reply, int fd)
{
	struct sandbox *s = arg;

	close_fd(&fd);
	if (reply->err.kind != ERR_NONE && reply->err.kind != ERR_NOT_FOUND)
		manager_log(s->m, "sandbox %s: %s", s->id, reply->err.msg);
	sandbox_release(s);
}

/* The broker's copy of the row. What does not fit is left out, the least important first. */
static char *row_copy(const struct sandbox *s)
{
	static const char *const optional[] = {"env", "metadata", "volumes", "placeholders",
					       "door_data"};
	json_t *o = row_json(s);
	char *text = must_alloc(json_dumps(o, JSON_COMPACT));

	for (size_t i = 0; i < ARRAY_LEN(optional) && strlen(text) > IPC_ROW_LONG; i++) {
		free(text);
		json_object_del(o, optional[i]);
		text = must_alloc(json_dumps(o, JSON_COMPACT));
	}
	json_decref(o);
	return text;
}

void row_hand_over(struct sandbox *s)
{
	struct ipc m = {.type = IPC_ROW_PUT};
	auto_free char *text = row_copy(s);
	auto_close int fd = -1;
	size_t len = strlen(text);

	if (len < sizeof(m.row.text)) {
		memcpy(m.row.text, text, len);
	} else {
		fd = memfd_create("row", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		if (len > IPC_ROW_LONG || fd < 0 || io_write_all(fd, text, len) < 0) {
			manager_log(s->m, "sandbox %s: the broker gets no copy of its row", s->id);
			return;
		}
	}
	memcpy(m.row.id, s->id, sizeof(m.row.id));
	memcpy(m.row.snapshot, s->kept, sizeof(m.row.snapshot));
	broker_ask(s->m->p.broker, &m, fd, on_row_put, sandbox_hold(s));
}

int sandbox_save_as(struct sandbox *s, enum sandbox_state state, struct err *e)
{
	struct store_row row = {.created_ms = s->created_ms, .expires_ms = s->expires_ms};
	auto_free char *text = NULL;
	json_t *o;

	if (!s->m->p.store || s->o.transient || s->pooled)
		return 0;
	memcpy(row.id, s->id, sizeof(row.id));
	memcpy(row.owner, s->owner.token, sizeof(row.owner));
	memcpy(row.name, s->o.name, sizeof(row.name));
	snprintf(row.state, sizeof(row.state), "%s", state_name(state));
	o = row_json(s);
	text = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	row.options = must_alloc(text);
	if (store_put(s->m->p.store, &row, e) < 0)
		return -1;
	row_hand_over(s);
	return 0;
}

int sandbox_save(struct sandbox *s, struct err *e)
{
	return sandbox_save_as(s, s->state, e);
}

void sandbox_save_back(struct sandbox *s)
{
	struct err e;

	if (sandbox_save(s, &e) < 0)
		manager_log(s->m, "sandbox %s: %s", s->id, e.msg);
}

int sandbox_forget(struct sandbox *s, struct err *e)
{
	if (!s->m->p.store || s->o.transient || s->pooled)
		return 0;
	return store_remove(s->m->p.store, s->id, e);
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
	fields_in(ALL(sandbox_fields), o, s);
	options_in(o, &s->o);
	s->o.door_data = json_incref(json_object_get(o, "door_data"));
	json_decref(o);
	return 0;
}

int sandbox_load_text(struct sandbox *s, const char *text, struct err *e)
{
	struct store_row row = {.options = text};
	json_t *o = json_loads(text, 0, NULL);
	const char *name = json_string_value(json_object_get(o, "name"));

	memcpy(row.id, s->id, sizeof(row.id));
	memcpy(row.owner, s->owner.token, sizeof(row.owner));
	snprintf(row.name, sizeof(row.name), "%s", name ? name : "");
	row.created_ms = (uint64_t)json_integer_value(json_object_get(o, "created_ms"));
	row.expires_ms = (uint64_t)json_integer_value(json_object_get(o, "expires_ms"));
	json_decref(o);
	return sandbox_load(s, &row, e);
}
