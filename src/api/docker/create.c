/* POST /containers/create: the options of the sandbox, and the record of the container. */
#include "api/docker/docker_internal.h"

#include "api/http/server.h"
#include "policy/config.h"

#define DIRS_MAX 16

/* ---- the body ---- */

static const struct body_table rule_table =
	BODY_TABLE(BODY_ALONE, FIELD("Name", BODY_TEXT, "when it is started again"),
		   FIELD("MaximumRetryCount", BODY_INTEGER, "how often"));

/* Only what is taken; host.c judges the others. */
static const struct body_table host_table = BODY_TABLE(
	BODY_ALONE, FIELD("AutoRemove", BODY_FLAG, "removed at its end"),
	FIELD("Binds", BODY_LIST, "volumes"), FIELD("CapAdd", BODY_LIST, "capabilities"),
	FIELD("CgroupnsMode", BODY_TEXT, "private"),
	FIELD("CpuPeriod", BODY_INTEGER, "microseconds"),
	FIELD("CpuQuota", BODY_INTEGER, "microseconds"), FIELD("IpcMode", BODY_TEXT, "private"),
	FIELD("Memory", BODY_INTEGER, "bytes"), FIELD("Mounts", BODY_ITEMS, "volumes"),
	FIELD("NanoCpus", BODY_INTEGER, "processors"),
	FIELD("NetworkMode", BODY_TEXT, "the network"), FIELD("PidMode", BODY_TEXT, "private"),
	FIELD("PidsLimit", BODY_INTEGER, "processes"),
	FIELD("PortBindings", BODY_OBJECT, "ports of the host"),
	FIELD("PublishAllPorts", BODY_FLAG, "refused"),
	FIELD("ReadonlyRootfs", BODY_FLAG, "the root cannot be written to"),
	FIELD("RestartPolicy", BODY_OBJECT, "when it is started again", .items = &rule_table),
	FIELD("Runtime", BODY_TEXT, "runc"), FIELD("SecurityOpt", BODY_LIST, "no-new-privileges"),
	FIELD("StorageOpt", BODY_MAP, "size"), FIELD("Tmpfs", BODY_MAP, "places and options"),
	FIELD("UTSMode", BODY_TEXT, "private"), FIELD("UsernsMode", BODY_TEXT, "private"));

static const struct body_table config_table = BODY_TABLE(
	BODY_ALONE, FIELD("AttachStderr", BODY_FLAG, "shown"),
	FIELD("AttachStdin", BODY_FLAG, "shown"), FIELD("AttachStdout", BODY_FLAG, "shown"),
	FIELD("Cmd", BODY_LIST, "the command"), FIELD("Entrypoint", BODY_LIST, "before it"),
	FIELD("Env", BODY_LIST, "K=V"), FIELD("ExposedPorts", BODY_OBJECT, "shown"),
	FIELD("Hostname", BODY_TEXT, "its name inside"), FIELD("Image", BODY_TEXT, "its root"),
	FIELD("Labels", BODY_MAP, "to find it by"),
	FIELD("NetworkDisabled", BODY_FLAG, "no network"),
	FIELD("OpenStdin", BODY_FLAG, "it has input"),
	FIELD("StdinOnce", BODY_FLAG, "which ends with the first client's"),
	FIELD("StopSignal", BODY_TEXT, "TERM"), FIELD("StopTimeout", BODY_INTEGER, "seconds"),
	FIELD("Tty", BODY_FLAG, "a terminal"), FIELD("User", BODY_TEXT, "who runs it"),
	FIELD("Volumes", BODY_OBJECT, "directories"),
	FIELD("WorkingDir", BODY_PATH, "where it starts"));

/* Some clients send one string for a list of one. */
static void make_list(json_t *body, const char *key)
{
	json_t *value = json_object_get(body, key);

	if (json_is_string(value))
		json_object_set_new(body, key, json_pack("[O]", value));
}

struct making {
	struct exchange *x;
	struct container *c; /* held */
	json_t *config, *host, *image, *warnings, *dirs;
	struct create_options o;
	size_t dir, volume;
};

static void making_done(void *data)
{
	struct making *m = data;

	json_decref(m->config);
	json_decref(m->host);
	json_decref(m->image);
	json_decref(m->warnings);
	json_decref(m->dirs);
	create_options_done(&m->o);
	if (m->c)
		container_release(m->c);
}

/* ---- what runs, and where ---- */

static bool is_list_of_one_blank(const json_t *list)
{
	return json_array_size(list) == 1 && !json_string_length(json_array_get(list, 0));
}

/* An entrypoint of the request takes the image's command away, too. */
static json_t *make_argv(const struct making *m)
{
	const json_t *entry = json_object_get(m->config, "Entrypoint"),
		     *cmd = json_object_get(m->config, "Cmd");
	bool is_cleared = json_is_array(json_object_get(m->x->json, "Entrypoint"));
	json_t *argv = json_array();

	if (is_list_of_one_blank(entry))
		entry = NULL;
	if (!entry && !is_cleared)
		entry = json_object_get(m->image, "entrypoint");
	if (!cmd && !is_cleared)
		cmd = json_object_get(m->image, "cmd");
	if (entry)
		json_array_extend(argv, (json_t *)entry);
	if (cmd)
		json_array_extend(argv, (json_t *)cmd);
	return argv;
}

static const char *workdir_of(const struct making *m)
{
	const char *own = body_text(m->config, "WorkingDir"),
		   *image = body_text(m->image, "workdir");

	return own ? own : image ? image : "/";
}

static int add_env(struct making *m, struct err *e)
{
	const json_t *item;
	size_t i;

	json_array_foreach (json_object_get(m->config, "Env"), i, item) {
		const char *text = json_string_value(item);

		if (text[0] == '=' || !text[0])
			return err_field(e, ERR_INVALID, "Env",
					 "invalid environment variable: %.60s", text);
		/* A name alone takes a variable away, which the image's own list cannot. */
		if (strchr(text, '='))
			list_add(&m->o.env, text);
	}
	return 0;
}

static bool is_root_name(const char *user)
{
	size_t len = strcspn(user, ":");

	return (len == 1 && user[0] == '0') || (len == 4 && memcmp(user, "root", 4) == 0);
}

static bool has_variable(const json_t *env, const char *name)
{
	size_t len = strlen(name);
	json_t *item;
	size_t i;

	json_array_foreach ((json_t *)env, i, item) {
		const char *text = json_string_value(item);

		if (strncmp(text, name, len) == 0 && text[len] == '=')
			return true;
	}
	return false;
}

static void add_default(struct making *m, const char *name, const char *value)
{
	if (!has_variable(json_object_get(m->config, "Env"), name) &&
	    !has_variable(json_object_get(m->image, "env"), name))
		list_take(&m->o.env, str_format("%s=%s", name, value));
}

/* As in Docker. The sandbox's own root may be decided by the image. */
static void add_defaults(struct making *m)
{
	const char *user = body_text(m->config, "User"), *image = body_text(m->image, "user");
	bool may = m->x->caller.root || !m->x->caller.token[0];

	add_default(m, "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
	add_default(m, "HOSTNAME", m->o.spec.hostname);
	if (may && !str_equal(body_text(m->config, "Image"), "host") &&
	    is_root_name(user	 ? user
			 : image ? image
				 : "0"))
		add_default(m, "HOME", "/root");
}

/* ---- the user ---- */

int user_read(const struct sandbox_spec *spec, const char *user, const char **ret, struct err *e)
{
	bool is_root = user && *user && is_root_name(user);

	if (is_root && !spec_wants_root(spec))
		return err_field(e, ERR_DENIED, "User",
				 "User: this container has no root inside: its image's USER is "
				 "another one, or the token has not got the right (cloche token "
				 "create --root)");
	*ret = !user || !*user ? NULL : is_root ? "root" : "user";
	return 0;
}

/* The image's USER, if none is named. Every user but root is uid 1000 inside. */
static int take_user(struct making *m, struct err *e)
{
	const char *user = body_text(m->config, "User"), *image = body_text(m->image, "user");
	bool may = m->x->caller.root || !m->x->caller.token[0];

	if (user && is_root_name(user))
		return spec_set(&m->o.spec, "user", "root", e);
	if (user) {
		m->o.keeps_user = true;
		if (!str_starts(user, "1000"))
			json_array_append_new(
				m->warnings,
				json_sprintf(
					"User: '%.60s' is the sandbox's own user here, uid 1000",
					user));
	} else if (!may && (!image || is_root_name(image)) && m->o.spec.image &&
		   !str_equal(m->o.spec.image, "host")) {
		json_array_append_new(
			m->warnings,
			json_string(
				"User: the image's is root, and this token has no right to root "
				"inside: commands run as uid 1000"));
	}
	return 0;
}

/* ---- the options ---- */

static int take_image(struct making *m, struct err *e)
{
	const char *name = body_text(m->config, "Image");

	if (!name)
		return err_field(e, ERR_INVALID, "Image", "no image was named");
	m->image = manager_image(m->x->api->manager, &m->x->caller, name, e);
	if (!m->image)
		return err_field(e, ERR_NOT_FOUND, "Image", "No such image: %.200s", name);
	return spec_set(&m->o.spec, "image", name, e);
}

static int add_dirs(struct making *m, struct err *e)
{
	const json_t *value;
	const char *path;

	if (body_has(m->config, "WorkingDir"))
		json_array_append(m->dirs, json_object_get(m->config, "WorkingDir"));
	json_object_foreach (json_object_get(m->config, "Volumes"), path, value)
		json_array_append_new(m->dirs, json_string(path));
	if (json_array_size(m->dirs) > DIRS_MAX)
		return err_field(e, ERR_LIMIT, "Volumes", "Volumes: more than %d", DIRS_MAX);
	return 0;
}

static void take_alias(struct making *m)
{
	const char *mode = body_text(m->host, "NetworkMode");
	const json_t *ends = json_object_get(json_object_get(m->x->json, "NetworkingConfig"),
					     "EndpointsConfig"),
		     *aliases = json_object_get(json_object_get(ends, mode), "Aliases");

	choose_alias(aliases, m->c->id, m->o.name);
	container_join(m->c, segment_find(*exchange_networks(m->x), mode)->name, aliases);
	/* Of a network that was named by its id. */
	json_object_set_new(m->host, "NetworkMode",
			    json_string(segment_find(*exchange_networks(m->x), mode)->name));
}

static int fill_options(struct making *m, struct err *e)
{
	const struct config *c = m->x->api->config;
	const char *hostname = body_text(m->config, "Hostname");
	struct create_options *o = &m->o;
	struct wanted w = {m->x, m->config,   json_object_get(m->x->json, "HostConfig"),
			   o,	 m->warnings, m->dirs};
	char short_id[13];

	snprintf(short_id, sizeof(short_id), "%s", m->c->id);
	snprintf(o->door, sizeof(o->door), "docker");
	snprintf(o->name, sizeof(o->name), "%s", m->c->name);
	/* A container has no age of its own. The operator's ceilings hold. */
	o->ttl_ms = c->max_ttl_ms;
	o->idle_ms = c->max_idle_ms;
	if (take_image(m, e) < 0 || host_read(&w, e) < 0 || take_user(m, e) < 0 ||
	    add_env(m, e) < 0 || add_dirs(m, e) < 0 ||
	    spec_set(&o->spec, "workdir", workdir_of(m), e) < 0 ||
	    spec_set(&o->spec, "hostname", hostname ? hostname : short_id, e) < 0)
		return -1;
	spec_fit_disk(&o->spec);
	if (spec_finish(&o->spec, e) < 0)
		return -1;
	add_defaults(m);
	if (o->spec.net == NET_ISOLATED)
		take_alias(m);
	return 0;
}

/* ---- the record ---- */

static const char *text_or(const char *text, const char *otherwise)
{
	return text ? text : otherwise;
}

/* Config and HostConfig as inspect shows them: what was asked for, with the image's own where it counts. */
static int fill_record(struct making *m, struct err *e)
{
	json_t *argv = make_argv(m), *env = json_array(), *record = m->c->record;

	for (size_t i = 0; i < m->o.env.count; i++)
		json_array_append_new(env, json_string(m->o.env.items[i]));
	if (json_object_get(m->image, "env"))
		json_array_extend(env, json_object_get(m->image, "env"));
	json_object_set_new(m->config, "Env", env);
	json_object_set_new(m->config, "WorkingDir", json_string(workdir_of(m)));
	if (!json_object_get(m->config, "Labels"))
		json_object_set_new(m->config, "Labels", json_object());
	if (!json_object_get(m->config, "Hostname"))
		json_object_set_new(m->config, "Hostname", json_string(m->o.spec.hostname));
	json_object_set_new(m->host, "NetworkMode",
			    json_string(text_or(body_text(m->host, "NetworkMode"), "default")));
	json_object_set(m->host, "ConsoleSize",
			json_object_get(json_object_get(m->x->json, "HostConfig"), "ConsoleSize"));
	json_object_set(record, "config", m->config);
	json_object_set(record, "host", m->host);
	json_object_set_new(record, "image", json_incref(json_object_get(m->image, "id")));
	json_object_set_new(record, "workdir", json_string(workdir_of(m)));
	json_object_set_new(record, "argv", argv);
	if (!json_array_size(argv))
		return err_field(e, ERR_INVALID, "Cmd", "no command specified");
	return container_save(m->c, e);
}

static int read_all(struct making *m, struct err *e)
{
	json_t *body = m->x->json, *host = json_object_get(body, "HostConfig");

	if (!json_is_object(body))
		return err_set(e, ERR_INVALID, "the body is not a JSON object");
	make_list(body, "Cmd");
	make_list(body, "Entrypoint");
	m->config = docker_body(body, &config_table, e);
	m->host = m->config ? docker_body(host, &host_table, e) : NULL;
	if (!m->host || !docker_labels_fit(json_object_get(m->config, "Labels"), e))
		return -1;
	m->c = container_new(m->x, exchange_arg(m->x, "name"), e);
	if (!m->c)
		return -1;
	container_hold(m->c);
	if (fill_options(m, e) < 0 || fill_record(m, e) < 0)
		return -1;
	if (container_too_long(m->c))
		return err_set(e, ERR_LIMIT, "the container's configuration is too long");
	m->o.door_data = json_pack("{s:o}", "docker", json_deep_copy(m->c->record));
	return manager_times_check(m->x->api->manager, &m->o.ttl_ms, &m->o.idle_ms, e);
}

/* ---- the sandbox ---- */

static bool is_offered(const struct config *c, const char *volume)
{
	for (uint32_t i = 0; i < c->volume_count; i++)
		if (str_equal(c->volumes[i].name, volume))
			return true;
	return false;
}

static void answer_made(struct making *m)
{
	exchange_json(m->x, 201, json_pack("{s:s,s:O}", "Id", m->c->id, "Warnings", m->warnings));
}

/* One directory after the other; one that cannot be made is missed when it is used. */
static void make_dirs(void *arg, const struct answer *a, const struct err *e)
{
	struct making *m = arg;
	const char *path = json_string_value(json_array_get(m->dirs, m->dir++));

	if (path && !m->c->is_gone)
		call_mkdir(m->c->s, path, 0755, true, make_dirs, m);
	else
		answer_made(m);
}

static void on_published(void *arg, struct sandbox *s, const struct err *e)
{
	struct making *m = arg;

	if (!e) {
		make_dirs(m, NULL, NULL);
		return;
	}
	sandbox_destroy(s, NULL, NULL, NULL);
	exchange_error(m->x, e);
}

static void on_made(void *arg, struct sandbox *s, const struct err *e)
{
	struct making *m = arg;

	if (!s) {
		container_end(m->c);
		exchange_error(m->x, e);
		return;
	}
	container_made(m->c, s);
	docker_event(m->c, "create", NULL, NULL);
	if (sandbox_publish(s)->count)
		server_publish(m->x->api->server, s, on_published, m);
	else
		make_dirs(m, NULL, NULL);
}

/* Volumes that are not there are made, as Docker does it; those that are need nothing. */
static void make_volumes(void *arg, json_t *value, const struct err *e)
{
	struct making *m = arg;
	struct volume_wish wish = {.bytes = DOCKER_VOLUME};

	json_decref(value);
	if (e && e->kind && e->kind != ERR_CONFLICT) {
		container_end(m->c);
		exchange_error(m->x, e);
	} else if (m->volume < m->o.volume_count) {
		wish.name = m->o.volumes[m->volume++].name;
		if (is_offered(m->x->api->config, wish.name))
			make_volumes(m, NULL, NULL);
		else
			manager_volume_make(m->x->api->manager, &m->x->caller, &wish, make_volumes,
					    m);
	} else {
		manager_create(m->x->api->manager, &m->x->caller, &m->o, on_made, m);
	}
}

void docker_create(struct exchange *x)
{
	struct making *m = must_alloc(calloc(1, sizeof(*m)));
	struct err e = {0};

	m->x = x;
	m->warnings = json_array();
	m->dirs = json_array();
	create_options_for(&m->o, x->api->manager, &x->caller);
	exchange_also_free(x, m, making_done);
	if (read_all(m, &e) == 0) {
		make_volumes(m, NULL, NULL);
		return;
	}
	if (m->c)
		container_end(m->c);
	exchange_error(x, &e);
}
