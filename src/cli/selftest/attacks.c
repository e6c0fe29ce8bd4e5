/* Reads the table of attacks that cloche-probe prints, and keeps what came of each. */
#include "cli/selftest/attacks.h"

#include <assert.h>

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

const char *outcome_name(enum outcome outcome)
{
	return outcome_names[outcome];
}

static void parse_words(char *text, const char *sep, void (*take)(struct attack *, const char *),
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

/* name, number, flags, layers, setup, title; false if it is not for us */
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
	parse_words(columns[2], ",", take_flag, &a);
	if (!(a.flags & ATTACK_SAFE))
		return false;
	parse_words(columns[3], ",", take_layer, &a);
	parse_words(columns[4], " ", take_setup, &a);
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

int attacks_load(const struct stage *s, const struct list *names, struct attacks *ret,
		 struct err *e)
{
	struct list argv = {0};
	struct start start = {.argv = &argv, .in = STDIN_NULL, .timeout_ms = LIST_MS};
	struct attacks a = {0};
	struct ended ended;
	char *rest = NULL;
	int rc;

	list_add(&argv, s->probe);
	list_add(&argv, "--list");
	rc = stage_run(s, &start, &ended, e);
	list_done(&argv);
	if (rc < 0)
		return -1;
	for (char *l = strtok_r(ended.out, "\n", &rest); l; l = strtok_r(NULL, "\n", &rest))
		add_row(&a, l, names);
	ended_done(&ended);
	*ret = a;
	return check_names(&a, names, e);
}

void attacks_done(struct attacks *a)
{
	for (size_t i = 0; i < a->count; i++)
		attack_done(&a->items[i]);
	free(a->items);
	*a = (struct attacks){0};
}

struct attack *attacks_find(const struct attacks *a, const char *name)
{
	for (size_t i = 0; i < a->count; i++)
		if (str_equal(a->items[i].name, name))
			return &a->items[i];
	return NULL;
}

void attack_note(struct attack *a, enum outcome outcome, const char *detail)
{
	a->outcome = outcome;
	str_sanitise(a->detail, sizeof(a->detail), detail, strlen(detail));
}
