/*
 * Builds of templates. A client announces one, uploads the files that its steps copy, starts it, and asks again and
 * again how far it is. Files are images of one layer, named after their hash, which the next build of the template may
 * use again. The work is a process of the broker's (image/build/recipe.h).
 */
#include "api/e2b/templates.h"

#include "api/http/image_op.h"
#include "auth/tokens.h"
#include "base/id.h"
#include "image/build/recipe.h"
#include "net/stages.h"
#include "policy/config.h"

#define OWN_MAX 16 /* builds of one owner that are remembered */
#define ALL_MAX 1000
#define LOG_ROWS 4000
#define LOG_BYTES (256u << 10)
#define LINE_MAX_BYTES 2000
#define ROWS_AT_ONCE 100
#define TAGS_MAX 20
#define STEPS_MAX (RECIPE_STEPS / 2)
#define RUN_MS (30u * 60 * 1000) /* of one command */
#define FILES_S 3600		 /* uploads of a build that was announced */
#define COMMAND_MAX 4000	 /* bytes of a start or ready command */

enum build_state { BUILD_WAITING, BUILD_BUILDING, BUILD_READY, BUILD_FAILED };

struct log_row {
	uint64_t ms;
	unsigned origin;
	char *text;
};

struct template_build {
	struct template_build *next;
	struct api *api;
	struct caller who;
	char template[TEMPLATE_ID], id[40], key[33];
	struct template_name name;
	struct list tags; /* others that the image gets */
	uint64_t cpus, memory_mb, announced_ms;
	enum build_state state;
	struct image_work *work;
	struct list used; /* names of uploads */
	unsigned origin;  /* of the step that it is at */
	struct err err;
	struct log_row *rows;
	size_t row_count, row_room, log_bytes;
	struct buf line; /* output that has not ended its line */
};

/* ---- which builds there are ---- */

static void build_free(struct template_build *b)
{
	image_work_stop(b->work);
	list_done(&b->tags);
	list_done(&b->used);
	for (size_t i = 0; i < b->row_count; i++)
		free(b->rows[i].text);
	free(b->rows);
	buf_done(&b->line);
	free(b);
}

static struct template_build **head_of(struct api *api)
{
	return &e2b_state_of(api)->builds;
}

static struct template_build *find(struct exchange *x, const char *template, const char *id)
{
	for (struct template_build *b = *head_of(x->api); b; b = b->next)
		if (str_equal(b->template, template) && (!id || str_equal(b->id, id)) &&
		    str_equal(b->who.token, x->caller.token))
			return b;
	return NULL;
}

/* Forgets the oldest of the owner's that is not at work, if there are too many. */
static bool make_room(struct api *api, const char *owner)
{
	struct template_build **oldest = NULL, **any = NULL;
	size_t own = 0, all = 0;

	for (struct template_build **at = head_of(api); *at; at = &(*at)->next) {
		all++;
		if ((*at)->state != BUILD_BUILDING)
			any = at;
		if (!str_equal((*at)->who.token, owner))
			continue;
		own++;
		if ((*at)->state != BUILD_BUILDING)
			oldest = at;
	}
	if (own < OWN_MAX && all < ALL_MAX)
		return true;
	/* Where all have too many together, nobody is locked out. */
	if (!oldest && own < OWN_MAX)
		oldest = any;
	if (oldest) {
		struct template_build *gone = *oldest;

		*oldest = gone->next;
		build_free(gone);
	}
	return oldest != NULL;
}

/* ---- the log ---- */

static void log_add(struct template_build *b, unsigned origin, const char *text, size_t len)
{
	static const char cut[] = "(the rest of the output is not kept)";

	if (b->log_bytes > LOG_BYTES || b->row_count == LOG_ROWS)
		return;
	b->log_bytes += len + 1;
	if (b->log_bytes > LOG_BYTES || b->row_count == LOG_ROWS - 1) {
		b->log_bytes = LOG_BYTES + 1;
		text = cut;
		len = sizeof(cut) - 1;
	}
	b->rows = array_room(b->rows, b->row_count, &b->row_room, sizeof(*b->rows));
	b->rows[b->row_count++] =
		(struct log_row){unix_ms(), origin, must_alloc(strndup(text, len))};
}

static void log_line_end(struct template_build *b)
{
	if (b->line.len)
		log_add(b, b->origin, buf_head(&b->line), b->line.len);
	buf_drop(&b->line, b->line.len);
}

static void log_output(struct template_build *b, const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (text[i] == '\n' || b->line.len == LINE_MAX_BYTES)
			log_line_end(b);
		if (text[i] != '\n' && text[i] != '\r' && text[i])
			buf_add(&b->line, &text[i], 1);
	}
}

static json_t *rows_json(const struct template_build *b, size_t from)
{
	json_t *all = json_array();

	for (size_t i = from; i < b->row_count && i < from + ROWS_AT_ONCE; i++) {
		json_t *row = json_pack("{s:o,s:s,s:o}", "timestamp", e2b_time(b->rows[i].ms),
					"level", "info", "message", text_json_of(b->rows[i].text));

		if (b->rows[i].origin)
			json_object_set_new(row, "step", json_sprintf("%u", b->rows[i].origin));
		json_array_append_new(all, must_alloc(row));
	}
	return all;
}

/* ---- announcing ---- */

static int read_size(const json_t *in, const char *key, uint64_t most, uint64_t *ret, struct err *e)
{
	const json_t *v = json_object_get(in, key);

	if (!v || json_is_null(v))
		return 0;
	if (!json_is_integer(v) || json_integer_value(v) < 1 ||
	    (most && (uint64_t)json_integer_value(v) > most))
		return err_field(e, ERR_INVALID, key, "%s: a number from 1 to %llu", key,
				 (unsigned long long)most);
	*ret = (uint64_t)json_integer_value(v);
	return 0;
}

/* The image gets the tag of the name, or the first of the list; the others follow. */
static int read_names(struct exchange *x, struct template_build *b, struct err *e)
{
	const json_t *tags = json_object_get(x->json, "tags"), *name, *tag;
	size_t i;

	name = json_object_get(x->json, "name");
	if (!name)
		name = json_object_get(x->json, "alias");
	if (!json_is_string(name))
		return err_field(e, ERR_INVALID, "name", "name: is missing");
	if (template_name_parse(x, json_string_value(name), &b->name, e) < 0)
		return -1;
	if ((tags && !json_is_null(tags) && !json_is_array(tags)) ||
	    json_array_size(tags) > TAGS_MAX)
		return err_field(e, ERR_INVALID, "tags", "tags: not an array of at most %d",
				 TAGS_MAX);
	json_array_foreach ((json_t *)tags, i, tag) {
		const char *text = json_string_value(tag);
		auto_free char *full = str_format("%s:%s", b->name.base, text ? text : "/");
		struct template_name other;

		if (template_name_parse(x, full, &other, e) < 0)
			return -1;
		if (!b->name.has_tag)
			b->name = other;
		else
			list_take(&b->tags, str_format("%s:%s", other.base, other.tag));
	}
	return 0;
}

static int read_announcement(struct exchange *x, struct template_build *b, struct err *e)
{
	const struct limits *most = &x->api->config->ceiling;

	if (!json_is_object(x->json))
		return err_set(e, ERR_INVALID, "the body is not a JSON object");
	if (read_names(x, b, e) < 0 ||
	    read_size(x->json, "cpuCount",
		      most->cpus_milli ? (most->cpus_milli + 999) / 1000 : 1024, &b->cpus, e) < 0 ||
	    read_size(x->json, "memoryMB", most->memory_bytes ? most->memory_bytes >> 20 : 1u << 20,
		      &b->memory_mb, e) < 0)
		return -1;
	if (!x->caller.root && x->caller.token[0])
		return err_set(e, ERR_DENIED,
			       "building is done as root inside, a right of the token, which this "
			       "one has not got: cloche token create --root");
	if (!make_room(x->api, x->caller.token))
		return err_set(e, ERR_LIMIT, "too many builds at once");
	return 0;
}

static json_t *tags_json(const struct template_build *b)
{
	json_t *all = json_array();

	if (b->name.has_tag)
		json_array_append_new(all, json_string(template_tag(b->name.tag)));
	for (size_t i = 0; i < b->tags.count; i++)
		json_array_append_new(
			all, json_string(template_tag(strrchr(b->tags.items[i], ':') + 1)));
	return all;
}

/* As a UUID. */
static void make_build_id(struct template_build *b)
{
	char hex[33];

	if (id_hex(hex, 16) < 0 || id_hex(b->key, 16) < 0)
		must_alloc(NULL);
	snprintf(b->id, sizeof(b->id), "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12,
		 hex + 16, hex + 20);
}

void e2b_build_request(struct exchange *x)
{
	struct template_build *b = must_alloc(calloc(1, sizeof(*b))), **head = head_of(x->api);
	struct err e = {0};

	b->api = x->api;
	b->who = x->caller;
	b->announced_ms = unix_ms();
	if (read_announcement(x, b, &e) < 0) {
		build_free(b);
		exchange_error(x, &e);
		return;
	}
	template_id(&x->caller, b->name.base, b->template);
	make_build_id(b);
	b->next = *head;
	*head = b;
	exchange_json(x, 202,
		      json_pack("{s:s,s:s,s:b,s:[s],s:[s],s:o}", "templateID", b->template,
				"buildID", b->id, "public", 0, "names", b->name.base, "aliases",
				b->name.base, "tags", tags_json(b)));
}

/* ---- files ---- */

static bool is_hash(const char *s)
{
	return str_only(s, STR_DIGITS "abcdef", 64, 64);
}

static void upload_name(const struct template_build *b, const char *hash, char ret[TEMPLATE_NAME])
{
	snprintf(ret, TEMPLATE_NAME, TEMPLATE_UPLOADS "%s:%s", b->template, hash);
}

void e2b_build_files(struct exchange *x)
{
	struct template_build *b = find(x, x->params[0], NULL);
	const char *hash = x->params[1], *host = exchange_header(x, "Host");
	char name[TEMPLATE_NAME];
	bool is_present;

	if (!b || !is_hash(hash)) {
		e2b_fail(x, 404, "template \"%.80s\" is not being built", x->params[0]);
		return;
	}
	upload_name(b, hash, name);
	is_present = manager_has_image(x->api->manager, &x->caller, name);
	/* A host that was not one of ours was refused. */
	exchange_json(
		x, 201,
		json_pack("{s:b,s:o}", "present", is_present, "url",
			  json_sprintf("http%s://%s/templates/%s/files/%s?key=%s",
				       config_has_tls(x->api->config) ? "s" : "",
				       host ? host : "localhost", b->template, hash, b->key)));
}

static void files_taken(void *arg, const struct err *e)
{
	struct exchange *x = arg;

	if (e)
		exchange_error(x, e);
	else
		exchange_reply(x, 200, NULL, "", 0);
}

/* The key of the address is that of a build which waits for files, and stands for who announced it. */
static struct template_build *find_by_key(struct exchange *x)
{
	const char *key = exchange_arg(x, "key");

	for (struct template_build *b = *head_of(x->api); b; b = b->next)
		if (key && str_equal(b->template, x->params[0]) && e2b_same_secret(b->key, key) &&
		    b->state == BUILD_WAITING && unix_ms() - b->announced_ms < FILES_S * 1000ull &&
		    (!b->who.token[0] ||
		     tokens_has(x->api->tokens, b->who.token, (uint64_t)time(NULL))))
			return b;
	return NULL;
}

void e2b_build_upload(struct exchange *x)
{
	static const struct image_op_ops ops = {.end = files_taken};
	struct template_build *b = find_by_key(x);
	char name[TEMPLATE_NAME];
	struct err e = {0};

	if (!b || !is_hash(x->params[1])) {
		e2b_fail(x, 403, "this address takes no files (any more)");
		return;
	}
	x->caller = b->who;
	if (exchange_admit(x, b->who.token, &e) < 0) {
		exchange_error(x, &e);
		return;
	}
	upload_name(b, x->params[1], name);
	image_op_start(x, &(struct image_wish){.job = IMAGE_JOB_FILES, .name = name}, &ops, x);
}

/* ---- the recipe ---- */

struct writing {
	struct exchange *x;
	struct template_build *b;
	struct buf out;
};

static void put(struct writing *w, const char *text)
{
	buf_add(&w->out, text, strlen(text) + 1);
}

static void put_head(struct writing *w, const char *kind, size_t origin, bool force, size_t count)
{
	char numbers[64];

	put(w, kind);
	snprintf(numbers, sizeof(numbers), "%zu", origin);
	put(w, numbers);
	put(w, force ? "1" : "0");
	snprintf(numbers, sizeof(numbers), "%zu", count);
	put(w, numbers);
}

static int bad_step(struct err *e, size_t number, const char *why)
{
	return err_field(e, ERR_INVALID, "steps", "steps: step %zu: %s", number, why);
}

/* The first argument is the upload. */
static int put_copy(struct writing *w, const json_t *step, size_t number, struct err *e)
{
	const char *hash = json_string_value(json_object_get(step, "filesHash"));
	char name[TEMPLATE_NAME];

	if (!hash || !is_hash(hash))
		return bad_step(e, number, "filesHash: 64 hexadecimal digits");
	upload_name(w->b, hash, name);
	if (!manager_has_image(w->x->api->manager, &w->x->caller, name))
		return bad_step(e, number, "its files were not uploaded");
	list_add(&w->b->used, name);
	put(w, name);
	return 0;
}

static const struct {
	const char *type, *kind;
	size_t least, most;
	bool has_files;
} step_types[] = {
	{"RUN", "RUN", 1, 2, false},
	{"COPY", "COPY", 2, 4, true},
	{"ADD", "COPY", 2, 4, true},
	{"ENV", "ENV", 2, RECIPE_STEPS, false},
	{"ARG", "ENV", 2, RECIPE_STEPS, false},
	{"USER", "USER", 1, 2, false},
	{"WORKDIR", "WORKDIR", 1, 1, false},
};

static int put_step(struct writing *w, const json_t *step, size_t number, bool force, struct err *e)
{
	const char *type = json_string_value(json_object_get(step, "type"));
	const json_t *args = json_object_get(step, "args"), *arg;
	size_t count = json_array_size(args), at = 0, i;

	while (type && at < ARRAY_LEN(step_types) && !str_equal(step_types[at].type, type))
		at++;
	if (!type || at == ARRAY_LEN(step_types))
		return bad_step(e, number, "type: one of RUN, COPY, ADD, ENV, ARG, USER, WORKDIR");
	json_array_foreach ((json_t *)args, i, arg)
		if (!json_is_string(arg) ||
		    strlen(json_string_value(arg)) != json_string_length(arg))
			return bad_step(e, number, "args: not an array of strings");
	if (count < step_types[at].least || count > step_types[at].most)
		return bad_step(e, number, "args: too few or too many");
	if (str_equal(type, "USER"))
		count = 1; /* the second one is about sudo, which everybody may */
	force = force || json_is_true(json_object_get(step, "force"));
	put_head(w, step_types[at].kind, number, force, count + step_types[at].has_files);
	if (step_types[at].has_files && put_copy(w, step, number, e) < 0)
		return -1;
	for (i = 0; i < count; i++)
		put(w, json_string_value(json_array_get(args, i)));
	return 0;
}

static void put_label(struct writing *w, const char *name, const char *value)
{
	put_head(w, "LABEL", 0, false, 2);
	put(w, name);
	put(w, value);
}

static int put_command(struct writing *w, const char *key, const char *label, struct err *e)
{
	const json_t *v = json_object_get(w->x->json, key);
	const char *text = json_string_value(v);

	if (!v || json_is_null(v))
		return 0;
	if (!text || strlen(text) != json_string_length(v) || strlen(text) > COMMAND_MAX)
		return err_field(e, ERR_INVALID, key, "%s: a text of at most %d bytes", key,
				 COMMAND_MAX);
	put_label(w, label, text);
	return 0;
}

static int put_steps(struct writing *w, struct err *e)
{
	const json_t *in = w->x->json, *steps = json_object_get(in, "steps"), *step;
	bool force = json_is_true(json_object_get(in, "force"));
	char number[24];
	size_t i;

	if ((steps && !json_is_null(steps) && !json_is_array(steps)) ||
	    json_array_size(steps) > STEPS_MAX)
		return err_field(e, ERR_INVALID, "steps", "steps: not an array of at most %d",
				 STEPS_MAX);
	json_array_foreach ((json_t *)steps, i, step)
		if (put_step(w, step, i + 1, force, e) < 0)
			return -1;
	put_label(w, IMAGE_LABEL_TEMPLATE, "1");
	if (put_command(w, "startCmd", IMAGE_LABEL_START, e) < 0 ||
	    put_command(w, "readyCmd", IMAGE_LABEL_READY, e) < 0)
		return -1;
	snprintf(number, sizeof(number), "%llu", (unsigned long long)w->b->cpus);
	if (w->b->cpus)
		put_label(w, IMAGE_LABEL_CPUS, number);
	snprintf(number, sizeof(number), "%lluM", (unsigned long long)w->b->memory_mb);
	if (w->b->memory_mb)
		put_label(w, IMAGE_LABEL_MEMORY, number);
	for (i = 0; i < w->b->tags.count; i++) {
		put_head(w, "TAG", 0, false, 1);
		put(w, w->b->tags.items[i]);
	}
	return w->out.len > RECIPE_MAX
		       ? err_field(e, ERR_LIMIT, "steps", "steps: more than %u bytes", RECIPE_MAX)
		       : 0;
}

/* The limits of each command, and the network that a sandbox of this caller gets unasked. */
static int put_terms(struct writing *w, struct err *e)
{
	struct exchange *x = w->x;
	struct create_options o;
	struct recipe_head head = {0};
	auto_buf struct buf rules = {0};
	uint64_t most = exec_timeout_most(x->api->manager, &x->caller);
	char note[E2B_NOTE];
	int rc;

	create_options_for(&o, x->api->manager, &x->caller);
	rc = e2b_network_wanted(x, NULL, &o.spec, note, e);
	if (rc == 0)
		rc = spec_finish(&o.spec, e);
	if (rc == 0)
		rc = net_policy_from_spec(&o.spec, &rules, e);
	if (rc == 0) {
		head.limits = o.spec.limits;
		head.limits.timeout_ms = most && most < RUN_MS ? most : RUN_MS;
		head.rules_size = (uint32_t)rules.len;
		buf_add(&w->out, &head, sizeof(head));
		buf_add(&w->out, buf_head(&rules), rules.len);
	}
	create_options_done(&o);
	return rc;
}

/* The image below: an id of one that is there, or a name to be pulled. */
static int find_base(struct writing *w, char ret[IPC_IMAGE_NAME], struct err *e)
{
	const json_t *in = w->x->json;
	const char *image = json_string_value(json_object_get(in, "fromImage"));
	const char *template = json_string_value(json_object_get(in, "fromTemplate"));
	auto_free char *name = NULL;
	json_t *found;

	if (json_object_size(json_object_get(in, "fromImageRegistry")))
		return err_field(e, ERR_UNSUPPORTED, "fromImageRegistry",
				 "fromImageRegistry: logins are the operator's "
				 "(image_store.auth_file)");
	if ((image && template) || (!image && !template))
		return err_field(e, ERR_INVALID, "fromImage",
				 "fromImage or fromTemplate: one of them is needed");
	if (template && e2b_is_builtin(template))
		return err_field(e, ERR_UNSUPPORTED, "fromTemplate",
				 "fromTemplate: '%s' shows the host's programs and is no image to "
				 "build on; take an image",
				 template);
	name = template ? e2b_image_of(w->x, template) : str_copy(image);
	if (!str_equal(name, "host") &&
	    manager_has_image(w->x->api->manager, &w->x->caller, name)) {
		found = manager_image(w->x->api->manager, &w->x->caller, name, e);
		snprintf(ret, IPC_IMAGE_NAME, "%s",
			 found ? json_string_value(json_object_get(found, "id")) : "");
		json_decref(found);
		if (image_is_digest(ret))
			return 0;
		return err_field(e, ERR_UNSUPPORTED, "fromImage",
				 "fromImage: '%.100s' is a directory of the operator's", name);
	}
	if (template || strlen(name) >= IPC_IMAGE_NAME)
		return err_field(e, ERR_NOT_FOUND, "fromTemplate", "there is no template '%.100s'",
				 name);
	snprintf(ret, IPC_IMAGE_NAME, "%s", name);
	return 0;
}

/* ---- the build ---- */

static void build_said(void *arg, const struct image_said *s, int fd)
{
	struct template_build *b = arg;
	size_t len = s->total < sizeof(s->text) ? (size_t)s->total : sizeof(s->text) - 1;

	close_fd(&fd);
	if (s->kind == IMAGE_SAID_STEP) {
		log_line_end(b);
		b->origin = (unsigned)s->done;
		if (b->origin)
			log_add(b, b->origin, s->text, len);
	} else if (s->kind == IMAGE_SAID_CACHED && b->origin) {
		log_add(b, b->origin, "(as before)", strlen("(as before)"));
	} else if (s->kind == IMAGE_SAID_OUTPUT) {
		log_output(b, s->text, len);
	} else if (s->kind == IMAGE_SAID_NOTE) {
		log_add(b, b->origin, s->text, strlen(s->text));
	}
}

static void nothing_done(void *arg, const struct err *e)
{
}

/* Files that the template was made of before, and is no more. */
static void drop_unused(struct template_build *b)
{
	json_auto_t *uploads = template_images(b->api, &b->who, true);
	struct template_wish *all = must_alloc(calloc(json_array_size(uploads) + 1, sizeof(*all)));
	auto_free char *own = str_format(TEMPLATE_UPLOADS "%s:", b->template);
	size_t i, count = 0;
	json_t *one;

	json_array_foreach (uploads, i, one) {
		const char *name = json_string_value(json_object_get(one, "name"));
		bool is_used = !str_starts(name, own);

		for (size_t k = 0; k < b->used.count && !is_used; k++)
			is_used = str_equal(b->used.items[k], name);
		if (!is_used)
			all[count++] =
				(struct template_wish){IMAGE_JOB_REMOVE, str_copy(name), NULL};
	}
	template_work(b->api, &b->who, all, count, nothing_done, NULL);
}

static void build_ended(void *arg, const struct err *e)
{
	struct template_build *b = arg;

	b->work = NULL;
	log_line_end(b);
	b->state = e ? BUILD_FAILED : BUILD_READY;
	if (e)
		b->err = *e;
	else
		drop_unused(b);
}

void e2b_build_start(struct exchange *x)
{
	static const struct image_work_ops ops = {build_said, build_ended};
	struct template_build *b = find(x, x->params[0], x->params[1]);
	struct writing w = {.x = x, .b = b};
	char from[IPC_IMAGE_NAME];
	struct err e = {0};

	if (!b) {
		e2b_fail(x, 404, "build \"%.80s\" not found", x->params[1]);
		return;
	}
	if (b->state != BUILD_WAITING || !json_is_object(x->json)) {
		e2b_fail(x, b->state != BUILD_WAITING ? 409 : 400,
			 b->state != BUILD_WAITING ? "the build was started already"
						   : "the body is not a JSON object");
		return;
	}
	/* A start that was refused may come again. */
	list_done(&b->used);
	b->used = (struct list){0};
	if (find_base(&w, from, &e) < 0 || put_terms(&w, &e) < 0 || put_steps(&w, &e) < 0) {
		exchange_error(x, &e);
	} else {
		auto_free char *name = str_format("%s:%s", b->name.base, b->name.tag);

		b->state = BUILD_BUILDING;
		b->work = manager_image_work(
			x->api->manager, &b->who,
			&(struct image_wish){
				.job = IMAGE_JOB_BUILD, .name = name, .to = from, .recipe = &w.out},
			&ops, b);
		exchange_reply(x, 202, NULL, "", 0);
	}
	buf_done(&w.out);
}

static json_t *reason_json(const struct template_build *b)
{
	json_t *reason = json_pack("{s:o}", "message", text_json_of(b->err.msg));

	if (b->origin)
		json_object_set_new(reason, "step", json_sprintf("%u", b->origin));
	else
		json_object_set_new(reason, "step", json_string("base"));
	return reason;
}

void e2b_build_status(struct exchange *x)
{
	static const char *const names[] = {[BUILD_WAITING] = "waiting",
					    [BUILD_BUILDING] = "building",
					    [BUILD_READY] = "ready",
					    [BUILD_FAILED] = "error"};
	const struct template_build *b = find(x, x->params[0], x->params[1]);
	struct err e = {0};
	uint64_t from;
	json_t *o;

	if (!b) {
		e2b_fail(x, 404, "build \"%.80s\" not found", x->params[1]);
		return;
	}
	if (exchange_arg_uint(x, "logsOffset", 0, UINT32_MAX, &from, &e) < 0) {
		exchange_error_as(x, 400, &e);
		return;
	}
	o = json_pack("{s:s,s:s,s:s,s:o,s:[]}", "templateID", b->template, "buildID", b->id,
		      "status", names[b->state], "logEntries", rows_json(b, (size_t)from), "logs");
	if (b->state == BUILD_FAILED)
		json_object_set_new(o, "reason", reason_json(b));
	exchange_json(x, 200, must_alloc(o));
}
