/* Walks through stages and steps. What a step is like is in one table; steps that make layers have files of their own. */
#include "image/build/build_internal.h"

#include "image/build/expand.h"
#include "image/build/health.h"

#include <assert.h>
#include <fcntl.h>

#define STAGES_MAX 100
#define USUAL_PATH "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* ---- stages ---- */

static struct stage *find_stage(const struct build *b, const char *name, size_t before)
{
	for (size_t i = 0; i < before; i++)
		if (b->stages[i].name && strcasecmp(b->stages[i].name, name) == 0)
			return &b->stages[i];
	if (str_only(name, STR_DIGITS, 1, 3) && (size_t)atoi(name) < before)
		return &b->stages[atoi(name)];
	return NULL;
}

static const struct build_step *steps_of(const struct build *b)
{
	return b->how->steps->items;
}

static int add_stage(struct build *b, size_t i, struct err *e)
{
	const struct build_step *s = &steps_of(b)[i];
	struct stage *g = &b->stages[b->stage_count];

	if (b->stage_count == STAGES_MAX)
		return err_set(e, ERR_LIMIT, "there are more than %d stages", STAGES_MAX);
	if (s->args.count != 1 && (s->args.count != 3 || strcasecmp(s->args.items[1], "AS") != 0))
		return err_set(e, ERR_INVALID, "line %u: FROM IMAGE [AS NAME]", s->line);
	*g = (struct stage){.first = i};
	if (s->args.count == 3)
		g->name = str_copy(s->args.items[2]);
	b->stage_count++;
	return 0;
}

static int find_stages(struct build *b, struct err *e)
{
	const struct build_steps *steps = b->how->steps;

	b->stages = must_alloc(calloc(STAGES_MAX, sizeof(*b->stages)));
	for (size_t i = 0; i < steps->count; i++) {
		if (steps->items[i].kind == BUILD_FROM && add_stage(b, i, e) < 0)
			return -1;
		if (b->stage_count)
			b->stages[b->stage_count - 1].end = i + 1;
		else if (steps->items[i].kind != BUILD_ARG)
			return err_set(e, ERR_INVALID, "line %u: the first instruction is FROM",
				       steps->items[i].line);
	}
	return b->stage_count ? 0 : err_set(e, ERR_INVALID, "there is no FROM");
}

/* Marks stages that this text names; with a variable it may be any. */
static void need_named(struct build *b, const char *text, size_t before)
{
	auto_free char *name = must_alloc(strndup(text, strcspn(text, ",")));
	struct stage *g = find_stage(b, name, before);

	if (g)
		g->is_needed = true;
	for (size_t i = 0; strchr(name, '$') && i < before; i++)
		b->stages[i].is_needed = true;
}

static void need_of(struct build *b, size_t at)
{
	const struct stage *g = &b->stages[at];

	need_named(b, steps_of(b)[g->first].args.items[0], at);
	for (size_t i = g->first; i < g->end; i++)
		for (size_t f = 0; f < steps_of(b)[i].flags.count; f++) {
			const char *from = strstr(steps_of(b)[i].flags.items[f], "from=");

			if (from)
				need_named(b, from + strlen("from="), at);
		}
}

/* Only stages that the target needs are built. */
static int choose_stages(struct build *b, size_t *ret_target, struct err *e)
{
	const struct stage *target = b->how->target ? find_stage(b, b->how->target, b->stage_count)
						    : &b->stages[b->stage_count - 1];

	if (!target)
		return err_field(e, ERR_NOT_FOUND, "target", "target: there is no stage '%.100s'",
				 b->how->target);
	*ret_target = (size_t)(target - b->stages);
	b->stages[*ret_target].is_needed = true;
	for (size_t i = *ret_target + 1; i-- > 0;)
		if (b->stages[i].is_needed)
			need_of(b, i);
	for (size_t i = 0; i <= *ret_target; i++)
		if (b->stages[i].is_needed)
			b->of += (unsigned)(b->stages[i].end - b->stages[i].first);
	return 0;
}

/* ---- images ---- */

static void nothing_made(const char *hex, const char *name)
{
}

/* Of the store, or of its registry. */
static int find_image(struct build *b, const char *name, struct image *ret, struct err *e)
{
	static const struct list none;
	const struct image_pull pull = {.name = name,
					.mirrors = b->how->mirrors ? b->how->mirrors : &none,
					.is_plain = b->how->is_plain,
					.made = nothing_made};

	if (b->how->base && str_starts(name, "sha256:") &&
	    str_equal(name + strlen("sha256:"), b->how->base))
		return image_open(&b->maker->store, b->how->base, ret, e);
	if (image_find(&b->maker->store, name, ret, e) == 0)
		return 0;
	if (e->kind != ERR_NOT_FOUND || b->how->is_closed || image_pull(b->maker, &pull, e) < 0)
		return -1;
	return image_find(&b->maker->store, name, ret, e);
}

static int read_image(struct build *b, const char *name, struct build_config *ret, struct err *e)
{
	struct image i = {.lock = -1};
	int rc = find_image(b, name, &i, e);

	if (rc == 0)
		rc = build_config_read(b->maker, i.hex, ret, e);
	image_done(&i);
	return rc;
}

int build_layers_of(struct build *b, const char *name, struct list *ret, struct err *e)
{
	const struct stage *g = find_stage(b, name, (size_t)(b->now - b->stages));
	struct build_config c = {0};

	if (!g && str_only(name, STR_DIGITS, 1, 3))
		return err_set(e, ERR_NOT_FOUND, "there is no stage %s before this one", name);
	if (!g && read_image(b, name, &c, e) < 0)
		return -1;
	if ((g ? &g->config : &c)->layers.count)
		list_add_all(ret, (const char *const *)(g ? &g->config : &c)->layers.items);
	build_config_done(&c);
	return 0;
}

/* ---- arguments of steps ---- */

int build_flag(const struct build *b, const struct build_step *s, const char *name, char **ret,
	       struct err *e)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < s->flags.count; i++) {
		const char *flag = s->flags.items[i];

		if (!str_starts(flag, name) || flag[len] != '=')
			continue;
		*ret = expand_word(flag + len + 1, BUILD_VARIABLES(b), e);
		return *ret ? 1 : -1;
	}
	return 0;
}

/* All arguments, with variables replaced. */
static int expand_all(const struct build *b, const struct build_step *s, struct list *ret,
		      struct err *e)
{
	for (size_t i = 0; i < s->args.count; i++) {
		char *word = expand_word(s->args.items[i], BUILD_VARIABLES(b), e);

		if (!word)
			return -1;
		list_take(ret, word);
	}
	return 0;
}

typedef int step_function(struct build *b, const struct build_step *s, struct err *e);

/* ---- steps that change the configuration ---- */

static int set_pairs(struct build *b, const struct build_step *s, struct list *to, struct err *e)
{
	auto_list struct list pairs = {0};

	/* All values see what was there before the step. */
	if (expand_all(b, s, &pairs, e) < 0)
		return -1;
	for (size_t i = 0; i < pairs.count; i++)
		build_config_set(to, pairs.items[i]);
	return 0;
}

static int step_env(struct build *b, const struct build_step *s, struct err *e)
{
	return set_pairs(b, s, &b->now->config.env, e);
}

static int step_label(struct build *b, const struct build_step *s, struct err *e)
{
	return set_pairs(b, s, &b->now->config.label, e);
}

/* What the caller gave; else the default; else what the file says in front of FROM, or is always known. */
static int set_arg(struct build *b, const char *arg, const struct list *const *variables,
		   struct list *to, struct err *e)
{
	size_t len = strcspn(arg, "=");
	const struct list *const given[] = {b->how->args ? b->how->args : &(struct list){0}, NULL};
	const struct list *const others[] = {&b->globals, &b->usual, NULL};
	const char *value = variables_find(given, arg, len);
	auto_free char *expanded = NULL, *pair = NULL;

	if (len == 0)
		return err_set(e, ERR_INVALID, "ARG needs a name");
	if (!value && arg[len])
		value = expanded = expand_word(arg + len + 1, variables, e);
	if (!value && arg[len])
		return -1;
	if (!value)
		value = variables_find(others, arg, len);
	if (!value)
		return 0;
	pair = str_format("%.*s=%s", (int)len, arg, value);
	build_config_set(to, pair);
	return 0;
}

static int step_arg(struct build *b, const struct build_step *s, struct err *e)
{
	for (size_t i = 0; i < s->args.count; i++)
		if (set_arg(b, s->args.items[i], BUILD_VARIABLES(b), &b->now->args, e) < 0)
			return -1;
	return 0;
}

static int set_text(struct build *b, const struct build_step *s, char **to, struct err *e)
{
	auto_free char *word = expand_word(s->args.items[0], BUILD_VARIABLES(b), e);

	if (!word)
		return -1;
	if (!*word)
		return err_set(e, ERR_INVALID, "%s needs a value", build_kind_name(s->kind));
	build_config_put(to, word);
	return 0;
}

static int step_user(struct build *b, const struct build_step *s, struct err *e)
{
	return set_text(b, s, &b->now->config.user, e);
}

static int step_stopsignal(struct build *b, const struct build_step *s, struct err *e)
{
	return set_text(b, s, &b->now->config.stopsignal, e);
}

static int add_each(struct build *b, const struct build_step *s, struct list *to, const char *usual,
		    struct err *e)
{
	auto_list struct list words = {0};

	if (expand_all(b, s, &words, e) < 0)
		return -1;
	for (size_t i = 0; i < words.count; i++) {
		auto_free char *full = str_format("%s%s", words.items[i],
						  strchr(words.items[i], '/') ? "" : usual);
		bool known = false;

		for (size_t k = 0; k < to->count; k++)
			known = known || str_equal(to->items[k], full);
		if (!known)
			list_add(to, full);
	}
	return 0;
}

static int step_expose(struct build *b, const struct build_step *s, struct err *e)
{
	return add_each(b, s, &b->now->config.port, "/tcp", e);
}

static int step_volume(struct build *b, const struct build_step *s, struct err *e)
{
	return add_each(b, s, &b->now->config.volume, "", e);
}

/* The arguments as they are; a command of the shell gets the shell in front. */
static void set_command(struct build *b, const struct build_step *s, struct list *to)
{
	static const char *const shell[] = {"/bin/sh", "-c", NULL};
	const struct list *own = &b->now->config.shell;

	list_done(to);
	*to = (struct list){0};
	if (!s->is_exec && s->args.count)
		list_add_all(to, own->count ? (const char *const *)own->items : shell);
	for (size_t i = 0; i < s->args.count; i++)
		list_add(to, s->args.items[i]);
}

static int step_cmd(struct build *b, const struct build_step *s, struct err *e)
{
	set_command(b, s, &b->now->config.cmd);
	b->now->config.has_cmd = true;
	return 0;
}

/* The CMD of the image below was meant for its own entrypoint. */
static int step_entrypoint(struct build *b, const struct build_step *s, struct err *e)
{
	struct build_config *c = &b->now->config;

	set_command(b, s, &c->entrypoint);
	if (!c->has_cmd) {
		list_done(&c->cmd);
		c->cmd = (struct list){0};
	}
	return 0;
}

static int step_shell(struct build *b, const struct build_step *s, struct err *e)
{
	list_done(&b->now->config.shell);
	b->now->config.shell = (struct list){0};
	list_add_all(&b->now->config.shell, (const char *const *)s->args.items);
	return 0;
}

static int step_onbuild(struct build *b, const struct build_step *s, struct err *e)
{
	list_add(&b->now->config.onbuild, s->args.items[0]);
	return 0;
}

static int step_healthcheck(struct build *b, const struct build_step *s, struct err *e)
{
	char *json = health_json(s, e);

	if (!json)
		return -1;
	free(b->now->config.health);
	b->now->config.health = json;
	return 0;
}

/* ---- FROM ---- */

static int check_platform(struct build *b, const struct build_step *s,
			  const struct list *const *variables, struct err *e)
{
	auto_free char *own = str_format("linux/%s", image_architecture()), *asked = NULL;

	if (s->flags.count == 0)
		return 0;
	asked = expand_word(s->flags.items[0] + strlen("platform="), variables, e);
	if (!asked)
		return -1;
	return !*asked || str_equal(asked, own)
		       ? 0
		       : err_set(e, ERR_UNSUPPORTED, "the platform %.60s is not this machine's",
				 asked);
}

static int do_step(struct build *b, const struct build_step *s, struct err *e);

/* What the image below wants to be done in each image that is made from it. */
static int run_triggers(struct build *b, struct err *e)
{
	struct list triggers = b->now->config.onbuild;
	int rc = 0;

	b->now->config.onbuild = (struct list){0};
	for (size_t i = 0; rc == 0 && i < triggers.count; i++) {
		struct build_steps steps = {0};

		rc = dockerfile_parse(triggers.items[i], strlen(triggers.items[i]), &steps, e);
		for (size_t k = 0; rc == 0 && k < steps.count; k++)
			rc = do_step(b, &steps.items[k], e);
		build_steps_done(&steps);
		if (rc < 0)
			err_wrap(e, "ONBUILD %.100s", triggers.items[i]);
	}
	list_done(&triggers);
	return rc;
}

static int step_from(struct build *b, const struct build_step *s, struct err *e)
{
	const struct list *const variables[] = {&b->globals, &b->usual, NULL};
	auto_free char *name = expand_word(s->args.items[0], variables, e);
	const struct stage *below;

	if (!name || check_platform(b, s, variables, e) < 0)
		return -1;
	below = find_stage(b, name, (size_t)(b->now - b->stages));
	if (below)
		build_config_copy(&below->config, &b->now->config);
	else if (!str_equal(name, "scratch") && read_image(b, name, &b->now->config, e) < 0)
		return -1;
	/* "${PATH}:/more" is common, also where the image below sets none. */
	if (!variables_find((const struct list *const[]){&b->now->config.env, NULL}, "PATH", 4))
		list_add(&b->now->config.env, USUAL_PATH);
	return run_triggers(b, e);
}

/* ---- all ---- */

static const struct {
	step_function *take;
	bool has_history; /* adds its row itself */
} kinds[] = {
	[BUILD_FROM] = {step_from, true},
	[BUILD_RUN] = {build_step_run, true},
	[BUILD_COPY] = {build_step_copy, true},
	[BUILD_ADD] = {build_step_copy, true},
	[BUILD_ENV] = {step_env, false},
	[BUILD_ARG] = {step_arg, false},
	[BUILD_WORKDIR] = {build_step_workdir, true},
	[BUILD_USER] = {step_user, false},
	[BUILD_LABEL] = {step_label, false},
	[BUILD_EXPOSE] = {step_expose, false},
	[BUILD_VOLUME] = {step_volume, false},
	[BUILD_CMD] = {step_cmd, false},
	[BUILD_ENTRYPOINT] = {step_entrypoint, false},
	[BUILD_SHELL] = {step_shell, false},
	[BUILD_ONBUILD] = {step_onbuild, false},
	[BUILD_STOPSIGNAL] = {step_stopsignal, false},
	[BUILD_HEALTHCHECK] = {step_healthcheck, false},
	[BUILD_ACCOUNT] = {build_step_account, true},
};
static_assert(ARRAY_LEN(kinds) == BUILD_KINDS, "one row for each kind");

static int do_step(struct build *b, const struct build_step *s, struct err *e)
{
	if (kinds[s->kind].take(b, s, e) < 0)
		return -1;
	if (!kinds[s->kind].has_history)
		build_config_history(&b->now->config, s->text, true);
	return 0;
}

static int tell_and_do(struct build *b, const struct build_step *s, struct err *e)
{
	b->number++;
	if (b->how->event)
		b->how->event(b->how->arg, &(struct build_event){.kind = BUILD_STEP,
								 .number = b->number,
								 .of = b->of,
								 .origin = s->origin,
								 .text = s->text});
	if (do_step(b, s, e) == 0)
		return 0;
	return s->line ? err_wrap(e, "line %u: %.60s", s->line, s->text)
		       : err_wrap(e, "%.60s", s->text);
}

static int build_stage(struct build *b, struct stage *g, struct err *e)
{
	b->now = g;
	for (size_t i = g->first; i < g->end; i++)
		if (tell_and_do(b, &steps_of(b)[i], e) < 0)
			return -1;
	return 0;
}

static int set_globals(struct build *b, struct err *e)
{
	const char *const architecture = image_architecture();
	const struct list *const variables[] = {&b->globals, &b->usual, NULL};

	for (int i = 0; i < 2; i++) {
		const char *what = i ? "BUILD" : "TARGET";

		list_take(&b->usual, str_format("%sPLATFORM=linux/%s", what, architecture));
		list_take(&b->usual, str_format("%sOS=linux", what));
		list_take(&b->usual, str_format("%sARCH=%s", what, architecture));
	}
	for (size_t i = 0; i < b->stages[0].first; i++)
		for (size_t k = 0; k < steps_of(b)[i].args.count; k++)
			if (set_arg(b, steps_of(b)[i].args.items[k], variables, &b->globals, e) < 0)
				return -1;
	return 0;
}

static int open_cache(struct build *b, struct err *e)
{
	if (mkdirat(b->maker->store.dir, "build", 0700) < 0 && errno != EEXIST)
		return err_sys(e, "cannot make %s/build", b->maker->store.path);
	b->cache = openat(b->maker->store.dir, "build",
			  O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return b->cache < 0 ? err_sys(e, "cannot open %s/build", b->maker->store.path) : 0;
}

static int finish(struct build *b, const struct stage *g, char hex[IMAGE_HEX + 1], struct err *e)
{
	struct image_reference name;

	if (build_config_make(b->maker, &g->config, hex, e) < 0)
		return -1;
	if (!b->how->name)
		return 0;
	if (image_reference_parse(b->how->name, &name, e) < 0)
		return -1;
	if (b->maker->is_wanted && !b->maker->is_wanted())
		return err_set(e, ERR_CONFLICT, "the build was given up");
	return image_tag(&b->maker->store, name.name, hex, NULL, e);
}

static void free_stages(struct build *b)
{
	for (size_t i = 0; i < b->stage_count; i++) {
		free(b->stages[i].name);
		build_config_done(&b->stages[i].config);
		list_done(&b->stages[i].args);
	}
	free(b->stages);
}

int image_build(struct image_maker *m, const struct image_build *how, char hex[IMAGE_HEX + 1],
		struct err *e)
{
	struct build b = {.maker = m, .how = how, .cache = -1};
	struct image_reference name;
	size_t target = 0;
	int rc = -1;

	/* A name that cannot be given is known before anything is done. */
	if (how->name && image_reference_parse(how->name, &name, e) < 0)
		return -1;
	if (find_stages(&b, e) == 0 && choose_stages(&b, &target, e) == 0 &&
	    set_globals(&b, e) == 0 && open_cache(&b, e) == 0 &&
	    (how->context < 0 || copy_read_ignored(how->context, &b.ignored, e) == 0))
		rc = 0;
	for (size_t i = 0; rc == 0 && i <= target; i++)
		if (b.stages[i].is_needed)
			rc = build_stage(&b, &b.stages[i], e);
	if (rc == 0)
		rc = finish(&b, &b.stages[target], hex, e);
	free_stages(&b);
	list_done(&b.globals);
	list_done(&b.usual);
	list_done(&b.ignored);
	close_fd(&b.cache);
	return rc;
}
