/* Turns a recipe into steps of a build, and tells the front what becomes of them. */
#include "image/build/recipe.h"

#include "image/build/build.h"

#define USUAL_USER "user"

struct recipe {
	struct recipe_head head;
	struct buf rules;
	struct build_steps steps;
	struct list tags;
	char *user; /* of the steps that follow */
};

/* One step as it was written. */
struct written {
	const char *kind;
	unsigned origin;
	bool force;
	size_t count;
	const char *args[RECIPE_STEPS];
};

/* ---- reading ---- */

static int malformed(struct err *e)
{
	return err_set(e, ERR_INVALID, "the recipe is malformed");
}

static const char *next_text(const char **at, const char *end)
{
	const char *text = *at, *nul = memchr(text, '\0', (size_t)(end - text));

	if (!nul)
		return NULL;
	*at = nul + 1;
	return text;
}

static int next_number(const char **at, const char *end, uint64_t *ret, struct err *e)
{
	const char *text = next_text(at, end);

	return text && parse_count(text, ret, e) == 0 ? 0 : malformed(e);
}

static int next_written(const char **at, const char *end, struct written *ret, struct err *e)
{
	uint64_t origin, force, count;

	ret->kind = next_text(at, end);
	if (!ret->kind || next_number(at, end, &origin, e) < 0 ||
	    next_number(at, end, &force, e) < 0 || next_number(at, end, &count, e) < 0 ||
	    origin > RECIPE_STEPS || count > ARRAY_LEN(ret->args))
		return malformed(e);
	ret->origin = (unsigned)origin;
	ret->force = force != 0;
	ret->count = (size_t)count;
	for (size_t i = 0; i < ret->count; i++)
		if (!(ret->args[i] = next_text(at, end)))
			return malformed(e);
	return 0;
}

/* ---- steps ---- */

static struct build_step *add(struct recipe *r, enum build_kind kind, const struct written *w)
{
	struct build_step *s = build_steps_add(&r->steps, kind);

	s->origin = w->origin;
	s->no_cache = w->force;
	return s;
}

static struct build_step *add_text(struct recipe *r, enum build_kind kind, const struct written *w,
				   const char *text)
{
	struct build_step *s = add(r, kind, w);

	list_add(&s->args, text);
	s->text = str_format("%s %.300s", build_kind_name(kind), text);
	return s;
}

/* Variables in it count, quotes do not. */
static char *quote(const char *text)
{
	char *all = must_alloc(malloc(2 * strlen(text) + 1)), *to = all;

	for (; *text; text++) {
		if (strchr("\\\"'", *text))
			*to++ = '\\';
		*to++ = *text;
	}
	*to = '\0';
	return all;
}

static void switch_user(struct recipe *r, const struct written *w, const char *user)
{
	auto_free char *quoted = quote(user);

	add_text(r, BUILD_ACCOUNT, w, quoted);
	add_text(r, BUILD_USER, w, quoted);
}

/* The image's shell, without its profile: that would hide the PATH of the image. */
static void take_run(struct recipe *r, const struct written *w)
{
	static const char script[] =
		"if [ -x /bin/bash ]; then exec /bin/bash -c \"$0\"; fi; exec /bin/sh -c \"$0\"";
	static const char *const shell[] = {"/bin/sh", "-c", script, NULL};
	bool is_other = w->count > 1 && *w->args[1] && !str_equal(w->args[1], r->user);
	struct build_step *s;

	if (is_other)
		switch_user(r, w, w->args[1]);
	s = add(r, BUILD_RUN, w);
	s->is_exec = true;
	list_add_all(&s->args, shell);
	list_add(&s->args, w->args[0]);
	s->text = str_format("RUN %.300s", w->args[0]);
	if (is_other)
		switch_user(r, w, r->user);
}

static void take_copy(struct recipe *r, const struct written *w)
{
	const char *user = w->count > 3 && *w->args[3] ? w->args[3] : r->user;
	auto_free char *source = quote(w->args[1]), *to = quote(w->args[2]), *owner = quote(user);
	struct build_step *s;

	add_text(r, BUILD_ACCOUNT, w, owner);
	s = add(r, BUILD_COPY, w);
	list_take(&s->flags, str_format("from=%s", w->args[0]));
	list_take(&s->flags, str_format("chown=%s", owner));
	if (w->count > 4 && *w->args[4])
		list_take(&s->flags, str_format("chmod=%s", w->args[4]));
	list_add(&s->args, source);
	list_add(&s->args, to);
	s->text = str_format("COPY %.150s %.150s", w->args[1], w->args[2]);
}

/* Each sees those before it. */
static void take_env(struct recipe *r, const struct written *w)
{
	for (size_t i = 0; i + 1 < w->count; i += 2) {
		struct build_step *s = add(r, BUILD_ENV, w);
		auto_free char *value = quote(w->args[i + 1]);

		list_take(&s->args, str_format("%s=%s", w->args[i], value));
		s->text = str_format("ENV %.300s", w->args[i]);
	}
}

/* No variables here: what a label says is for later. */
static void take_label(struct recipe *r, const struct written *w)
{
	struct build_step *s = add(r, BUILD_LABEL, w);
	struct buf pair = {0};

	buf_add(&pair, w->args[0], strlen(w->args[0]));
	buf_add(&pair, "=", 1);
	for (const char *c = w->args[1]; *c; c++) {
		if (strchr("\\\"'$", *c))
			buf_add(&pair, "\\", 1);
		buf_add(&pair, c, 1);
	}
	buf_add(&pair, "", 1);
	list_add(&s->args, buf_head(&pair));
	s->text = str_format("LABEL %.300s", w->args[0]);
	buf_done(&pair);
}

static void take_user(struct recipe *r, const struct written *w)
{
	switch_user(r, w, w->args[0]);
	free(r->user);
	r->user = str_copy(w->args[0]);
}

static void take_workdir(struct recipe *r, const struct written *w)
{
	auto_free char *path = quote(w->args[0]);

	add_text(r, BUILD_WORKDIR, w, path);
}

static void take_tag(struct recipe *r, const struct written *w)
{
	list_add(&r->tags, w->args[0]);
}

static const struct {
	const char *name;
	size_t least, most; /* arguments */
	void (*take)(struct recipe *r, const struct written *w);
} kinds[] = {
	{"RUN", 1, 2, take_run},     {"COPY", 3, 5, take_copy},
	{"USER", 1, 1, take_user},   {"WORKDIR", 1, 1, take_workdir},
	{"TAG", 1, 1, take_tag},     {"ENV", 2, RECIPE_STEPS, take_env},
	{"LABEL", 2, 2, take_label},
};

static int take_written(struct recipe *r, const struct written *w, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		if (!str_equal(kinds[i].name, w->kind))
			continue;
		if (w->count < kinds[i].least || w->count > kinds[i].most ||
		    (kinds[i].take == take_env && w->count % 2))
			return malformed(e);
		kinds[i].take(r, w);
		return 0;
	}
	return malformed(e);
}

static int take_steps(struct recipe *r, const char *base, const char *at, const char *end,
		      struct err *e)
{
	struct written *w = must_alloc(calloc(1, sizeof(*w)));
	auto_free char *from = str_format("sha256:%s", base);
	int rc = 0;

	add_text(r, BUILD_FROM, w, from);
	r->user = str_copy(USUAL_USER);
	switch_user(r, w, r->user);
	add_text(r, BUILD_WORKDIR, w, "/home/" USUAL_USER);
	while (rc == 0 && at < end) {
		rc = next_written(&at, end, w, e);
		if (rc == 0)
			rc = take_written(r, w, e);
		if (rc == 0 && r->steps.count > RECIPE_STEPS * 8)
			rc = malformed(e);
	}
	free(w);
	return rc;
}

static int read_recipe(struct recipe *r, int file, char **ret_steps, size_t *ret_len, struct err *e)
{
	size_t head = sizeof(r->head), len;
	char *bytes;

	if (file < 0 || io_read_whole(file, head + IMAGE_PLAN_MAX, &bytes, &len) < 0)
		return err_sys(e, "cannot read the recipe");
	*ret_steps = bytes;
	if (len < head)
		return malformed(e);
	memcpy(&r->head, bytes, head);
	if (len - head < r->head.rules_size)
		return malformed(e);
	buf_add(&r->rules, bytes + head, r->head.rules_size);
	head += r->head.rules_size;
	*ret_len = len - head;
	memmove(bytes, bytes + head, *ret_len);
	return 0;
}

static void recipe_done(struct recipe *r)
{
	build_steps_done(&r->steps);
	buf_done(&r->rules);
	list_done(&r->tags);
	free(r->user);
}

/* ---- building ---- */

static void say_event(void *arg, const struct build_event *what)
{
	static const enum image_said_kind kinds_said[] = {[BUILD_STEP] = IMAGE_SAID_STEP,
							  [BUILD_CACHED] = IMAGE_SAID_CACHED,
							  [BUILD_OUTPUT] = IMAGE_SAID_OUTPUT};
	struct image_said s = {.kind = kinds_said[what->kind], .done = what->origin};
	size_t len = what->kind == BUILD_OUTPUT ? what->len : strlen(what->text);

	for (size_t at = 0; at == 0 || at < len; at += s.total) {
		s.total = len - at < sizeof(s.text) ? len - at : sizeof(s.text) - 1;
		memcpy(s.text, what->text + at, s.total);
		image_job_say(&s);
		if (len == 0)
			break;
	}
}

static void set_limit(struct list *to, const char *option, const char *unit, uint64_t value)
{
	if (!value)
		return;
	list_add(to, option);
	list_take(to, str_format("%llu%s", (unsigned long long)value, unit));
}

static void set_options(const struct recipe *r, struct list *to)
{
	const struct limits *h = &r->head.limits;

	set_limit(to, "--memory", "", h->memory_bytes);
	set_limit(to, "--disk", "", h->disk_bytes);
	set_limit(to, "--pids", "", h->pids);
	set_limit(to, "--timeout", "ms", h->timeout_ms);
	if (h->cpus_milli) {
		list_add(to, "--cpus");
		list_take(to, str_format("%llu.%03u", (unsigned long long)h->cpus_milli / 1000,
					 (unsigned)(h->cpus_milli % 1000)));
	}
	if (r->rules.len) {
		list_add(to, "--net");
		list_add(to, "public"); /* the rules say what of it */
	}
}

static void nothing_made(const char *hex, const char *name)
{
}

/* The image below: an id that the broker has allowed, or a name of the owner's, which is pulled if need be. */
static int find_base(struct image_maker *m, const struct image_order *o, char hex[IMAGE_HEX + 1],
		     struct err *e)
{
	const struct image_pull pull = {.name = o->to,
					.mirrors = o->mirrors,
					.is_plain = o->is_plain,
					.auth_file = o->auth_file,
					.made = nothing_made};
	struct image i = {.lock = -1};

	if (image_is_digest(o->to)) {
		memcpy(hex, o->to + strlen("sha256:"), IMAGE_HEX + 1);
		return 0;
	}
	if (image_find(&m->store, o->to, &i, e) < 0 &&
	    (e->kind != ERR_NOT_FOUND || image_pull(m, &pull, e) < 0 ||
	     image_find(&m->store, o->to, &i, e) < 0))
		return -1;
	memcpy(hex, i.hex, sizeof(i.hex));
	image_done(&i);
	return 0;
}

static int build(struct image_maker *m, const struct image_order *o, struct recipe *r,
		 const char *base, struct err *e)
{
	auto_list struct list options = {0};
	struct image_reference name;
	char hex[IMAGE_HEX + 1];
	const struct image_build b = {.steps = &r->steps,
				      .context = -1,
				      .name = o->name,
				      .run_options = &options,
				      .launcher = o->launcher,
				      .has_network = r->rules.len > 0,
				      .rules = r->rules.len ? &r->rules : NULL,
				      .base = base,
				      .is_closed = true,
				      .event = say_event};

	set_options(r, &options);
	if (image_build(m, &b, hex, e) < 0)
		return -1;
	for (size_t i = 0; i < r->tags.count; i++)
		if (image_reference_parse(r->tags.items[i], &name, e) < 0 ||
		    image_tag(&m->store, name.name, hex, NULL, e) < 0)
			return -1;
	image_job_say_made(hex, o->name);
	return 0;
}

int recipe_build(struct image_maker *m, const struct image_order *o, struct err *e)
{
	struct recipe r = {0};
	auto_free char *steps = NULL;
	char base[IMAGE_HEX + 1];
	size_t len = 0;
	int rc = read_recipe(&r, o->recipe, &steps, &len, e);

	image_job_say(&(struct image_said){.kind = IMAGE_SAID_STEP, .text = "FROM", .total = 4});
	if (rc == 0)
		rc = find_base(m, o, base, e);
	if (rc == 0)
		rc = take_steps(&r, base, steps, steps + len, e);
	if (rc == 0)
		rc = build(m, o, &r, base, e);
	recipe_done(&r);
	return rc;
}
