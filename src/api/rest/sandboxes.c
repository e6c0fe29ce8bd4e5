/* Sandboxes over REST: creating, listing, changing, destroying, and their ports. */
#include "api/rest/rest.h"

#include "agent/registry.h"
#include "api/http/server.h"
#include "auth/shares.h"
#include "model/guard.h"
#include "net/publish.h"
#include "policy/config.h"
#include "provider/can.h"

#define LIST_MAX 1000
#define METADATA_MAX 64
#define PUBLISH_MAX 16
#define SERVICES_MAX 16
#define SERVICE_BYTES 2048

const struct body_table v1_volume_table = BODY_TABLE(
	BODY_ALONE,
	NEEDED("name", BODY_TEXT, "of one of the caller's own, or as the operator named it"),
	NEEDED("path", BODY_TEXT, "where it appears inside"),
	FIELD("sub", BODY_TEXT, "of the operator's: a directory below it, relative"),
	FIELD("writable", BODY_FLAG, "false unless said"));

const struct body_table v1_create_table = BODY_TABLE(
	BODY_WITH_SPEC, FIELD("name", BODY_TEXT, "a name for people"),
	FIELD("metadata", BODY_MAP, "anything, to find it again by"),
	FIELD("env", BODY_ENV, "variables of every command in it"),
	FIELD("ttl", BODY_TIME, "its life; 0 for none, if the operator allows that"),
	FIELD("idle_timeout", BODY_TIME, "how long nothing may happen in it"),
	FIELD("on_timeout", BODY_TEXT, "kill (default) or pause"),
	FIELD("auto_resume", BODY_FLAG, "use of a paused one resumes it"),
	FIELD("volumes", BODY_ITEMS, "volumes that it sees", .items = &v1_volume_table),
	FIELD("secrets", BODY_LIST, "names of secrets that its programs use"),
	FIELD("publish", BODY_LIST,
	      "ports of the host that lead into it: [ADDRESS:]PORT:PORT, the host's first"),
	FIELD("agent", BODY_TEXT, "the registered agent that runs in it"),
	FIELD("services", BODY_LIST,
	      "lines for a shell that run as long as the sandbox: started with it, and again when "
	      "they end"),
	FIELD("snapshot", BODY_TEXT,
	      "start from the files of this snapshot: its id, or the newest of its name"));

const struct body_table v1_patch_table = BODY_TABLE(
	BODY_WITH_LIMITS, FIELD("metadata", BODY_MAP, "replaces what was there"),
	FIELD("ttl", BODY_TIME, "from now"),
	FIELD("idle_timeout", BODY_TIME, "how long nothing may happen in it"),
	FIELD("network", BODY_OBJECT, "as PUT .../network takes it", .items = &v1_network_table));

const struct body_table v1_timeout_table = BODY_TABLE(
	BODY_ALONE, FIELD("ttl", BODY_TIME, "from now"), FIELD("timeout", BODY_TIME, "the same"));

/* ---- creating ---- */

static int copy_text(char *to, size_t size, const json_t *body, const char *name, struct err *e)
{
	const char *text = body_text(body, name);

	if (!text)
		return 0;
	if ((size_t)snprintf(to, size, "%s", text) >= size)
		return err_field(e, ERR_INVALID, name, "%s: longer than %zu bytes", name, size - 1);
	return 0;
}

static int take_volumes(const json_t *body, struct create_options *o, struct err *e)
{
	const json_t *list = json_object_get(body, "volumes"), *item;
	size_t i;

	if (json_array_size(list) > IPC_VOLUMES)
		return err_field(e, ERR_LIMIT, "volumes", "volumes: more than %d", IPC_VOLUMES);
	json_array_foreach (list, i, item) {
		struct ipc_volume *v = &o->volumes[o->volume_count++];

		if (copy_text(v->name, sizeof(v->name), item, "name", e) < 0 ||
		    copy_text(v->sub, sizeof(v->sub), item, "sub", e) < 0 ||
		    copy_text(v->target, sizeof(v->target), item, "path", e) < 0)
			return -1;
		v->writable = body_flag(item, "writable");
	}
	return 0;
}

static int take_publish(const json_t *body, struct create_options *o, struct err *e)
{
	struct list texts = {0};
	int rc = 0;

	body_list(body, "publish", &texts);
	if (texts.count > PUBLISH_MAX)
		rc = err_field(e, ERR_LIMIT, "publish", "publish: more than %d ports", PUBLISH_MAX);
	if (texts.count && !provider_can(o->spec.provider, CAN_PORTS))
		rc = err_field(e, ERR_UNSUPPORTED, "publish", "publish: not with provider %s",
			       provider_name(o->spec.provider));
	for (size_t i = 0; rc == 0 && i < texts.count; i++) {
		char text[NET_PUBLISH_TEXT];
		struct net_publish p;

		rc = net_publish_parse(texts.items[i], &p, e);
		if (rc == 0) {
			net_publish_text(&p, text);
			list_add(&o->publish, text);
		}
	}
	list_done(&texts);
	return rc;
}

static int take_services(const json_t *body, struct create_options *o, struct err *e)
{
	body_list(body, "services", &o->services);
	if (o->services.count && o->spec.provider != PROVIDER_NS)
		return err_field(e, ERR_UNSUPPORTED, "services", "services: not with provider %s",
				 provider_name(o->spec.provider));
	if (o->services.count > SERVICES_MAX)
		return err_field(e, ERR_LIMIT, "services", "services: more than %d", SERVICES_MAX);
	for (size_t i = 0; i < o->services.count; i++)
		if (!o->services.items[i][0] || strlen(o->services.items[i]) > SERVICE_BYTES)
			return err_field(e, ERR_INVALID, "services",
					 "services: a line has from 1 to %d bytes", SERVICE_BYTES);
	return 0;
}

static int take_times(const json_t *body, struct create_options *o, struct err *e)
{
	static const char *const ends[] = {"kill", "pause", NULL};
	int end = body_choice(body, "on_timeout", ends, e);

	if (body_time(body, "ttl", o->ttl_ms, &o->ttl_ms, e) < 0 ||
	    body_time(body, "idle_timeout", o->idle_ms, &o->idle_ms, e) < 0 || end < 0)
		return -1;
	o->pause_on_timeout = end == 1;
	o->auto_resume = body_flag(body, "auto_resume");
	return 0;
}

/* Options that only our own sandboxes can fulfil are refused for those of another service. */
static int finish_remote(struct sandbox_spec *s, struct err *e)
{
	static const char *const ours[] = {
		"memory", "cpus",     "pids",  "disk", "cpu_time", "open_files", "file_size",
		"root",	  "hostname", "level", "net",  "tmpfs",	   "disk_type"};
	int rc;

	if (s->require.count)
		return err_field(e, ERR_UNSUPPORTED, "require",
				 "require: no layer of a sandbox elsewhere can be proven");
	for (size_t i = 0; i < ARRAY_LEN(ours); i++)
		if (spec_is_set(s, ours[i]))
			return err_field(e, ERR_UNSUPPORTED, ours[i],
					 "%s: with provider e2b that is the service's to decide",
					 ours[i]);
	if (!s->workdir)
		s->workdir = str_copy("/home/user");
	s->provider = PROVIDER_NS;
	rc = spec_finish(s, e);
	s->provider = PROVIDER_E2B;
	s->required_layers = 0;
	return rc;
}

int v1_create_options(const json_t *body, const struct body_table *t, struct create_options *o,
		      struct err *e)
{
	const json_t *metadata = json_object_get(body, "metadata");

	snprintf(o->door, sizeof(o->door), "rest");
	if (body_spec(body, t, &o->spec, e) < 0 || body_env(body, "env", &o->env, e) < 0)
		return -1;
	if (o->spec.level == LEVEL_PROCESS)
		return err_field(e, ERR_UNSUPPORTED, "level",
				 "level: the daemon gives only container; process is for `cloche "
				 "run`");
	spec_fit_disk(&o->spec);
	if (v1_imply_network(body, &o->spec, e) < 0)
		return -1;
	if ((t == &v1_create_table && o->spec.provider == PROVIDER_E2B
		     ? finish_remote(&o->spec, e)
		     : spec_finish(&o->spec, e)) < 0 ||
	    v1_take_secrets(body, &o->spec, e) < 0)
		return -1;
	if (json_object_size(metadata) > METADATA_MAX)
		return err_field(e, ERR_LIMIT, "metadata", "metadata: more than %d entries",
				 METADATA_MAX);
	if (json_is_object(metadata))
		o->metadata = json_deep_copy(metadata);
	if (copy_text(o->name, sizeof(o->name), body, "name", e) < 0 ||
	    copy_text(o->snapshot, sizeof(o->snapshot), body, "snapshot", e) < 0)
		return -1;
	if (o->snapshot[0] && !provider_can(o->spec.provider, CAN_SNAPSHOT))
		return err_field(e, ERR_UNSUPPORTED, "snapshot", "snapshot: not with provider %s",
				 provider_name(o->spec.provider));
	if (take_times(body, o, e) < 0 || take_volumes(body, o, e) < 0)
		return -1;
	if (t != &v1_create_table)
		return 0;
	return take_services(body, o, e) < 0 ? -1 : take_publish(body, o, e);
}

/* A sandbox without a port that was asked for is not what was asked for. */
static void on_published(void *arg, struct sandbox *s, const struct err *e)
{
	struct exchange *x = arg;

	if (e)
		sandbox_destroy(s, NULL, NULL, NULL);
	v1_answer_created(x, e ? NULL : sandbox_describe(s), e);
}

static void on_sandbox_created(void *arg, struct sandbox *s, const struct err *e)
{
	struct exchange *x = arg;

	if (s)
		server_open_agent(x->api->server, s);
	if (s && sandbox_publish(s)->count) {
		server_publish(x->api->server, s, on_published, x);
		return;
	}
	v1_answer_created(arg, s ? sandbox_describe(s) : NULL, e);
}

static void create_sandbox(struct exchange *x)
{
	const char *agent = body_text(x->json, "agent");
	struct create_options o;
	struct err e = {0};

	create_options_for(&o, x->api->manager, &x->caller);
	if (v1_create_options(x->json, &v1_create_table, &o, &e) < 0 ||
	    agents_fit(x->api->agents, x->api->manager, &x->caller, agent ? agent : "", &o, &e) <
		    0 ||
	    manager_times_check(x->api->manager, &o.ttl_ms, &o.idle_ms, &e) < 0 ||
	    guard_refuse(&o.spec, &e) < 0) {
		create_options_done(&o);
		exchange_error(x, &e);
		return;
	}
	manager_create(x->api->manager, &x->caller, &o, on_sandbox_created, x);
}

static void create_from(struct exchange *x, const char *snapshot)
{
	json_object_set_new(x->json, "snapshot", json_string(snapshot));
	create_sandbox(x);
}

void v1_create(struct exchange *x)
{
	const char *snapshot = body_text(x->json, "snapshot");

	if (snapshot && *snapshot)
		v1_snapshot_find(x, snapshot, create_from);
	else
		create_sandbox(x);
}

/* ---- looking ---- */

#define LISTED_AT_ONCE 32

/* A list of sandboxes, which is made in several turns. */
struct listing {
	struct exchange *x;
	struct list metadata;
	uint64_t left;
	json_t *all, *cursor;
	struct loop_task task;
};

static void listing_done(void *data)
{
	struct listing *l = data;

	loop_task_remove(l->x->api->loop, &l->task);
	list_done(&l->metadata);
	json_decref(l->all);
	json_decref(l->cursor);
}

static int list_page(struct listing *l, struct err *e)
{
	struct exchange *x = l->x;
	size_t limit = l->left < LISTED_AT_ONCE ? l->left : LISTED_AT_ONCE;
	const char *after = l->cursor ? json_string_value(l->cursor) : exchange_arg(x, "cursor");
	json_t *page = manager_list(x->api->manager, &x->caller, exchange_arg(x, "state"),
				    &l->metadata, limit, after, e);

	if (!page)
		return -1;
	json_array_extend(l->all, json_object_get(page, "sandboxes"));
	json_decref(l->cursor);
	l->cursor = json_incref(json_object_get(page, "cursor"));
	l->left -= limit;
	json_decref(page);
	return 0;
}

static void list_some(void *arg)
{
	struct listing *l = arg;
	struct err e;

	do {
		if (list_page(l, &e) < 0) {
			exchange_error(l->x, &e);
			return;
		}
		if (!l->left || json_is_null(l->cursor)) {
			exchange_json(l->x, 200,
				      json_pack("{s:o,s:o}", "sandboxes", take_ptr(l->all),
						"cursor", take_ptr(l->cursor)));
			return;
		}
	} while (!loop_turn_is_over(l->x->api->loop));
	loop_task_add(l->x->api->loop, &l->task);
}

void v1_list(struct exchange *x)
{
	struct list metadata = {0};
	struct err e = {0};
	struct listing *l;
	uint64_t limit;

	for (size_t i = 0; i < x->arg_count; i++) {
		if (!str_equal(x->args[i].name, "metadata"))
			continue;
		if (!strchr(x->args[i].value, '='))
			err_field(&e, ERR_INVALID, "metadata", "metadata: '%.40s' is not K=V",
				  x->args[i].value);
		list_add(&metadata, x->args[i].value);
	}
	if (e.kind != ERR_NONE || exchange_arg_uint(x, "limit", 100, LIST_MAX, &limit, &e) < 0) {
		list_done(&metadata);
		exchange_error(x, &e);
		return;
	}
	l = must_alloc(calloc(1, sizeof(*l)));
	*l = (struct listing){.x = x,
			      .metadata = metadata,
			      .left = limit ? limit : UINT64_MAX,
			      .all = json_array()};
	l->task = (struct loop_task){
		.call = list_some,
		.arg = l,
		.user = shares_user(manager_shares(x->api->manager), x->caller.token)};
	exchange_also_free(x, l, listing_done);
	list_some(l);
}

void v1_inspect(struct exchange *x)
{
	exchange_json(x, 200, sandbox_describe(x->sandbox));
}

/* ---- changing ---- */

static int read_change(const struct exchange *x, struct sandbox_change *c, struct err *e)
{
	struct sandbox_spec spec;
	int rc;

	spec_init(&spec);
	spec.limits = sandbox_spec(x->sandbox)->limits;
	rc = body_spec(x->json, &v1_patch_table, &spec, e);
	c->limits = spec.limits;
	c->has_limits = spec.set_mask != 0;
	spec_done(&spec);
	c->has_ttl = body_has(x->json, "ttl");
	c->has_idle = body_has(x->json, "idle_timeout");
	c->has_metadata = body_has(x->json, "metadata");
	c->metadata = json_object_get(x->json, "metadata");
	if (rc < 0 || body_time(x->json, "ttl", 0, &c->ttl_ms, e) < 0)
		return -1;
	return body_time(x->json, "idle_timeout", 0, &c->idle_ms, e);
}

/* A change of the network that follows another change. */
struct then_network {
	struct exchange *x;
	struct sandbox_spec spec;
};

static void on_first_change(void *arg, struct sandbox *s, const struct err *e)
{
	struct then_network *t = arg;

	if (s)
		sandbox_set_network(s, &t->x->caller, &t->spec, v1_answer_sandbox, t->x);
	else
		exchange_error(t->x, e);
	spec_done(&t->spec);
	free(t);
}

static void change_both(struct exchange *x, const struct sandbox_change *c,
			struct sandbox_spec *spec)
{
	struct then_network *t = must_alloc(malloc(sizeof(*t)));

	*t = (struct then_network){x, *spec};
	spec_init(spec);
	sandbox_change(x->sandbox, &x->caller, c, on_first_change, t);
}

void v1_patch(struct exchange *x)
{
	const json_t *network = json_object_get(x->json, "network");
	struct sandbox_change c = {0};
	struct sandbox_spec spec;
	struct err e = {0};

	spec_init(&spec);
	if (read_change(x, &c, &e) < 0 ||
	    (network && v1_read_network(x->sandbox, network, &spec, &e) < 0))
		exchange_error(x, &e);
	else if (network && json_object_size(x->json) > 1)
		change_both(x, &c, &spec);
	else if (network)
		sandbox_set_network(x->sandbox, &x->caller, &spec, v1_answer_sandbox, x);
	else
		sandbox_change(x->sandbox, &x->caller, &c, v1_answer_sandbox, x);
	spec_done(&spec);
}

void v1_timeout(struct exchange *x)
{
	struct sandbox_change c = {.has_ttl = true};
	const char *name = body_has(x->json, "ttl") ? "ttl" : "timeout";
	struct err e = {0};

	if (!body_has(x->json, name))
		exchange_refuse(x, "ttl", "is missing");
	else if (body_time(x->json, name, 0, &c.ttl_ms, &e) < 0)
		exchange_error(x, &e);
	else
		sandbox_change(x->sandbox, &x->caller, &c, v1_answer_sandbox, x);
}

/* ---- ending ---- */

static void on_destroyed(void *arg, struct sandbox *s, const struct err *e)
{
	v1_answer_empty(arg, NULL, s ? NULL : e);
}

void v1_destroy(struct exchange *x)
{
	sandbox_destroy(x->sandbox, &x->caller, on_destroyed, x);
}

static void on_all_destroyed(void *arg, size_t count)
{
	exchange_json(arg, 200, json_pack("{s:I}", "destroyed", (json_int_t)count));
}

void v1_destroy_all(struct exchange *x)
{
	manager_destroy_all(x->api->manager, &x->caller, on_all_destroyed, x);
}

/* ---- ports ---- */

void v1_port(struct exchange *x)
{
	const char *rest = x->params[2] ? x->params[2] : "";
	auto_free char *path = str_format("/%s", rest);
	auto_free char *prefix = str_format("%.*s", (int)(strlen(x->path) - strlen(rest)), x->path);
	struct ports_target t = {.path = path, .prefix = prefix};
	struct err e = {0};
	uint64_t port;

	if (parse_count(x->params[1], &port, &e) < 0 || port < 1 || port > 65535) {
		exchange_refuse(x, "port", "'%.20s' is none", x->params[1]);
		return;
	}
	t.port = (uint32_t)port;
	ports_proxy(x, x->sandbox, &t);
}
