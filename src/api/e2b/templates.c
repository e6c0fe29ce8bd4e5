/* Names, tags and lists of templates. See templates.h. */
#include "api/e2b/templates.h"

#include "image/make/job.h"
#include "policy/config.h"

#include <ctype.h>
#include <sodium.h>

#define LATEST "latest"
#define DEFAULT "default"
#define TAGS_MAX 20

/* ---- names ---- */

void template_id(const struct caller *who, const char *base, char ret[TEMPLATE_ID])
{
	static const char letters[] = STR_LOWER "234567";
	auto_free char *text = str_format("template\n%s\n%s", who->token, base);
	unsigned char hash[crypto_hash_sha256_BYTES];

	crypto_hash_sha256(hash, (const unsigned char *)text, strlen(text));
	for (size_t i = 0; i < TEMPLATE_ID - 1; i++)
		ret[i] = letters[hash[i] % 32];
	ret[TEMPLATE_ID - 1] = '\0';
}

const char *template_tag(const char *tag)
{
	return str_equal(tag, LATEST) ? DEFAULT : tag;
}

static void split(const char *text, struct template_name *ret)
{
	const char *slash = strrchr(text, '/'), *colon = strchr(slash ? slash : text, ':');
	size_t len = colon ? (size_t)(colon - text) : strlen(text);
	const char *tag = colon ? colon + 1 : LATEST;

	snprintf(ret->base, sizeof(ret->base), "%.*s", (int)len, text);
	snprintf(ret->tag, sizeof(ret->tag), "%s", str_equal(tag, DEFAULT) ? LATEST : tag);
	ret->has_tag = colon != NULL;
}

void template_split(const json_t *image, struct template_name *ret)
{
	const char *name = json_string_value(json_object_get(image, "name"));

	split(name ? name : "", ret);
}

static int check_tag(const char *tag, struct err *e)
{
	return str_only(tag, STR_ALNUM "._-", 1, 128) && isalnum((unsigned char)*tag)
		       ? 0
		       : err_field(e, ERR_INVALID, "tags",
				   "tags: '%.100s' is no tag: letters, digits, '.', '_', '-'", tag);
}

int template_name_parse(struct exchange *x, const char *text, struct template_name *ret,
			struct err *e)
{
	struct template_name full;
	struct image_reference r;

	split(text, ret);
	if (strlen(text) > 200 || strchr(text, '@') || image_reference_parse(ret->base, &r, e) < 0)
		return err_field(
			e, ERR_INVALID, "name",
			"name: '%.100s' is no template's name: lower case letters, digits, "
			"'.', '_', '-', and ':TAG' behind it",
			text);
	/* As the store calls it. */
	split(r.name, &full);
	memcpy(ret->base, full.base, sizeof(ret->base));
	if (ret->has_tag && check_tag(ret->tag, e) < 0)
		return -1;
	if (str_starts(ret->base, TEMPLATE_UPLOADS) || e2b_is_builtin(ret->base) ||
	    config_image_find(x->api->config, ret->base))
		return err_field(e, ERR_CONFLICT, "name", "name: '%.100s' is the operator's",
				 ret->base);
	return 0;
}

json_t *template_images(const struct api *api, const struct caller *who, bool uploads)
{
	json_t *all = manager_images(api->manager, who), *own = json_array(), *one;
	size_t i;

	json_array_foreach (json_object_get(all, "images"), i, one) {
		const char *name = json_string_value(json_object_get(one, "name"));

		if (json_object_get(one, "added_at") && !json_object_get(one, "owner") &&
		    str_starts(name ? name : "", TEMPLATE_UPLOADS) == uploads)
			json_array_append(own, one);
	}
	json_decref(all);
	return own;
}

bool template_find(struct exchange *x, const char *text, char ret[TEMPLATE_NAME])
{
	json_auto_t *all = template_images(x->api, &x->caller, false);
	struct template_name wanted, name;
	char id[TEMPLATE_ID];
	json_t *one;
	size_t i;

	split(text, &wanted);
	json_array_foreach (all, i, one) {
		template_split(one, &name);
		template_id(&x->caller, name.base, id);
		if (!str_equal(id, text) && !(str_equal(name.base, wanted.base) &&
					      (!wanted.has_tag || str_equal(name.tag, wanted.tag))))
			continue;
		snprintf(ret, TEMPLATE_NAME, "%s", name.base);
		return true;
	}
	return false;
}

/* As a UUID. */
void template_build_id(const json_t *image, char ret[40])
{
	const char *id = json_string_value(json_object_get(image, "id"));
	const char *hex = id && strlen(id) > 40 ? id + strlen("sha256:") : "";

	snprintf(ret, 40, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16, hex + 20);
}

char *e2b_image_of(struct exchange *x, const char *template)
{
	json_auto_t *all = template_images(x->api, &x->caller, false);
	struct template_name wanted, name;
	char *found = NULL, id[TEMPLATE_ID];
	json_t *one;
	size_t i;

	split(template, &wanted);
	json_array_foreach (all, i, one) {
		template_split(one, &name);
		template_id(&x->caller, name.base, id);
		if (str_equal(id, template) && (!found || str_equal(name.tag, LATEST))) {
			free(found);
			found = str_format("%s:%s", name.base, name.tag);
		}
	}
	if (!found && wanted.has_tag)
		found = str_format("%s:%s", wanted.base, wanted.tag);
	return found ? found : str_copy(template);
}

/* ---- work on names, one after the other ---- */

struct template_works {
	struct api *api;
	struct caller who;
	struct template_wish *wishes;
	size_t count, at;
	void (*done)(void *arg, const struct err *e);
	void *arg;
};

static void next_work(struct template_works *w, const struct err *e);

static void on_said(void *arg, const struct image_said *said, int fd)
{
	close_fd(&fd);
}

static void on_end(void *arg, const struct err *e)
{
	next_work(arg, e);
}

static void next_work(struct template_works *w, const struct err *e)
{
	static const struct image_work_ops ops = {on_said, on_end};
	const struct template_wish *next = &w->wishes[w->at];

	if (!e && w->at < w->count) {
		w->at++;
		manager_image_work(
			w->api->manager, &w->who,
			&(struct image_wish){.job = next->job, .name = next->name, .to = next->to},
			&ops, w);
		return;
	}
	w->done(w->arg, e);
	for (size_t i = 0; i < w->count; i++) {
		free(w->wishes[i].name);
		free(w->wishes[i].to);
	}
	free(w->wishes);
	free(w);
}

void template_work(struct api *api, const struct caller *who, struct template_wish *wishes,
		   size_t count, void (*done)(void *arg, const struct err *e), void *arg)
{
	struct template_works *w = must_alloc(calloc(1, sizeof(*w)));

	*w = (struct template_works){api, *who, wishes, count, 0, done, arg};
	next_work(w, NULL);
}

/* ---- tags ---- */

static json_t *tags_of(const struct exchange *x, const char *base)
{
	json_auto_t *all = template_images(x->api, &x->caller, false);
	json_t *tags = json_array(), *one;
	struct template_name name;
	char build[40];
	size_t i;

	json_array_foreach (all, i, one) {
		template_split(one, &name);
		template_build_id(one, build);
		if (str_equal(name.base, base))
			json_array_append_new(tags, json_pack("{s:s,s:s,s:O}", "tag",
							      template_tag(name.tag), "buildID",
							      build, "createdAt",
							      json_object_get(one, "added_at")));
	}
	return tags;
}

void e2b_template_tags(struct exchange *x)
{
	char base[TEMPLATE_NAME];

	if (template_find(x, x->params[0], base))
		exchange_json(x, 200, tags_of(x, base));
	else
		e2b_fail(x, 404, "template \"%.80s\" not found", x->params[0]);
}

/* The template and the tags that a body names; false: an error was answered. */
static bool read_tags(struct exchange *x, const char *key, struct template_name *ret)
{
	const char *text = json_string_value(json_object_get(x->json, key));
	const json_t *tags = json_object_get(x->json, "tags"), *tag;
	struct err e = {0};
	size_t i;

	if (!text || !json_array_size(tags) || json_array_size(tags) > TAGS_MAX)
		err_field(&e, ERR_INVALID, "tags", "%s and tags (1 to %d): are missing", key,
			  TAGS_MAX);
	json_array_foreach ((json_t *)tags, i, tag)
		if (!e.kind && (!json_is_string(tag) || check_tag(json_string_value(tag), &e) < 0))
			err_field(&e, ERR_INVALID, "tags", "tags: item %zu is no tag", i);
	if (!e.kind)
		(void)!template_name_parse(x, text, ret, &e);
	if (e.kind)
		exchange_error(x, &e);
	return !e.kind;
}

static struct template_wish *wishes_of_tags(struct exchange *x, enum ipc_image_job job,
					    const struct template_name *t)
{
	const json_t *tags = json_object_get(x->json, "tags");
	struct template_wish *all =
		must_alloc(calloc(json_array_size(tags) + 1, sizeof(struct template_wish)));

	for (size_t i = 0; i < json_array_size(tags); i++) {
		const char *tag = json_string_value(json_array_get(tags, i));
		char *full = str_format("%s:%s", t->base, str_equal(tag, DEFAULT) ? LATEST : tag);

		all[i] = job == IMAGE_JOB_TAG
				 ? (struct template_wish){job, str_format("%s:%s", t->base, t->tag),
							  full}
				 : (struct template_wish){job, full, NULL};
	}
	return all;
}

static void tags_assigned(void *arg, const struct err *e)
{
	struct exchange *x = arg;
	const char *text = json_string_value(json_object_get(x->json, "target"));
	json_auto_t *all = template_images(x->api, &x->caller, false);
	struct template_name wanted, name;
	char build[40] = "";
	json_t *one;
	size_t i;

	if (e) {
		exchange_error(x, e);
		return;
	}
	split(text, &wanted);
	json_array_foreach (all, i, one) {
		template_split(one, &name);
		if (str_equal(name.base, wanted.base) && str_equal(name.tag, wanted.tag))
			template_build_id(one, build);
	}
	exchange_json(
		x, 201,
		json_pack("{s:s,s:O}", "buildID", build, "tags", json_object_get(x->json, "tags")));
}

void e2b_tags_assign(struct exchange *x)
{
	struct template_name t;

	if (read_tags(x, "target", &t))
		template_work(x->api, &x->caller, wishes_of_tags(x, IMAGE_JOB_TAG, &t),
			      json_array_size(json_object_get(x->json, "tags")), tags_assigned, x);
}

static void names_removed(void *arg, const struct err *e)
{
	if (e)
		exchange_error(arg, e);
	else
		e2b_empty(arg);
}

void e2b_tags_remove(struct exchange *x)
{
	struct template_name t;

	if (read_tags(x, "name", &t))
		template_work(x->api, &x->caller, wishes_of_tags(x, IMAGE_JOB_REMOVE, &t),
			      json_array_size(json_object_get(x->json, "tags")), names_removed, x);
}

/* ---- removing and listing ---- */

static size_t add_names(struct exchange *x, const char *base, bool uploads,
			struct template_wish *all, size_t count)
{
	json_auto_t *images = template_images(x->api, &x->caller, uploads);
	struct template_name name;
	char id[TEMPLATE_ID];
	json_t *one;
	size_t i;

	template_id(&x->caller, base, id);
	json_array_foreach (images, i, one) {
		template_split(one, &name);
		if (str_equal(name.base + (uploads ? strlen(TEMPLATE_UPLOADS) : 0),
			      uploads ? id : base))
			all[count++] = (struct template_wish){
				IMAGE_JOB_REMOVE,
				str_copy(json_string_value(json_object_get(one, "name"))), NULL};
	}
	return count;
}

void e2b_template_delete(struct exchange *x)
{
	json_auto_t *every = manager_images(x->api->manager, &x->caller);
	struct template_wish *all;
	char base[TEMPLATE_NAME];
	size_t count;

	if (!template_find(x, x->params[0], base)) {
		e2b_snapshot_delete(x);
		return;
	}
	all = must_alloc(
		calloc(json_array_size(json_object_get(every, "images")) + 1, sizeof(*all)));
	count = add_names(x, base, false, all, 0);
	count = add_names(x, base, true, all, count);
	template_work(x->api, &x->caller, all, count, names_removed, x);
}

static json_t *template_json(const struct exchange *x, const json_t *image, const char *base)
{
	const struct limits *l = &x->api->config->sandbox.limits;
	char id[TEMPLATE_ID], build[40];

	template_id(&x->caller, base, id);
	template_build_id(image, build);
	return json_pack("{s:s,s:s,s:[s],s:[s],s:b,s:I,s:I,s:I,s:O,s:O,s:n,s:s,s:s,s:i,s:i,s:n}",
			 "templateID", id, "buildID", build, "aliases", base, "names", base,
			 "public", 0, "cpuCount", (json_int_t)((l->cpus_milli + 999) / 1000),
			 "memoryMB", (json_int_t)(l->memory_bytes >> 20), "diskSizeMB",
			 (json_int_t)(l->disk_bytes >> 20), "createdAt",
			 json_object_get(image, "added_at"), "updatedAt",
			 json_object_get(image, "added_at"), "createdBy", "envdVersion",
			 E2B_ENVD_VERSION, "buildStatus", "ready", "spawnCount", 0, "buildCount", 1,
			 "lastSpawnedAt");
}

void e2b_templates(struct exchange *x)
{
	json_auto_t *images = template_images(x->api, &x->caller, false), *seen = json_object();
	json_t *out = json_array(), *one;
	struct template_name name;
	size_t i;

	json_array_foreach (images, i, one) {
		template_split(one, &name);
		if (json_object_get(seen, name.base))
			continue;
		json_object_set_new(seen, name.base, json_true());
		json_array_append_new(out, must_alloc(template_json(x, one, name.base)));
	}
	exchange_json(x, 200, out);
}

/* Templates are their owner's alone. */
void e2b_template_publish(struct exchange *x)
{
	char base[TEMPLATE_NAME];

	if (!template_find(x, x->params[0], base))
		e2b_fail(x, 404, "template \"%.80s\" not found", x->params[0]);
	else if (json_is_true(json_object_get(x->json, "public")))
		e2b_fail(x, 403,
			 "public: templates of clients are not shown to others; the operator "
			 "offers images to all by the setting images");
	else
		exchange_json(x, 200, json_pack("{s:[s]}", "names", base));
}

void e2b_alias(struct exchange *x)
{
	const char *alias = x->params[0];
	char base[TEMPLATE_NAME], id[TEMPLATE_ID];

	if (template_find(x, alias, base)) {
		template_id(&x->caller, base, id);
		exchange_json(x, 200, json_pack("{s:s,s:b}", "templateID", id, "public", 0));
	} else if (e2b_is_builtin(alias) || e2b_is_image(x, alias)) {
		exchange_json(x, 200, json_pack("{s:s,s:b}", "templateID", alias, "public", 1));
	} else {
		e2b_fail(x, 404, "template \"%.80s\" not found", alias);
	}
}
