/* E2B's calls for volumes: one's own disks (manager/volumes.c), by id or name. E2B names no size. */
#include "api/e2b/e2b_internal.h"

#define USUAL_BYTES ((uint64_t)1 << 30)

/* The token is for calls that read and write a volume without a sandbox, which are not offered (e2b_unbuilt). */
static json_t *volume_json(const json_t *v, bool with_token)
{
	return must_alloc(json_pack("{s:O, s:O, s:s*}", "volumeID", json_object_get(v, "id"),
				    "name", json_object_get(v, "name"), "token",
				    with_token ? "none" : NULL));
}

/* What the operator offers has no id, and is not E2B's. */
static bool is_own(const json_t *v)
{
	return json_object_get(v, "id") != NULL;
}

static void answer_volume(struct exchange *x, json_t *value, const struct err *e, int status)
{
	if (e)
		exchange_error(x, e);
	else if (!is_own(value))
		e2b_fail(x, 404, "there is no such volume");
	else
		exchange_json(x, status, volume_json(value, true));
	json_decref(value);
}

static void on_created(void *arg, json_t *value, const struct err *e)
{
	answer_volume(arg, value, e, 201);
}

static void on_found(void *arg, json_t *value, const struct err *e)
{
	answer_volume(arg, value, e, 200);
}

static void on_listed(void *arg, json_t *value, const struct err *e)
{
	struct exchange *x = arg;
	json_t *all = json_array(), *one;
	size_t i;

	json_array_foreach (json_object_get(value, "volumes"), i, one)
		if (is_own(one))
			json_array_append_new(all, volume_json(one, false));
	if (e) {
		json_decref(all);
		exchange_error(x, e);
	} else {
		exchange_json(x, 200, all);
	}
	json_decref(value);
}

void e2b_volume_create(struct exchange *x)
{
	const struct volume_wish w = {.name = json_string_value(json_object_get(x->json, "name")),
				      .bytes = USUAL_BYTES};

	if (!w.name)
		e2b_fail(x, 400, "name: must be a string");
	else
		manager_volume_make(x->api->manager, &x->caller, &w, on_created, x);
}

void e2b_volumes(struct exchange *x)
{
	manager_volumes(x->api->manager, &x->caller, NULL, on_listed, x);
}

void e2b_volume_get(struct exchange *x)
{
	manager_volumes(x->api->manager, &x->caller, x->params[0], on_found, x);
}

void e2b_volume_delete(struct exchange *x)
{
	manager_volume_delete(x->api->manager, &x->caller, x->params[0], e2b_answer_empty, x);
}

/* ---- in a new sandbox ---- */

static int take_mount(const json_t *mount, struct create_options *o, struct err *e)
{
	const char *name = json_string_value(json_object_get(mount, "name")),
		   *path = json_string_value(json_object_get(mount, "path"));
	struct ipc_volume *v = &o->volumes[o->volume_count];
	char clean[IPC_PATH];

	if (!name || strlen(name) >= sizeof(v->name))
		return err_field(e, ERR_INVALID, "volumeMounts",
				 "volumeMounts: a name is missing or too long");
	if (!path || !path_clean(path, clean, sizeof(clean)) || !str_equal(path, clean))
		return err_field(e, ERR_INVALID, "volumeMounts",
				 "volumeMounts: '%.100s' is not an absolute, clean path",
				 path ? path : "");
	for (uint32_t i = 0; i < o->volume_count; i++)
		if (str_equal(o->volumes[i].target, path))
			return err_field(e, ERR_INVALID, "volumeMounts",
					 "volumeMounts: %s is there twice", path);
	snprintf(v->name, sizeof(v->name), "%s", name);
	snprintf(v->target, sizeof(v->target), "%s", path);
	v->writable = true;
	o->volume_count++;
	return 0;
}

int e2b_take_mounts(const json_t *body, struct create_options *o, struct err *e)
{
	const json_t *mounts = json_object_get(body, "volumeMounts"), *one;
	size_t i;

	if (!mounts || json_is_null(mounts))
		return 0;
	if (!json_is_array(mounts) || json_array_size(mounts) > IPC_VOLUMES)
		return err_field(e, ERR_INVALID, "volumeMounts",
				 "volumeMounts: must be an array of at most %d", IPC_VOLUMES);
	json_array_foreach (mounts, i, one)
		if (take_mount(one, o, e) < 0)
			return -1;
	return 0;
}
