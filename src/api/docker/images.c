/* Images of the caller's, as Docker shows them, and the work on them as Docker's streams of JSON. */
#include "api/docker/docker_internal.h"

#include "api/http/image_op.h"
#include "image/reference.h"
#include "wire/http1.h"

/* ---- looking ---- */

/* "name:tag" as Docker lists it: a name without a tag has "latest". */
static json_t *tag_json(const char *name)
{
	const char *slash = strrchr(name, '/'), *last = slash ? slash : name;

	return strchr(last, ':') ? json_string(name) : json_sprintf("%s:latest", name);
}

static uint64_t unix_of(const json_t *time)
{
	struct tm t = {0};
	const char *text = json_string_value(time);

	return text && strptime(text, "%Y-%m-%dT%H:%M:%S", &t) ? (uint64_t)timegm(&t) : 0;
}

/* The list has a row for each name; Docker's has one for each image. */
static json_t *find_id(const json_t *all, const char *id)
{
	json_t *one;
	size_t i;

	json_array_foreach ((json_t *)all, i, one)
		if (str_equal(json_string_value(json_object_get(one, "Id")), id))
			return one;
	return NULL;
}

static json_t *own_names(const struct exchange *x)
{
	json_t *all = manager_images(x->api->manager, &x->caller), *list = json_array(), *one;
	size_t i;

	json_array_foreach (json_object_get(all, "images"), i, one) {
		const char *owner = json_string_value(json_object_get(one, "owner"));

		if (json_object_get(one, "id") && (!owner || str_equal(owner, x->caller.token)))
			json_array_append(list, one);
	}
	json_decref(all);
	return list;
}

static bool is_wanted(const json_t *name, const json_t *references)
{
	const char *text = json_string_value(json_object_get(name, "name"));
	auto_free char *tagged = NULL;
	json_t *tag, *one;
	size_t i;

	if (!references || !text)
		return text;
	tag = tag_json(text);
	tagged = str_copy(json_string_value(tag));
	json_decref(tag);
	json_array_foreach ((json_t *)references, i, one) {
		const char *want = json_string_value(one);
		size_t len = strlen(want);

		if (str_equal(tagged, want) || (str_starts(tagged, want) && tagged[len] == ':'))
			return true;
	}
	return false;
}

static json_t *listed_json(const json_t *name)
{
	json_int_t size = json_integer_value(json_object_get(name, "size_bytes"));

	return json_pack("{s:O,s:s,s:[],s:[],s:I,s:I,s:I,s:i,s:i,s:{}}", "Id",
			 json_object_get(name, "id"), "ParentId", "", "RepoTags", "RepoDigests",
			 "Created", (json_int_t)unix_of(json_object_get(name, "added_at")), "Size",
			 size, "VirtualSize", size, "SharedSize", -1, "Containers", -1, "Labels");
}

void docker_images(struct exchange *x)
{
	json_t *wanted = docker_filters(x), *names, *all, *name, *row;
	size_t i;

	if (!wanted)
		return;
	if (exchange_arg(x, "filter"))
		json_object_set_new(wanted, "reference",
				    json_pack("[s]", exchange_arg(x, "filter")));
	names = own_names(x);
	all = json_array();
	json_array_foreach (names, i, name) {
		if (!is_wanted(name, docker_filter(wanted, "reference")))
			continue;
		row = find_id(all, json_string_value(json_object_get(name, "id")));
		if (!row) {
			row = listed_json(name);
			json_array_append_new(all, row);
		}
		json_array_append_new(json_object_get(row, "RepoTags"),
				      tag_json(json_string_value(json_object_get(name, "name"))));
	}
	json_decref(names);
	json_decref(wanted);
	exchange_json(x, 200, all);
}

static json_t *tags_of(const struct exchange *x, const json_t *id)
{
	json_t *names = own_names(x), *tags = json_array(), *name;
	size_t i;

	json_array_foreach (names, i, name)
		if (json_equal(json_object_get(name, "id"), id))
			json_array_append_new(
				tags, tag_json(json_string_value(json_object_get(name, "name"))));
	json_decref(names);
	return tags;
}

static json_t *or_null(const json_t *value)
{
	return json_array_size(value) ? json_incref((json_t *)value) : json_null();
}

static const char *text_of(const json_t *o, const char *key, const char *otherwise)
{
	const char *text = json_string_value(json_object_get(o, key));

	return text ? text : otherwise;
}

static void show_image(struct exchange *x, const json_t *image)
{
	const char *platform = text_of(image, "platform",
				       "linux/"
				       "amd64"),
		   *slash = strchr(platform, '/');
	const json_t *id = json_object_get(image, "id"), *layers = json_object_get(image, "layers");

	exchange_json(
		x, 200,
		json_pack("{s:O,s:o,s:[],s:s,s:s,s:s,s:s,s:s,s:I,s:{s:o,s:o,s:o,s:s,s:s,s:{}},"
			  "s:{s:s,s:O},s:{s:s,s:{}}}",
			  "Id", id, "RepoTags", tags_of(x, id), "RepoDigests", "Parent", "",
			  "Comment", "", "Created",
			  text_of(image, "created", "0001-01-01T00:00:00Z"), "Os", "linux",
			  "Architecture", slash ? slash + 1 : platform, "Size",
			  json_integer_value(json_object_get(image, "size_bytes")), "Config", "Env",
			  or_null(json_object_get(image, "env")), "Cmd",
			  or_null(json_object_get(image, "cmd")), "Entrypoint",
			  or_null(json_object_get(image, "entrypoint")), "WorkingDir",
			  text_of(image, "workdir", ""), "User", text_of(image, "user", ""),
			  "Labels", "RootFS", "Type", "layers", "Layers", layers, "GraphDriver",
			  "Name", "overlay2", "Data"));
}

static void show_history(struct exchange *x, const json_t *image)
{
	const json_t *layers = json_object_get(image, "layers");
	json_t *all = json_array();

	/* What made each layer is not kept; the newest comes first. */
	for (size_t i = json_array_size(layers); i-- > 0;)
		json_array_append_new(
			all,
			json_pack("{s:s,s:I,s:s,s:o,s:i,s:s}", "Id",
				  i + 1 == json_array_size(layers) ? text_of(image, "id", "")
								   : "<missing>",
				  "Created", (json_int_t)unix_of(json_object_get(image, "created")),
				  "CreatedBy", json_string_value(json_array_get(layers, i)), "Tags",
				  i + 1 == json_array_size(layers)
					  ? tags_of(x, json_object_get(image, "id"))
					  : json_null(),
				  "Size", 0, "Comment", ""));
	exchange_json(x, 200, all);
}

/* ---- below /images/: names have slashes, so the last part says what is wanted ---- */

struct image_route {
	const char *method, *last; /* "": only the name */
	void (*call)(struct exchange *x, const char *name);
};

static void image_json(struct exchange *x, const char *name,
		       void (*show)(struct exchange *x, const json_t *image))
{
	struct err e = {0};
	json_t *image = manager_image(x->api->manager, &x->caller, name, &e);

	if (image)
		show(x, image);
	else
		docker_fail(x, 404, "No such image: %.200s", name);
	json_decref(image);
}

static void get_json(struct exchange *x, const char *name)
{
	image_json(x, name, show_image);
}

static void get_history(struct exchange *x, const char *name)
{
	image_json(x, name, show_history);
}

static void get_search(struct exchange *x, const char *name)
{
	docker_fail(x, 501, "search is not offered: the daemon asks no registry what it has");
}

static void refuse_push(struct exchange *x, const char *name)
{
	docker_fail(x, 501,
		    "push is not offered: no image leaves the daemon's store for a registry; use "
		    "`docker save`");
}

/* ---- work ---- */

struct image_answer {
	struct exchange *x;
	const char *name; /* what was asked for */
	json_t *made;	  /* ids and names */
	bool is_open;
	int status; /* of an answer without a body; 0: a stream */
	void (*finish)(struct image_answer *a);
};

static void image_answer_done(void *data)
{
	json_decref(((struct image_answer *)data)->made);
}

/* One line of JSON. Takes the value over. */
static void send_line(struct image_answer *a, json_t *value)
{
	auto_free char *text = json_dumps(value, JSON_COMPACT);

	if (!a->is_open)
		exchange_stream(a->x, 200, "application/json", EXCHANGE_UNKNOWN_LENGTH);
	a->is_open = true;
	exchange_write(a->x, text, strlen(text));
	exchange_write(a->x, "\r\n", 2);
	json_decref(value);
}

static void on_said(void *arg, const struct image_said *s)
{
	struct image_answer *a = arg;

	if (s->kind == IMAGE_SAID_MADE) {
		json_array_append_new(a->made, json_pack("{s:o,s:o}", "id",
							 json_sprintf("sha256:%s", s->hex), "name",
							 text_json_of(s->name)));
	} else if (s->kind == IMAGE_SAID_PROGRESS && !a->status && exchange_room(a->x)) {
		send_line(a, json_pack("{s:s,s:s,s:{s:I,s:I}}", "status", "Downloading", "id",
				       "layers", "progressDetail", "current", (json_int_t)s->done,
				       "total", (json_int_t)s->total));
	}
}

static void on_end(void *arg, const struct err *e)
{
	struct image_answer *a = arg;

	if (e && !a->is_open) {
		exchange_error(a->x, e);
	} else if (e) {
		send_line(a, json_pack("{s:{s:o},s:o}", "errorDetail", "message",
				       text_json_of(e->msg), "error", text_json_of(e->msg)));
		exchange_finish(a->x);
	} else {
		a->finish(a);
	}
}

static void work(struct exchange *x, const struct image_wish *wish, const char *name, int status,
		 void (*finish)(struct image_answer *a))
{
	static const struct image_op_ops ops = {on_said, on_end};
	struct image_answer *a = must_alloc(calloc(1, sizeof(*a)));

	*a = (struct image_answer){
		.x = x, .name = name, .made = json_array(), .status = status, .finish = finish};
	exchange_also_free(x, a, image_answer_done);
	image_op_start(x, wish, &ops, a);
}

static void finish_empty(struct image_answer *a)
{
	docker_empty(a->x, a->status);
}

static void finish_pull(struct image_answer *a)
{
	send_line(a, json_pack("{s:o}", "status",
			       json_sprintf("Status: Downloaded newer image for %s", a->name)));
	exchange_finish(a->x);
}

static void finish_import(struct image_answer *a)
{
	send_line(a, json_pack("{s:s}", "status",
			       text_of(json_array_get(a->made, 0), "id", "nothing was imported")));
	exchange_finish(a->x);
}

static void finish_load(struct image_answer *a)
{
	json_t *one;
	size_t i;

	json_array_foreach (a->made, i, one) {
		const char *name = text_of(one, "name", "");

		send_line(a, json_pack("{s:o}", "stream",
				       *name ? json_sprintf("Loaded image: %s\n", name)
					     : json_sprintf("Loaded image ID: %s\n",
							    text_of(one, "id", ""))));
	}
	if (!a->is_open)
		send_line(a, json_pack("{s:s}", "stream", "Loaded nothing\n"));
	exchange_finish(a->x);
}

static void finish_delete(struct image_answer *a)
{
	exchange_json(a->x, 200, json_pack("[{s:s}]", "Untagged", a->name));
}

/* "repo" and "tag" of the query as one name; NULL: an error was answered. */
static const char *joined_name(struct exchange *x, const char *repo_arg)
{
	const char *repo = exchange_arg(x, repo_arg), *tag = exchange_arg(x, "tag");
	struct image_reference r;
	struct err e = {0};
	char *name;

	if (!repo || !*repo) {
		exchange_refuse(x, repo_arg, "is missing");
		return NULL;
	}
	name = tag && *tag ? str_format("%s%s%s", repo, strchr(tag, ':') ? "@" : ":", tag)
			   : str_copy(repo);
	exchange_also_free(x, name, NULL);
	if (image_reference_parse(name, &r, &e) == 0)
		return name;
	exchange_error(x, &e);
	return NULL;
}

void docker_image_create(struct exchange *x)
{
	const char *source = exchange_arg(x, "fromSrc"), *name;

	if (source && !str_equal(source, "-")) {
		docker_fail(x, 400, "fromSrc: the daemon fetches no addresses; send the archive");
		return;
	}
	if (exchange_arg(x, "changes")) {
		docker_fail(x, 501, "changes: not with an import; build an image from it instead");
		return;
	}
	name = joined_name(x, source ? "repo" : "fromImage");
	if (name && source)
		work(x, &(struct image_wish){.job = IMAGE_JOB_IMPORT, .name = name}, name, 0,
		     finish_import);
	else if (name)
		work(x, &(struct image_wish){.job = IMAGE_JOB_PULL, .name = name}, name, 0,
		     finish_pull);
}

void docker_image_load(struct exchange *x)
{
	work(x, &(struct image_wish){.job = IMAGE_JOB_IMPORT}, "", 0, finish_load);
}

static bool has_image(struct exchange *x, const char *name)
{
	if (manager_has_image(x->api->manager, &x->caller, name))
		return true;
	docker_fail(x, 404, "No such image: %.200s", name);
	return false;
}

static void tag_image(struct exchange *x, const char *name)
{
	const char *to = has_image(x, name) ? joined_name(x, "repo") : NULL;

	if (to)
		work(x, &(struct image_wish){.job = IMAGE_JOB_TAG, .name = name, .to = to}, name,
		     201, finish_empty);
}

static void get_archive(struct exchange *x, const char *name)
{
	work(x, &(struct image_wish){.job = IMAGE_JOB_EXPORT, .name = name}, name, 0, finish_empty);
}

static void get_archives(struct exchange *x, const char *unused)
{
	const char *name = exchange_arg(x, "names");
	size_t count = 0;

	for (size_t i = 0; i < x->arg_count; i++)
		count += str_equal(x->args[i].name, "names");
	if (count != 1)
		docker_fail(x, 501, "names: one image at a time is saved here");
	else
		get_archive(x, name);
}

static void delete_image(struct exchange *x, const char *name)
{
	if (has_image(x, name))
		work(x, &(struct image_wish){.job = IMAGE_JOB_REMOVE, .name = name}, name, 0,
		     finish_delete);
}

static const struct image_route image_routes[] = {
	{"GET", "search", get_search},	  {"GET", "get", get_archives}, {"GET", "/json", get_json},
	{"GET", "/history", get_history}, {"GET", "/get", get_archive}, {"POST", "/tag", tag_image},
	{"POST", "/push", refuse_push},	  {"DELETE", "", delete_image},
};

static void find_route(struct exchange *x, const char *method)
{
	size_t len = strlen(x->params[0]);

	for (size_t i = 0; i < ARRAY_LEN(image_routes); i++) {
		const struct image_route *r = &image_routes[i];
		size_t last = strlen(r->last), name = len - last;
		char *decoded;

		if (!str_equal(r->method, method) || last > len ||
		    !str_equal(x->params[0] + name, r->last) || (r->last[0] != '/' && last && name))
			continue;
		decoded = must_alloc(malloc(name + 1));
		exchange_also_free(x, decoded, NULL);
		if (http1_unescape(x->params[0], name, false, decoded))
			r->call(x, decoded);
		else
			docker_fail(x, 400, "the name is not well encoded");
		return;
	}
	docker_fail(x, 404, "page not found");
}

void docker_image_get(struct exchange *x)
{
	find_route(x, "GET");
}

void docker_image_post(struct exchange *x)
{
	find_route(x, "POST");
}

void docker_image_delete(struct exchange *x)
{
	find_route(x, "DELETE");
}
