/*
 * The control plane: sandboxes as E2B's REST API shows them. The key comes in X-API-KEY. Errors repeat
 * the status as "code", because clients look there.
 */
#include "api/e2b/e2b_internal.h"

#include "policy/config.h"

#include <strings.h>

json_t *e2b_time(uint64_t unix_ms)
{
	char text[UTC_TEXT];

	utc_text(unix_ms / 1000, (uint32_t)(unix_ms % 1000) * 1000000, 3, text);
	return must_alloc(json_string(text));
}

void e2b_empty(struct exchange *x)
{
	exchange_reply(x, 204, NULL, "", 0);
}

void e2b_answer_empty(void *arg, json_t *value, const struct err *e)
{
	json_decref(value);
	if (e)
		exchange_error(arg, e);
	else
		e2b_empty(arg);
}

bool e2b_parse_time(const char *text, uint64_t *ret_ms)
{
	struct tm t = {0};
	const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &t);
	uint64_t ms = 0, unit = 100;

	if (rest && *rest == '.')
		for (rest++; *rest >= '0' && *rest <= '9'; rest++, unit /= 10)
			ms += (uint64_t)(*rest - '0') * unit;
	*ret_ms = rest ? (uint64_t)timegm(&t) * 1000 + ms : 0;
	return rest && (!*rest || str_equal(rest, "Z") || str_equal(rest, "+00:00"));
}

const char *e2b_state(const struct sandbox *s)
{
	static const char *const names[STATE_COUNT] = {
		[STATE_RUNNING] = "running",	 [STATE_STARTING] = "running",
		[STATE_UNREACHABLE] = "running", /* the service has no other name for it */
		[STATE_PAUSED] = "paused",	 [STATE_STOPPED] = "paused",
	};

	return names[sandbox_state(s)];
}

void e2b_control(struct exchange *x)
{
	const struct e2b_control *c = x->route->describe;
	struct err e = {0};
	struct sandbox *s = manager_find(x->api->manager, &x->caller, x->params[0], &e);

	if (s && e2b_state(s))
		c->call(x, s);
	else
		e2b_fail(x, 404, "sandbox \"%.40s\" not found", x->params[0]);
}

/* Is the host, with a port or not, this domain or a name below it? */
static bool is_below(const char *host, const char *domain)
{
	size_t len = strcspn(host, ":"), end = strlen(domain);

	return end && len >= end && !strncasecmp(host + len - end, domain, end) &&
	       (len == end || host[len - end - 1] == '.');
}

/*
 * The domain below which ports have host names, from the Host header of this request. Without it clients
 * would build names in E2B's own domain. null if there is none, as for an address in digits. Hosts in the daemon's
 * own domain (http.domain), such as api.DOMAIN, have that domain.
 */
static json_t *domain_json(const struct exchange *x)
{
	static const char letters[] = STR_ALNUM ".-_:[]";
	const char *host = exchange_header(x, "Host"), *port;
	char text[300];

	if (!host || !*host || strlen(host) > 250 || strspn(host, letters) != strlen(host))
		return json_null();
	port = strrchr(host, ':');
	if (str_starts(host, "127.") || str_starts(host, "[::1]")) {
		snprintf(text, sizeof(text), "localhost%s", port && !strchr(port, ']') ? port : "");
		return must_alloc(json_string(text));
	}
	if (is_below(host, x->api->config->domain)) {
		snprintf(text, sizeof(text), "%s%s", x->api->config->domain, port ? port : "");
		return must_alloc(json_string(text));
	}
	if (host[0] == '[' || strspn(host, "0123456789.:") == strlen(host))
		return json_null();
	return must_alloc(json_string(host));
}

json_t *e2b_sandbox_json(struct exchange *x, struct sandbox *s)
{
	const char *traffic;

	e2b_data(s);
	traffic = e2b_data_text(s, "traffic");
	return must_alloc(json_pack("{s:s,s:s,s:s,s:s,s:s,s:o,s:s*}", "sandboxID", sandbox_id(s),
				    "templateID", e2b_data_text(s, "template"), "clientID",
				    "cloche", "envdVersion", E2B_ENVD_VERSION, "envdAccessToken",
				    e2b_data_text(s, "access"), "domain", domain_json(x),
				    "trafficAccessToken", *traffic ? traffic : NULL));
}

static json_t *detail_json(const struct exchange *x, struct sandbox *s)
{
	const json_t *data = sandbox_door_data(s);
	bool pauses = json_is_true(json_object_get(data, "pauses"));

	return must_alloc(json_pack("{s:s*,s:o,s:b,s:O*,s:{s:s,s:b},s:O*}", "envdAccessToken",
				    data ? e2b_data_text(s, "access") : NULL, "domain",
				    domain_json(x), "allowInternetAccess",
				    sandbox_network_mode(s) != NET_NONE, "networkNote",
				    json_object_get(data, "networkNote"), "lifecycle", "onTimeout",
				    pauses ? "pause" : "kill", "autoResume",
				    json_is_true(json_object_get(data, "resumes")), "network",
				    json_object_get(data, "network")));
}

json_t *e2b_listed_json(const struct exchange *x, struct sandbox *s)
{
	const struct limits *l = &sandbox_spec(s)->limits;
	const json_t *metadata = sandbox_metadata(s);
	uint64_t ends = sandbox_expires_ms(s);
	const char *template = e2b_data_text(s, "template");
	json_t *o;

	template = *template ? template : "base";
	o = must_alloc(json_pack(
		"{s:s,s:s,s:s,s:s,s:o,s:o,s:i,s:i,s:i,s:s,s:s}", "sandboxID", sandbox_id(s),
		"templateID", template, "alias", template, "clientID", "cloche", "startedAt",
		e2b_time(sandbox_started_ms(s)), "endAt",
		e2b_time(ends ? ends : sandbox_started_ms(s)), "cpuCount",
		(int)((l->cpus_milli + 999) / 1000), "memoryMB", (int)(l->memory_bytes >> 20),
		"diskSizeMB", (int)(l->disk_bytes >> 20), "state",
		e2b_state(s) ? e2b_state(s) : "running", "envdVersion", E2B_ENVD_VERSION));
	json_object_set_new(o, "metadata", metadata ? json_deep_copy(metadata) : json_object());
	if (x)
		json_object_update_new(o, detail_json(x, s));
	return o;
}

static void describe_sandbox(struct exchange *x, struct sandbox *s)
{
	exchange_json(x, 200, e2b_listed_json(x, s));
}

static void answer_empty(void *arg, struct sandbox *s, const struct err *e)
{
	struct exchange *x = arg;

	if (!s && e && e->kind != ERR_NONE)
		exchange_error(x, e);
	else
		e2b_empty(x);
}

static void kill_sandbox(struct exchange *x, struct sandbox *s)
{
	sandbox_destroy(s, &x->caller, answer_empty, x);
}

int e2b_seconds(const json_t *in, const char *key, uint64_t dflt, uint64_t *ret_ms, struct err *e)
{
	const json_t *v = json_object_get(in, key);

	if (v && !json_is_null(v) &&
	    (!json_is_integer(v) || json_integer_value(v) < 0 ||
	     json_integer_value(v) > 366 * 86400))
		return err_field(e, ERR_INVALID, key, "%s: not a number of seconds", key);
	*ret_ms = (json_is_integer(v) ? (uint64_t)json_integer_value(v) : dflt) * 1000;
	return 0;
}

/* Reads a number of seconds from the body of the request; false after a 400. */
static bool seconds_of(struct exchange *x, const char *key, uint64_t dflt, uint64_t *ret_ms)
{
	struct err e = {0};

	if (x->json && !json_is_object(x->json))
		err_set(&e, ERR_INVALID, "the body is not a JSON object");
	else if (e2b_seconds(x->json, key, dflt, ret_ms, &e) == 0)
		return true;
	exchange_error(x, &e);
	return false;
}

/* A TTL of 0 means "now" to E2B and "never" to the manager. */
static void change_ttl(struct exchange *x, struct sandbox *s, uint64_t ttl_ms, sandbox_done done)
{
	struct sandbox_change c = {.has_ttl = true, .ttl_ms = ttl_ms ? ttl_ms : 1};

	sandbox_change(s, &x->caller, &c, done, x);
}

static void set_timeout(struct exchange *x, struct sandbox *s)
{
	uint64_t ms;

	if (!seconds_of(x, "timeout", 0, &ms))
		return;
	if (!json_object_get(x->json, "timeout"))
		e2b_fail(x, 400, "timeout: is missing");
	else
		change_ttl(x, s, ms, answer_empty);
}

/* Does the sandbox live longer if it gets this TTL now? */
static bool is_longer(const struct sandbox *s, uint64_t ttl_ms)
{
	uint64_t ends = sandbox_expires_ms(s);

	return ends && unix_ms() + ttl_ms > ends;
}

/* A refresh never shortens the time left. */
static void refresh_timeout(struct exchange *x, struct sandbox *s)
{
	uint64_t ms;

	if (!seconds_of(x, "duration", 60, &ms))
		return;
	if (is_longer(s, ms))
		change_ttl(x, s, ms, answer_empty);
	else
		e2b_empty(x);
}

static void pause_sandbox(struct exchange *x, struct sandbox *s)
{
	if (str_equal(e2b_state(s), "paused"))
		e2b_fail(x, 409, "sandbox \"%s\" is already paused", sandbox_id(s));
	else if (json_is_false(json_object_get(x->json, "memory")))
		sandbox_stop(s, &x->caller, answer_empty, x);
	else
		sandbox_pause(s, &x->caller, answer_empty, x);
}

/* ---- connect and resume: the sandbox runs again, with a new timeout ---- */

struct revival {
	uint64_t ttl_ms;
	int status;
	bool reboot;
};

static void sandbox_ready(void *arg, struct sandbox *s, const struct err *e)
{
	struct exchange *x = arg;
	struct revival *r = x->data;

	if (s)
		exchange_json(x, r->status, e2b_sandbox_json(x, s));
	else
		exchange_error(x, e);
}

static void revival_running(void *arg, struct sandbox *s, const struct err *e);

static void revival_stopped(void *arg, struct sandbox *s, const struct err *e)
{
	struct exchange *x = arg;

	if (s)
		sandbox_start(s, &x->caller, revival_running, x);
	else
		sandbox_ready(x, s, e);
}

static void revival_running(void *arg, struct sandbox *s, const struct err *e)
{
	struct exchange *x = arg;
	struct revival *r = x->data;

	if (s && r->reboot) {
		r->reboot = false;
		sandbox_stop(s, &x->caller, revival_stopped, x);
	} else if (s) {
		change_ttl(x, s, r->ttl_ms, sandbox_ready);
	} else {
		sandbox_ready(arg, s, e);
	}
}

static void connect_sandbox(struct exchange *x, struct sandbox *s)
{
	const struct e2b_control *c = x->route->describe;
	bool is_paused = str_equal(e2b_state(s), "paused");
	struct revival *r;
	uint64_t ms;

	if (!seconds_of(x, "timeout", c->timeout_s, &ms))
		return;
	if (c->only_paused && !is_paused) {
		e2b_fail(x, 409, "sandbox \"%s\" is already running", sandbox_id(s));
		return;
	}
	r = exchange_attach(x, sizeof(*r), NULL);
	*r = (struct revival){.ttl_ms = ms, .status = is_paused ? 201 : 200};
	if (!is_paused && is_longer(s, ms)) {
		change_ttl(x, s, ms, sandbox_ready);
	} else if (!is_paused) {
		sandbox_ready(x, s, NULL);
	} else if (sandbox_state(s) == STATE_STOPPED) {
		sandbox_start(s, &x->caller, revival_running, x);
	} else {
		r->reboot = json_is_false(json_object_get(x->json, "memory"));
		sandbox_resume(s, &x->caller, revival_running, x);
	}
}

/* ---- the table ---- */

#define ON_SANDBOX(verb, path, scope, body, summary, ...)                                          \
	{                                                                                          \
		verb, path, e2b_control, scope, body, 0, summary, &(const struct e2b_control)      \
		{                                                                                  \
			.call = __VA_ARGS__                                                        \
		}                                                                                  \
	}

static const struct route routes[] = {
	{"POST", "/v2/sandboxes", e2b_create, SCOPE_RUN, BODY_JSON, 0, "Creates (E2B)", NULL},
	{"POST", "/sandboxes", e2b_create, SCOPE_RUN, BODY_JSON, 0, "Creates (E2B, older)", NULL},
	{"GET", "/v2/sandboxes", e2b_list, SCOPE_READ, BODY_NONE, 0, "Lists (E2B)", NULL},
	{"GET", "/sandboxes", e2b_list, SCOPE_READ, BODY_NONE, 0, "Lists running ones (E2B)", NULL},
	{"GET", "/sandboxes/metrics", e2b_metrics_many, SCOPE_READ, BODY_NONE, 0,
	 "Latest metrics of several (E2B)", NULL},
	ON_SANDBOX("POST", "/v2/sandboxes/{id}/connect", SCOPE_RUN, BODY_JSON,
		   "Resumes and extends (E2B)", connect_sandbox, .timeout_s = 300),
	ON_SANDBOX("POST", "/sandboxes/{id}/connect", SCOPE_RUN, BODY_JSON,
		   "Resumes and extends (E2B, older)", connect_sandbox, .timeout_s = 15),
	ON_SANDBOX("GET", "/sandboxes/{id}", SCOPE_READ, BODY_NONE, "Describes one (E2B)",
		   describe_sandbox),
	ON_SANDBOX("DELETE", "/sandboxes/{id}", SCOPE_RUN, BODY_JSON, "Kills one (E2B)",
		   kill_sandbox),
	ON_SANDBOX("POST", "/sandboxes/{id}/timeout", SCOPE_RUN, BODY_JSON,
		   "Sets the time left (E2B)", set_timeout),
	ON_SANDBOX("POST", "/sandboxes/{id}/refreshes", SCOPE_RUN, BODY_JSON,
		   "Lengthens the time left (E2B)", refresh_timeout),
	ON_SANDBOX("POST", "/sandboxes/{id}/pause", SCOPE_RUN, BODY_JSON, "Pauses (E2B)",
		   pause_sandbox),
	ON_SANDBOX("POST", "/sandboxes/{id}/resume", SCOPE_RUN, BODY_JSON, "Resumes (E2B)",
		   connect_sandbox, .timeout_s = 15, .only_paused = true),
	ON_SANDBOX("GET", "/sandboxes/{id}/metrics", SCOPE_READ, BODY_NONE,
		   "Metrics with their history (E2B)", e2b_metrics),
	ON_SANDBOX("PUT", "/sandboxes/{id}/network", SCOPE_RUN, BODY_JSON,
		   "Replaces the network rules (E2B)", e2b_network),
	ON_SANDBOX("POST", "/sandboxes/{id}/snapshots", SCOPE_RUN, BODY_JSON,
		   "Takes a snapshot (E2B)", e2b_snapshot),
	ON_SANDBOX("POST", "/sandboxes/{id}/fork", SCOPE_RUN, BODY_JSON, "Forks (E2B)", e2b_fork),
	{"GET", "/snapshots", e2b_snapshots, SCOPE_READ, BODY_NONE, 0, "Lists snapshots (E2B)",
	 NULL},
	{"GET", "/templates", e2b_templates, SCOPE_READ, BODY_NONE, 0, "Lists templates (E2B)",
	 NULL},
	{"POST", "/templates/tags", e2b_tags_assign, SCOPE_RUN, BODY_JSON, 0,
	 "Gives a template more tags (E2B)", NULL},
	{"DELETE", "/templates/tags", e2b_tags_remove, SCOPE_RUN, BODY_JSON, 0,
	 "Takes tags of a template away (E2B)", NULL},
	{"DELETE", "/templates/{id}", e2b_template_delete, SCOPE_RUN, BODY_JSON, 0,
	 "Deletes a template or a snapshot (E2B)", NULL},
	{"PATCH", "/v2/templates/{id}", e2b_template_publish, SCOPE_RUN, BODY_JSON, 0,
	 "Says who may use a template (E2B)", NULL},
	{"GET", "/templates/aliases/{alias}", e2b_alias, SCOPE_READ, BODY_NONE, 0,
	 "Looks a template up (E2B)", NULL},
	{"GET", "/templates/{id}/tags", e2b_template_tags, SCOPE_READ, BODY_NONE, 0,
	 "Lists the tags of a template (E2B)", NULL},
	{"POST", "/v3/templates", e2b_build_request, SCOPE_RUN, BODY_JSON, 0,
	 "Announces the build of a template (E2B)", NULL},
	{"POST", "/v2/templates", e2b_build_request, SCOPE_RUN, BODY_JSON, 0,
	 "Announces the build of a template (E2B, older)", NULL},
	{"GET", "/templates/{id}/files/{hash}", e2b_build_files, SCOPE_RUN, BODY_NONE, 0,
	 "Says where files of a build go (E2B)", NULL},
	{"PUT", "/templates/{id}/files/{hash}", e2b_build_upload, 0, BODY_STREAM, ROUTE_OWN_AUTH,
	 "Takes files of a build (E2B)", NULL},
	{"POST", "/v2/templates/{id}/builds/{build}", e2b_build_start, SCOPE_RUN, BODY_JSON, 0,
	 "Starts a build (E2B)", NULL},
	{"GET", "/templates/{id}/builds/{build}/status", e2b_build_status, SCOPE_RUN, BODY_NONE, 0,
	 "How far a build is (E2B)", NULL},
	{"POST", "/templates", e2b_unbuilt, 0, BODY_JSON, 0, "Builds a template (E2B)", NULL},
	{"POST", "/volumes", e2b_volume_create, SCOPE_RUN, BODY_JSON, 0, "Makes a volume (E2B)",
	 NULL},
	{"GET", "/volumes", e2b_volumes, SCOPE_READ, BODY_NONE, 0, "Lists volumes (E2B)", NULL},
	{"GET", "/volumes/{id}", e2b_volume_get, SCOPE_READ, BODY_NONE, 0, "Shows one (E2B)", NULL},
	{"DELETE", "/volumes/{id}", e2b_volume_delete, SCOPE_RUN, BODY_JSON, 0, "Deletes one (E2B)",
	 NULL},
	{"POST", "/secrets", e2b_secret_create, SCOPE_RUN, BODY_JSON, 0, "Stores a secret (E2B)",
	 NULL},
	{"GET", "/secrets", e2b_secrets, SCOPE_READ, BODY_NONE, 0, "Lists secrets (E2B)", NULL},
	{"GET", "/secrets/{name}", e2b_secret_get, SCOPE_READ, BODY_NONE, 0, "Shows one (E2B)",
	 NULL},
	{"POST", "/secrets/{name}", e2b_secret_update, SCOPE_RUN, BODY_JSON, 0,
	 "Changes its value (E2B)", NULL},
	{"DELETE", "/secrets/{name}", e2b_secret_delete, SCOPE_RUN, BODY_JSON, 0,
	 "Removes it (E2B)", NULL},
};

const struct door e2b_control_door = {
	DOOR_E2B, "e2b", routes, ARRAY_LEN(routes), NULL, e2b_error, NULL, NULL, NULL,
};
