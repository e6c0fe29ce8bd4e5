/* E2B's calls for secrets. Names are lower case there; an id is "sec_" and the store's own. */
#include "api/e2b/e2b_internal.h"

#include <ctype.h>

#define ID_PREFIX "sec_"

static json_t *secret_json(const json_t *s)
{
	const char *id = json_string_value(json_object_get(s, "id"));
	char own[64];

	snprintf(own, sizeof(own), ID_PREFIX "%s", id ? id : "");
	return must_alloc(json_pack(
		"{s:s,s:O,s:O,s:O,s:O,s:O}", "secretID", own, "name", json_object_get(s, "name"),
		"currentVersion", json_object_get(s, "version"), "metadata",
		json_object_get(s, "metadata"), "createdAt", json_object_get(s, "created_at"),
		"updatedAt", json_object_get(s, "updated_at")));
}

static void answer_secret(struct exchange *x, json_t *value, const struct err *e, int status)
{
	if (e)
		exchange_error(x, e);
	else
		exchange_json(x, status, secret_json(value));
	json_decref(value);
}

static void on_created(void *arg, json_t *value, const struct err *e)
{
	answer_secret(arg, value, e, 201);
}

static void on_found(void *arg, json_t *value, const struct err *e)
{
	answer_secret(arg, value, e, 200);
}

static void on_listed(void *arg, json_t *value, const struct err *e)
{
	struct exchange *x = arg;
	json_t *all = json_array(), *one;
	size_t i;

	json_array_foreach (json_object_get(value, "secrets"), i, one)
		if (!json_is_true(json_object_get(one, "configured")))
			json_array_append_new(all, secret_json(one));
	if (e) {
		json_decref(all);
		exchange_error(x, e);
	} else {
		exchange_json(x, 200, all);
	}
	json_decref(value);
}

/* A name in lower case, or the store's id; false: an error was answered. */
static bool take_name(struct exchange *x, const char *given, char ret[SECRET_NAME])
{
	bool is_id = str_starts(given, ID_PREFIX);

	if (is_id)
		given += strlen(ID_PREFIX);
	if (!str_only(given, STR_ALNUM "_-.", 1, SECRET_NAME - 1)) {
		e2b_fail(x, 400, "name: 1 to %d letters, digits, '_', '-', '.'", SECRET_NAME - 1);
		return false;
	}
	snprintf(ret, SECRET_NAME, "%s", given);
	for (char *at = ret; !is_id && *at; at++)
		*at = (char)tolower((unsigned char)*at);
	return true;
}

static void put_secret(struct exchange *x, const char *given, bool is_new, json_done done)
{
	const json_t *value = json_object_get(x->json, "value"),
		     *metadata = json_object_get(x->json, "metadata");
	auto_free char *text = json_is_object(metadata) ? json_dumps(metadata, JSON_COMPACT) : NULL;
	struct secret_put put = {.metadata = text, .is_new = is_new};

	if (!json_is_string(value))
		e2b_fail(x, 400, "value: must be a string");
	else if (text && strlen(text) >= sizeof(((struct ipc_secret *)0)->metadata))
		e2b_fail(x, 400, "metadata: too long");
	else if (take_name(x, given, put.rule.name)) {
		put.value = json_string_value(value);
		put.value_len = json_string_length(value);
		manager_secret_put(x->api->manager, &x->caller, &put, done, x);
	}
	if (json_is_string(value))
		explicit_bzero((char *)json_string_value(value), json_string_length(value));
}

void e2b_secret_create(struct exchange *x)
{
	const char *name = json_string_value(json_object_get(x->json, "name"));

	if (!name || str_starts(name, ID_PREFIX))
		e2b_fail(x, 400, "name: must be a string that does not begin with " ID_PREFIX);
	else
		put_secret(x, name, true, on_created);
}

/* There must be one: E2B's clients tell 404 apart. */
static void update_found(void *arg, json_t *value, const struct err *e)
{
	struct exchange *x = arg;

	if (e)
		exchange_error(x, e);
	else
		put_secret(x, json_string_value(json_object_get(value, "name")), false, on_found);
	json_decref(value);
}

void e2b_secret_update(struct exchange *x)
{
	char name[SECRET_NAME];

	if (take_name(x, x->params[0], name))
		manager_secrets(x->api->manager, &x->caller, name, update_found, x);
}

void e2b_secret_get(struct exchange *x)
{
	char name[SECRET_NAME];

	if (take_name(x, x->params[0], name))
		manager_secrets(x->api->manager, &x->caller, name, on_found, x);
}

void e2b_secret_delete(struct exchange *x)
{
	char name[SECRET_NAME];

	if (take_name(x, x->params[0], name))
		manager_secret_delete(x->api->manager, &x->caller, name, e2b_answer_empty, x);
}

void e2b_secrets(struct exchange *x)
{
	manager_secrets(x->api->manager, &x->caller, NULL, on_listed, x);
}
