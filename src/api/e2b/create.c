/* Creates sandboxes: translates E2B's NewSandbox into the options of the manager. */
#include "api/e2b/kernel_internal.h"

#include "image/image.h"
#include "policy/config.h"

#define READY_MS 50000 /* clients wait for a minute */

/* Built-in templates: the programs of the host, with the home and user of E2B. */
static const char *const templates[] = {"base", "code-interpreter-v1", "code-interpreter-beta"};

bool e2b_is_builtin(const char *template)
{
	for (size_t i = 0; i < ARRAY_LEN(templates); i++)
		if (str_equal(templates[i], template))
			return true;
	return false;
}

/* Every image of the operator's, and of the caller's own, is a template. */
bool e2b_is_image(const struct exchange *x, const char *template)
{
	return !str_equal(template, "host") &&
	       manager_has_image(x->api->manager, &x->caller, template);
}

void e2b_unbuilt(struct exchange *x)
{
	e2b_fail(x, 501,
		 "%.60s: not offered here; templates are 'base', 'code-interpreter-v1', "
		 "images and your snapshots",
		 x->path);
}

/* Is the member a list or an object that is not empty? */
static bool asks_for(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	return json_array_size(v) > 0 || json_object_size(v) > 0;
}

/* Settings about who may come in belong to the creation: a change of the rules keeps them. */
static json_t *new_network(const json_t *wanted, const json_t *data)
{
	static const char *const kept[] = {"allowPublicTraffic", "maskRequestHost"};
	const json_t *old = json_object_get(data, "network");
	json_t *all = must_alloc(json_copy((json_t *)wanted));

	for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
		json_object_del(all, kept[i]);
		if (json_object_get(old, kept[i]))
			json_object_set(all, kept[i], json_object_get(old, kept[i]));
	}
	return all;
}

/* data: what this door keeps of the sandbox; the caller's. */
static void keep_note(json_t *data, const char *note)
{
	if (*note)
		json_object_set_new(data, "networkNote", json_string(note));
	else
		json_object_del(data, "networkNote");
}

/* The sandbox's network is that of x->data. */
static void on_network_changed(void *arg, struct sandbox *s, const struct err *e)
{
	struct exchange *x = arg;
	struct err why = {0};

	if (!s) {
		exchange_error(x, e);
		return;
	}
	if (sandbox_set_door_data(s, json_incref(*(json_t **)x->data), &why) < 0)
		exchange_error(x, &why);
	else
		e2b_empty(x);
}

static void data_done(void *data)
{
	json_decref(*(json_t **)data);
}

void e2b_network(struct exchange *x, struct sandbox *s)
{
	struct sandbox_spec spec;
	char note[E2B_NOTE];
	struct err e = {0};
	json_t *data;

	if (!json_is_object(x->json)) {
		e2b_fail(x, 400, "the body is not a JSON object");
		return;
	}
	spec_init(&spec);
	if (e2b_network_wanted(x, x->json, &spec, note, &e) < 0 || spec_finish(&spec, &e) < 0) {
		exchange_error(x, &e);
		spec_done(&spec);
		return;
	}
	data = json_object();
	json_object_update(data, (json_t *)e2b_data(s));
	json_object_set_new(data, "network", new_network(x->json, data));
	keep_note(data, note);
	*(json_t **)exchange_attach(x, sizeof(data), data_done) = data;
	sandbox_set_network(s, &x->caller, &spec, on_network_changed, x);
	spec_done(&spec);
}

/* ---- the request ---- */

static void options_done(void *data)
{
	create_options_done(data);
}

static int refuse_unsupported(const json_t *in, struct err *e)
{
	static const char *const unable[] = {"mcp", "iam"};

	for (size_t i = 0; i < ARRAY_LEN(unable); i++)
		if (asks_for(in, unable[i]))
			return err_field(e, ERR_UNSUPPORTED, unable[i], "%s: not offered here",
					 unable[i]);
	return 0;
}

static bool may_be_root(const struct exchange *x)
{
	return x->caller.root || !x->caller.token[0];
}

/* What the template's build has said of its sandboxes. The image is the caller's, so all of it is checked as a request's. */
static int take_labels(const struct exchange *x, struct create_options *o, const char *template,
		       struct err *e)
{
	const struct image_record *r = manager_record_of(x->api->manager, &x->caller, template);

	if (!r || !r->template)
		return 0;
	if (r->workdir) {
		if (spec_set(&o->spec, "workdir", r->workdir, e) < 0)
			return -1;
		json_object_set_new(o->door_data, "workdir", text_json_of(r->workdir));
	}
	if ((r->cpus && spec_set(&o->spec, "cpus", r->cpus, e) < 0) ||
	    (r->memory && spec_set(&o->spec, "memory", r->memory, e) < 0))
		return -1;
	/* What is written may be kept in memory, and a template says nothing of disks. */
	if (r->memory && o->spec.limits.disk_bytes > o->spec.limits.memory_bytes)
		o->spec.limits.disk_bytes = o->spec.limits.memory_bytes / 2;
	if (r->ready)
		json_object_set_new(o->door_data, "ready", text_json_of(r->ready));
	if (r->start) {
		list_add(&o->services, r->start);
		snprintf(o->services_user, sizeof(o->services_user), "user");
	}
	return 0;
}

/*
 * E2B's default user is `user`, whatever the image says. With root inside, `user: "root"` is root: if the token has
 * the right, and the root is not the host's.
 */
static int take_template(const struct exchange *x, struct create_options *o, const char *template,
			 struct err *e)
{
	o->keeps_user = true;
	if (spec_set(&o->spec, "workdir", "/home/user", e) < 0)
		return -1;
	if (e2b_is_builtin(template) || !e2b_is_image(x, template))
		return 0;
	if (may_be_root(x) && spec_set(&o->spec, "user", "root", e) < 0)
		return -1;
	if (take_labels(x, o, template, e) < 0)
		return -1;
	return spec_set(&o->spec, "image", template, e);
}

/* Reads everything but the template. */
static int read_request(const struct exchange *x, struct create_options *o, const char *template,
			struct err *e)
{
	const json_t *in = x->json, *network = json_object_get(in, "network");
	bool older = str_equal(x->path, "/sandboxes");
	json_t *metadata = json_object_get(in, "metadata"), *env = json_object_get(in, "envVars");
	char note[E2B_NOTE];

	if (refuse_unsupported(in, e) < 0 || e2b_take_mounts(in, o, e) < 0 ||
	    e2b_network_wanted(x, network, &o->spec, note, e) < 0 ||
	    e2b_strings(metadata, "metadata", 1000, NULL, e) < 0 ||
	    e2b_strings(env, "envVars", 1000, &o->env, e) < 0 ||
	    e2b_seconds(in, "timeout", older ? 15 : 300, &o->ttl_ms, e) < 0)
		return -1;
	o->ttl_ms = o->ttl_ms ? o->ttl_ms : 1; /* 0 means "now" to E2B and "never" to the manager */
	o->metadata = json_is_object(metadata) ? json_deep_copy(metadata) : NULL;
	o->pause_on_timeout = json_is_true(json_object_get(in, "autoPause"));
	o->auto_resume =
		json_is_true(json_object_get(json_object_get(in, "autoResume"), "enabled"));
	/* E2B has no idle timeout, so only the ceiling of the operator applies. */
	o->idle_ms = x->api->config->max_idle_ms;
	snprintf(o->door, sizeof(o->door), "e2b");
	o->door_data = e2b_data_new(template,
				    !json_is_false(json_object_get(network, "allowPublicTraffic")));
	json_object_update_new(o->door_data,
			       json_pack("{s:b,s:b,s:o*,s:o*}", "pauses", o->pause_on_timeout,
					 "resumes", o->auto_resume, "env", json_deep_copy(env),
					 "network",
					 json_is_object(network) ? json_deep_copy(network) : NULL));
	keep_note(o->door_data, note);
	return take_template(x, o, template, e) < 0 ? -1 : spec_finish(&o->spec, e);
}

/* ---- a new sandbox: programs that E2B's templates have under another name ---- */

static const struct file_mode users_home = {.mode = UINT32_MAX, .uid = 1000, .gid = 1000};

struct newborn {
	struct exchange *x;
	char id[IPC_ID];
	size_t at, tried; /* of pythons and new_pythons: how many were looked at */
};

/* Many systems have only python3. */
static const struct {
	const char *path;
	bool is_needed;
} pythons[] = {
	{"/usr/local/bin/python", false},
	{"/usr/bin/python", false},
	{"/usr/bin/python3", true},
};

/* ---- the ready command of its template ---- */

static void never_ready(void *arg, struct sandbox *s, const struct err *e)
{
	e2b_fail(arg, 500, "the ready command of the template did not succeed within %d s",
		 READY_MS / 1000);
}

static void answer_newborn(struct newborn *b);

static void ready_ended(void *arg, const struct outcome *o)
{
	struct newborn *b = arg;
	struct sandbox *s = e2b_running(b->x->api, b->id);

	if (s && (o->signal || o->exit_code))
		sandbox_destroy(s, &b->x->caller, never_ready, b->x);
	else
		answer_newborn(b);
}

static void ready_failed(void *arg, const struct err *e)
{
	struct newborn *b = arg;

	exchange_error(b->x, e);
}

/* Tried again and again: it may be about something that its start command makes. */
static void await_ready(struct newborn *b, struct sandbox *s)
{
	static const char script[] =
		"sh=/bin/sh; [ -x /bin/bash ] && sh=/bin/bash; "
		"until $sh -c \"$0\" >/dev/null 2>&1; do sleep 0.1 2>/dev/null || sleep 1; done";
	static const struct exec_ops ops = {.on_exit = ready_ended, .on_error = ready_failed};
	const char *const argv[] = {"/bin/sh", "-c", script, e2b_data_text(s, "ready"), NULL};
	struct exec_request r = {.user = "user",
				 .cwd = e2b_data_text(s, "workdir"),
				 .tag = E2B_HIDDEN_TAG "ready",
				 .timeout_ms = READY_MS,
				 .no_stdin = true};

	list_add_all(&r.argv, argv);
	exec_start(s, &b->x->caller, &r, &ops, b);
	list_done(&r.argv);
}

static void reply_newborn(struct newborn *b)
{
	struct sandbox *s = e2b_running(b->x->api, b->id);

	if (s && *e2b_data_text(s, "ready"))
		await_ready(b, s);
	else
		answer_newborn(b);
}

static void answer_newborn(struct newborn *b)
{
	struct exchange *x = b->x;
	struct sandbox *s = manager_find_any(x->api->manager, b->id);

	if (!s || !e2b_state(s)) {
		e2b_fail(x, 500, "the sandbox is already gone");
		return;
	}
	if (e2b_running(x->api, b->id) &&
	    str_starts(e2b_data_text(s, "template"), "code-interpreter"))
		kernel_expect(x->api, s);
	exchange_json(x, 201, e2b_sandbox_json(x, s));
}

static const char *const new_pythons[] = {"/usr/local/bin/python", "/home/user/.local/bin/python"};

/* Tries one place after the other; the first cannot be written to if the daemon is not root. */
static void place_python(void *arg, const struct answer *a, const struct err *e)
{
	static const char script[] = "#!/bin/sh\nexec python3 \"$@\"\n";
	struct newborn *b = arg;
	struct sandbox *s = e2b_running(b->x->api, b->id);
	struct file_put put = {.mode = 0755, .bytes = script, .len = sizeof(script) - 1};

	if (a || !s || b->tried == ARRAY_LEN(new_pythons)) {
		reply_newborn(b);
		return;
	}
	put.path = new_pythons[b->tried++];
	call_put(s, &put, place_python, b);
}

/*
 * Looks at one place after the other; if only python3 is there, writes a python that is python3. Before
 * the kernels are started: they notice changes in the directories of programs.
 */
static void python_seen(void *arg, const struct answer *a, const struct err *e)
{
	struct newborn *b = arg;
	struct sandbox *s = e2b_running(b->x->api, b->id);

	if (e && e->errnum != ENOENT)
		s = NULL;
	if (!s || (b->at && pythons[b->at - 1].is_needed != !e))
		reply_newborn(b);
	else if (b->at < ARRAY_LEN(pythons))
		call_stat(s, pythons[b->at++].path, true, python_seen, b);
	else
		place_python(b, NULL, NULL);
}

/* With root inside the home is root's at first, but E2B's default user is another one. */
static void home_given(void *arg, const struct answer *a, const struct err *e)
{
	python_seen(arg, NULL, NULL);
}

static void sandbox_made(void *arg, struct sandbox *s, const struct err *e)
{
	struct exchange *x = arg;
	struct newborn *b;

	if (!s) {
		exchange_error(x, e);
		return;
	}
	b = must_alloc(calloc(1, sizeof(*b)));
	b->x = x;
	snprintf(b->id, sizeof(b->id), "%s", sandbox_id(s));
	exchange_also_free(x, b, NULL);
	if (spec_wants_root(sandbox_spec(s)))
		call_chmod(s, "/home/user", &users_home, home_given, b);
	else
		python_seen(b, NULL, NULL);
}

static void make_sandbox(struct exchange *x)
{
	manager_create(x->api->manager, &x->caller, x->data, sandbox_made, x);
}

/* A snapshot of an image: as with the image itself. */
static void take_root(const struct exchange *x, struct create_options *o, const json_t *listing)
{
	const json_t *all = json_object_get(listing, "snapshots"), *one;
	struct err ignored;
	size_t i;

	json_array_foreach (all, i, one) {
		const char *image = json_string_value(json_object_get(one, "image"));

		if (str_equal(json_string_value(json_object_get(one, "id")), o->snapshot) &&
		    image && str_starts(image, "sha256:") && may_be_root(x))
			(void)!spec_set(&o->spec, "user", "root", &ignored);
	}
}

static void create_from_snapshot(void *arg, json_t *value, const struct err *e)
{
	struct exchange *x = arg;
	struct create_options *o = x->data;
	const char *template = json_string_value(json_object_get(x->json, "templateID"));
	const char *id = e2b_snapshot_id(value, template);

	if (id) {
		snprintf(o->snapshot, sizeof(o->snapshot), "%s", id);
		take_root(x, o, value);
		make_sandbox(x);
	} else {
		e2b_fail(x, 404, "template '%.80s' not found", template);
	}
	json_decref(value);
}

void e2b_create(struct exchange *x)
{
	const char *asked = json_string_value(json_object_get(x->json, "templateID"));
	auto_free char *template = NULL;
	struct create_options *o;
	struct err e = {0};

	if (!json_is_object(x->json) || !asked || !*asked || strlen(asked) > 200) {
		e2b_fail(x, 400, "templateID: is missing or not a template's name");
		return;
	}
	template = e2b_image_of(x, asked);
	o = exchange_attach(x, sizeof(*o), options_done);
	create_options_for(o, x->api->manager, &x->caller);
	if (read_request(x, o, template, &e) < 0)
		exchange_error(x, &e);
	else if (e2b_is_builtin(template) || e2b_is_image(x, template))
		make_sandbox(x);
	else
		manager_own_snapshots(x->api->manager, &x->caller, create_from_snapshot, x);
}
