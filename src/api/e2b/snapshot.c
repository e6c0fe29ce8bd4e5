/*
 * Snapshots and forks. To E2B clients a snapshot is a template: create takes its id as the templateID,
 * and it is deleted as a template. Named snapshots are called "cloche/NAME:default", the others
 * "ID:default"; a bare name and a bare id are accepted as well.
 */
#include "api/e2b/e2b_internal.h"

#define TEAM "cloche/"
#define TAG ":default"

static json_t *snapshot_json(const json_t *snapshot)
{
	const char *id = json_string_value(json_object_get(snapshot, "id"));
	const char *name = json_string_value(json_object_get(snapshot, "name"));
	bool is_named = name && *name;
	auto_free char *full =
		is_named ? str_format(TEAM "%s" TAG, name) : str_format("%s" TAG, id ? id : "");

	return must_alloc(
		json_pack("{s:s,s:[s*]}", "snapshotID", full, "names", is_named ? full : NULL));
}

static void snapshot_taken(void *arg, json_t *value, const struct err *e)
{
	struct exchange *x = arg;

	if (value)
		exchange_json(x, 201, snapshot_json(value));
	else
		exchange_error(x, e);
	json_decref(value);
}

/* The name without team ("cloche/") and tag (":default"). */
static char *bare_name(const char *text)
{
	const char *slash = strrchr(text, '/');
	char *name = str_copy(slash ? slash + 1 : text);

	name[strcspn(name, ":")] = '\0';
	return name;
}

void e2b_snapshot(struct exchange *x, struct sandbox *s)
{
	const json_t *name = json_object_get(x->json, "name");
	auto_free char *bare = NULL;

	if (name && !json_is_null(name) && !json_is_string(name)) {
		e2b_fail(x, 400, "name: not a string");
		return;
	}
	bare = bare_name(json_is_string(name) ? json_string_value(name) : "");
	if (strlen(bare) >= IPC_NAME)
		e2b_fail(x, 400, "name: at most %d characters", IPC_NAME - 1);
	else
		sandbox_snapshot(s, &x->caller, bare, snapshot_taken, x);
}

/* ---- finding, deleting and listing snapshots ---- */

static bool is_called(const json_t *snapshot, const char *bare)
{
	const char *id = json_string_value(json_object_get(snapshot, "id"));
	const char *name = json_string_value(json_object_get(snapshot, "name"));

	return *bare && ((id && str_equal(id, bare)) || (name && str_equal(name, bare)));
}

const char *e2b_snapshot_id(const json_t *snapshots, const char *template)
{
	auto_free char *bare = bare_name(template);
	const char *id = NULL;
	json_t *one;
	size_t i;

	json_array_foreach (json_object_get(snapshots, "snapshots"), i, one)
		if (is_called(one, bare))
			id = json_string_value(json_object_get(one, "id"));
	return id;
}

static void snapshot_deleted(void *arg, json_t *value, const struct err *e)
{
	struct exchange *x = arg;

	json_decref(value);
	if (e && e->kind != ERR_NONE)
		exchange_error(x, e);
	else
		e2b_empty(x);
}

static void delete_found_snapshot(void *arg, json_t *value, const struct err *e)
{
	struct exchange *x = arg;
	const char *id = e2b_snapshot_id(value, x->params[0]);

	if (id)
		manager_snapshot_delete(x->api->manager, &x->caller, id, snapshot_deleted, x);
	else
		e2b_fail(x, 404, "template \"%.80s\" not found", x->params[0]);
	json_decref(value);
}

void e2b_snapshot_delete(struct exchange *x)
{
	manager_own_snapshots(x->api->manager, &x->caller, delete_found_snapshot, x);
}

static bool is_listed(struct exchange *x, const json_t *one)
{
	const char *of = exchange_arg(x, "sandboxID"), *name = exchange_arg(x, "name");
	const char *sandbox = json_string_value(json_object_get(one, "sandbox"));
	auto_free char *bare = name ? bare_name(name) : NULL;

	if (of && *of && !(sandbox && str_equal(of, sandbox)))
		return false;
	return !bare || !*bare || is_called(one, bare);
}

static void snapshots_listed(void *arg, json_t *value, const struct err *e)
{
	struct exchange *x = arg;
	json_t *out, *one;
	uint64_t limit, from;
	struct err bad = {0};
	size_t i, seen = 0;
	char token[24];

	if (!value) {
		exchange_error(x, e);
		return;
	}
	if (exchange_arg_uint(x, "limit", 100, 100, &limit, &bad) < 0 ||
	    exchange_arg_uint(x, "nextToken", 0, UINT32_MAX, &from, &bad) < 0) {
		exchange_error_as(x, 400, &bad);
		json_decref(value);
		return;
	}
	out = must_alloc(json_array());
	json_array_foreach (json_object_get(value, "snapshots"), i, one) {
		if (!is_listed(x, one) || seen++ < from)
			continue;
		if (json_array_size(out) == (limit ? limit : 1)) {
			snprintf(token, sizeof(token), "%zu", seen - 1);
			exchange_set_header(x, "X-Next-Token", token);
			break;
		}
		json_array_append_new(out, snapshot_json(one));
	}
	exchange_json(x, 200, out);
	json_decref(value);
}

void e2b_snapshots(struct exchange *x)
{
	manager_snapshots(x->api->manager, &x->caller, snapshots_listed, x);
}

/* ---- forks ---- */

static void ignore_change(void *arg, struct sandbox *s, const struct err *e)
{
	(void)arg, (void)s, (void)e;
}

/* A fork gets its own access token: a signed address must lead to one sandbox only. */
static json_t *fork_json(struct exchange *x, const json_t *row)
{
	const json_t *sandbox = json_object_get(row, "sandbox"),
		     *error = json_object_get(row, "error");
	const char *id = json_string_value(json_object_get(sandbox, "id"));
	struct sandbox *s = id ? manager_find_any(x->api->manager, id) : NULL;
	const char *why = json_string_value(json_object_get(error, "message"));
	bool is_open;
	struct sandbox_change c = {.has_ttl = true};
	json_t *data;
	struct err e;

	if (!s)
		return json_pack("{s:{s:i,s:s}}", "error", "code", 500, "message",
				 why ? why : "the fork is already gone");
	/* A fork of a sandbox of another door opens no ports. */
	is_open = e2b_is_open(s);
	data = e2b_data_new(is_open ? e2b_data_text(s, "template") : "base",
			    is_open && !*e2b_data_text(s, "traffic"));
	if (is_open)
		json_object_update_missing(data, (json_t *)sandbox_door_data(s));
	if (sandbox_set_door_data(s, data, &e) < 0)
		return json_pack("{s:{s:i,s:s}}", "error", "code", 500, "message", e.msg);
	if (e2b_seconds(x->json, "timeout", 0, &c.ttl_ms, &e) == 0 && c.ttl_ms)
		sandbox_change(s, &x->caller, &c, ignore_change, NULL);
	return json_pack("{s:o}", "sandbox", e2b_sandbox_json(x, s));
}

static void reply_forks(void *arg, json_t *value, const struct err *e)
{
	struct exchange *x = arg;
	json_t *out, *row;
	size_t i;

	if (!value) {
		exchange_error(x, e);
		return;
	}
	out = must_alloc(json_array());
	json_array_foreach (json_object_get(value, "sandboxes"), i, row)
		json_array_append_new(out, must_alloc(fork_json(x, row)));
	exchange_json(x, 201, out);
	json_decref(value);
}

void e2b_fork(struct exchange *x, struct sandbox *s)
{
	const json_t *count = json_object_get(x->json, "count");
	uint64_t ttl_ms = 0;
	struct err e = {0};

	if (e2b_seconds(x->json, "timeout", 0, &ttl_ms, &e) < 0 ||
	    (ttl_ms && manager_times_check(x->api->manager, &ttl_ms, NULL, &e) < 0)) {
		e2b_fail(x, 400, "%s", e.msg);
		return;
	}
	if (count && (!json_is_integer(count) || json_integer_value(count) < 1 ||
		      json_integer_value(count) > 100))
		e2b_fail(x, 400, "count: a number from 1 to 100");
	else
		sandbox_fork(s, &x->caller, count ? (size_t)json_integer_value(count) : 1,
			     reply_forks, x);
}
