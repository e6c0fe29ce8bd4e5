/* Volumes of the caller's own, and those that the operator offers, as Docker shows them. */
#include "api/docker/docker_internal.h"

static json_t *volume_json(const json_t *v)
{
	const char *made = body_text(v, "created_at");

	return json_pack("{s:O,s:s,s:s,s:s,s:{},s:s,s:n,s:{s:I,s:I}}", "Name",
			 json_object_get(v, "name"), "Driver", "local", "Mountpoint", "",
			 "CreatedAt", made ? made : "", "Labels", "Scope", "local", "Options",
			 "UsageData", "Size", json_integer_value(json_object_get(v, "size_bytes")),
			 "RefCount", (json_int_t)json_array_size(json_object_get(v, "sandboxes")));
}

static void on_list(void *arg, json_t *value, const struct err *e)
{
	struct exchange *x = arg;
	json_t *all = json_array(), *one;
	size_t i;

	if (e && e->kind) {
		json_decref(all);
		exchange_error(x, e);
	} else {
		json_array_foreach (json_object_get(value, "volumes"), i, one)
			json_array_append_new(all, volume_json(one));
		exchange_json(x, 200, json_pack("{s:o,s:n}", "Volumes", all, "Warnings"));
	}
	json_decref(value);
}

void docker_volumes(struct exchange *x)
{
	manager_volumes(x->api->manager, &x->caller, NULL, on_list, x);
}

static void answer_one(struct exchange *x, int status, json_t *value, const struct err *e)
{
	if (e && e->kind)
		exchange_error(x, e);
	else
		exchange_json(x, status, volume_json(value));
	json_decref(value);
}

static void on_one(void *arg, json_t *value, const struct err *e)
{
	answer_one(arg, 200, value, e);
}

void docker_volume(struct exchange *x)
{
	manager_volumes(x->api->manager, &x->caller, x->params[0], on_one, x);
}

/* ---- making ---- */

static const struct body_table volume_table =
	BODY_TABLE(BODY_ALONE, FIELD("Driver", BODY_TEXT, "local"),
		   FIELD("DriverOpts", BODY_MAP, "size"), FIELD("Name", BODY_TEXT, "its name"));

static void on_there(void *arg, json_t *value, const struct err *e)
{
	answer_one(arg, 201, value, e);
}

static void on_made(void *arg, json_t *value, const struct err *e)
{
	struct exchange *x = arg;

	/* One that is there is what was asked for. */
	if (e && e->kind == ERR_CONFLICT)
		manager_volumes(x->api->manager, &x->caller, docker_of(x)->word, on_there, x);
	else
		answer_one(x, 201, value, e);
}

static int read_volume(const json_t *in, uint64_t *ret_bytes, struct err *e)
{
	const json_t *options = json_object_get(in, "DriverOpts");
	const char *driver = body_text(in, "Driver"), *size = body_text(options, "size");

	*ret_bytes = DOCKER_VOLUME;
	if (driver && !str_equal(driver, "local"))
		return err_field(e, ERR_UNSUPPORTED, "Driver",
				 "Driver: %.40s is not offered; leave it out", driver);
	if (json_object_size(options) > (size ? 1 : 0))
		return err_field(
			e, ERR_DENIED, "DriverOpts",
			"DriverOpts: only size is taken: a volume is a disk of the daemon's");
	return size ? parse_size(size, ret_bytes, e) : 0;
}

void docker_volume_create(struct exchange *x)
{
	struct volume_wish wish = {0};
	char made[DOCKER_ID], *name;
	struct err e = {0};
	json_t *in = docker_body(x->json, &volume_table, &e);

	if (!in || read_volume(in, &wish.bytes, &e) < 0) {
		json_decref(in);
		exchange_error(x, &e);
		return;
	}
	docker_id_make(made);
	made[32] = '\0';
	name = str_copy(body_text(in, "Name") ? body_text(in, "Name") : made);
	exchange_also_free(x, name, NULL);
	json_decref(in);
	docker_of(x)->word = name;
	wish.name = name;
	manager_volume_make(x->api->manager, &x->caller, &wish, on_made, x);
}

/* ---- removing ---- */

static void on_removed(void *arg, json_t *value, const struct err *e)
{
	struct exchange *x = arg;
	bool is_fine =
		!e || !e->kind || (e->kind == ERR_NOT_FOUND && docker_flag(x, "force", false));

	json_decref(value);
	if (is_fine)
		docker_empty(x, 204);
	else
		exchange_error(x, e);
}

void docker_volume_delete(struct exchange *x)
{
	manager_volume_delete(x->api->manager, &x->caller, x->params[0], on_removed, x);
}

/* Docker removes anonymous ones, and here these are directories of their containers. */
void docker_volumes_prune(struct exchange *x)
{
	exchange_json(x, 200, json_pack("{s:[],s:i}", "VolumesDeleted", "SpaceReclaimed", 0));
}
