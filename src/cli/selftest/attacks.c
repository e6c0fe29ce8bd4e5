/*
 * The attacks: the table that cloche-probe prints, and the outcome of each by what the probe, the plant
 * and the record say.
 */
#include "cli/selftest/selftest_internal.h"

#include <assert.h>
#include <jansson.h>

#define LIST_MS 10000

static const char *const outcome_names[] = {
	[OUTCOME_NONE] = "not tried",	       [OUTCOME_REFUSED] = "refused",
	[OUTCOME_CANNOT_TELL] = "cannot tell", [OUTCOME_WEAK] = "weak",
	[OUTCOME_GAP] = "known gap",	       [OUTCOME_NOT_REFUSED] = "NOT REFUSED",
};
static_assert(ARRAY_LEN(outcome_names) == OUTCOME_COUNT, "a name for each outcome");

static const struct {
	const char *word;
	unsigned bit;
} flag_words[] = {
	{"safe", ATTACK_SAFE},	     {"container-only", ATTACK_CONTAINER_ONLY},
	{"weak", ATTACK_WEAK},	     {"gap", ATTACK_GAP},
	{"outside", ATTACK_OUTSIDE}, {"kill-ok", ATTACK_KILL_OK},
};

const char *outcome_name(enum outcome_kind outcome)
{
	return outcome_names[outcome];
}

static void each_word(char *text, const char *sep, void (*take)(struct attack *, const char *),
		      struct attack *a)
{
	char *rest = NULL;

	for (char *w = strtok_r(text, sep, &rest); w; w = strtok_r(NULL, sep, &rest))
		take(a, w);
}

static void take_flag(struct attack *a, const char *word)
{
	for (size_t i = 0; i < ARRAY_LEN(flag_words); i++)
		if (str_equal(word, flag_words[i].word))
			a->flags |= flag_words[i].bit;
}

static void take_layer(struct attack *a, const char *word)
{
	int l = layer_find(word);

	if (l >= 0)
		a->layers |= LAYER_BIT(l);
}

static void take_setup(struct attack *a, const char *word)
{
	if (!a->setup)
		a->setup = str_copy(str_equal(word, "-") ? "common" : word);
	else
		list_add(&a->options, word);
}

/* Columns: name, number, flags, layers, setup, title. False if the case is not safe to try. */
static bool parse_row(char *line, struct attack *ret)
{
	char *columns[6], *at = line;
	struct attack a = {0};

	for (size_t i = 0; i < ARRAY_LEN(columns); i++) {
		columns[i] = at;
		at = at ? strchr(at, '\t') : NULL;
		if (at)
			*at++ = '\0';
	}
	if (!columns[5])
		return false;
	each_word(columns[2], ",", take_flag, &a);
	if (!(a.flags & ATTACK_SAFE))
		return false;
	each_word(columns[3], ",", take_layer, &a);
	each_word(columns[4], " ", take_setup, &a);
	a.name = str_copy(columns[0]);
	a.title = str_copy(columns[5]);
	*ret = a;
	return true;
}

static void attack_done(struct attack *a)
{
	free(a->name);
	free(a->title);
	free(a->setup);
	list_done(&a->options);
}

static bool is_among(const char *name, const struct list *names)
{
	for (size_t i = 0; i < names->count; i++)
		if (str_equal(names->items[i], name))
			return true;
	return names->count == 0;
}

static struct attack *attacks_find(const struct attacks *a, const char *name)
{
	for (size_t i = 0; i < a->count; i++)
		if (str_equal(a->items[i].name, name))
			return &a->items[i];
	return NULL;
}

static int check_names(const struct attacks *a, const struct list *names, struct err *e)
{
	for (size_t i = 0; i < names->count; i++)
		if (!attacks_find(a, names->items[i]))
			return err_set(e, ERR_INVALID,
				       "selftest: there is no case '%s'; without one, all are "
				       "tried and listed",
				       names->items[i]);
	return a->count ? 0 : err_set(e, ERR_SYSTEM, "cloche-probe lists no attack");
}

/* Adds the row of one line, if it is wanted. */
static void add_row(struct attacks *a, char *line, const struct list *names)
{
	struct attack row;

	if (!parse_row(line, &row))
		return;
	if (!is_among(row.name, names)) {
		attack_done(&row);
		return;
	}
	a->items = must_alloc(realloc(a->items, (a->count + 1) * sizeof(*a->items)));
	a->items[a->count++] = row;
}

int attacks_load(const struct test_stage *s, const struct list *names, struct attacks *ret,
		 struct err *e)
{
	auto_list struct list argv = {0};
	auto_program_end struct program_end end = {0};
	const struct program p = {.argv = &argv, .in = STDIN_NULL, .timeout_ms = LIST_MS};
	char *rest = NULL;

	list_add_all(&argv, (const char *const[]){s->probe, "--list", NULL});
	if (stage_run(s, &p, &end, e) < 0)
		return -1;
	for (char *l = strtok_r(end.out, "\n", &rest); l; l = strtok_r(NULL, "\n", &rest))
		add_row(ret, l, names);
	return check_names(ret, names, e);
}

void attacks_done(struct attacks *a)
{
	for (size_t i = 0; i < a->count; i++)
		attack_done(&a->items[i]);
	free(a->items);
	*a = (struct attacks){0};
}

void attack_note(struct attack *a, enum outcome_kind outcome, const char *detail)
{
	a->outcome = outcome;
	str_sanitise(a->detail, sizeof(a->detail), detail, strlen(detail));
}

/* ---- judging ---- */

/*
 * Layers that may be missing without a fault: at level process whatever the record lists; at
 * level container the limits that an ordinary user cannot have without a cgroup of their own.
 */
static layer_set admitted(const struct selftest *t)
{
	const layer_set limits =
		LAYER_BIT(LAYER_CGROUP) | LAYER_BIT(LAYER_MEMORY) | LAYER_BIT(LAYER_CPU);

	if (!t->container)
		return t->missing;
	return geteuid() == 0 ? 0 : t->missing & limits;
}

void judge_attack(const struct selftest *t, struct attack *a, bool through, const char *detail)
{
	if (!through)
		attack_note(a, a->control ? OUTCOME_REFUSED : OUTCOME_CANNOT_TELL,
			    a->control ? detail : "fails outside of a sandbox as well");
	else if (a->flags & ATTACK_GAP)
		attack_note(a, OUTCOME_GAP, detail);
	else if ((a->flags & ATTACK_WEAK) && (a->layers & admitted(t)))
		attack_note(a, OUTCOME_WEAK, detail);
	else
		attack_note(a, OUTCOME_NOT_REFUSED, detail);
}

static void judge_line(struct selftest *t, struct attack *a, const char *verdict,
		       const char *detail)
{
	bool through = str_equal(verdict, "got-through");

	if (t->control)
		a->control = through;
	else if (str_equal(verdict, "cannot-tell"))
		attack_note(a, OUTCOME_CANNOT_TELL, detail);
	else
		judge_attack(t, a, through, detail);
}

void judge_lines(struct selftest *t, char *text)
{
	char *rest = NULL;

	for (char *l = strtok_r(text, "\n", &rest); l; l = strtok_r(NULL, "\n", &rest)) {
		char *verdict = strchr(l, '\t');
		char *detail = verdict ? strchr(verdict + 1, '\t') : NULL;
		struct attack *a;

		if (!detail)
			continue;
		*verdict++ = '\0';
		*detail++ = '\0';
		a = attacks_find(&t->attacks, l);
		if (a)
			judge_line(t, a, verdict, detail);
	}
}

void judge_hits(struct selftest *t)
{
	auto_list struct list hits = {0};

	plant_hits(&t->stage.host, &hits);
	for (size_t i = 0; i < hits.count; i++) {
		struct attack *a = attacks_find(&t->attacks, hits.items[i]);

		if (a && t->control)
			a->control = true;
		else if (a)
			judge_attack(t, a, true, "what was planted outside was reached");
	}
}

/* A case that used memory up may have left no line. */
void judge_record(struct selftest *t, const char *json, struct attack *alone)
{
	json_t *record = json_loads(json, 0, NULL);
	const char *text = json_string_value(json_object_get(record, "stdout"));
	const char *status = json_string_value(json_object_get(record, "status"));
	auto_free char *copy = str_copy(text ? text : "");

	judge_lines(t, copy);
	if (alone && alone->outcome == OUTCOME_NONE && (alone->flags & ATTACK_KILL_OK) && status &&
	    str_equal(status, "oom"))
		judge_attack(t, alone, false, "the sandbox was killed for memory");
	json_decref(record);
}

int judge_missing(const char *json, layer_set *ret)
{
	json_t *record = json_loads(json, 0, NULL);
	const json_t *list = json_object_get(json_object_get(record, "layers"), "missing");
	bool is_record = json_is_array(list);
	layer_set missing = 0;
	const json_t *item;
	size_t i;

	json_array_foreach (list, i, item) {
		int l = json_is_string(item) ? layer_find(json_string_value(item)) : -1;

		if (l >= 0)
			missing |= LAYER_BIT(l);
	}
	json_decref(record);
	if (!is_record)
		return -1;
	*ret = missing;
	return 0;
}
