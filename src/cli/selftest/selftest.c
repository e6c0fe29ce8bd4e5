/*
 * `cloche selftest`: attacks sandboxes of this host with those cases of cloche-probe that do no
 * harm if they get through, and prints which were refused, which were not, and which cannot be
 * judged.
 */
#include "cli/operator/cloched.h"

#include "cli/cli.h"
#include "cli/verbs/client_verb.h"
#include "cli/selftest/selftest_internal.h"

enum { EXIT_THROUGH = 1 };

struct wanted {
	bool help;
	bool json;
	const char *level; /* NULL: both */
	struct list cases; /* none: all */
};

static const char *const levels[] = {"container", "process"};

static int print_help(void)
{
	puts("usage: cloche selftest [--level container|process] [--json] [CASE...]\n"
	     "Attacks sandboxes of both levels on this host, harmlessly, and says what was "
	     "refused; "
	     "each attack is\n"
	     "tried outside as well, where it must get through. CASE: only these.\n"
	     "Exit status 0: everything was refused; 1: something got through; 125: cannot tell.");
	return finish_stdout(0);
}

static int parse_options(int argc, char **argv, struct wanted *o, struct err *e)
{
	for (int i = 1; i < argc; i++) {
		if (str_equal(argv[i], "--help") || str_equal(argv[i], "-h"))
			o->help = true;
		else if (str_equal(argv[i], "--json"))
			o->json = true;
		else if (str_equal(argv[i], "--level") && i + 1 < argc)
			o->level = argv[++i];
		else if (str_starts(argv[i], "--level="))
			o->level = argv[i] + strlen("--level=");
		else if (argv[i][0] != '-')
			list_add(&o->cases, argv[i]);
		else
			return err_set(e, ERR_INVALID,
				       "selftest: '%s': try: cloche selftest [--level "
				       "container|process] [--json] [CASE...]",
				       argv[i]);
	}
	if (o->level && !str_equal(o->level, levels[0]) && !str_equal(o->level, levels[1]))
		return err_field(e, ERR_INVALID, "level",
				 "level: '%s' cannot be tested here; it is container or process",
				 o->level);
	return 0;
}

/* ---- what was found ---- */

/* Keys of the counts in JSON; each outcome of an attack that was tried has one. */
static const struct {
	enum outcome_kind outcome;
	const char *key;
} counts[] = {
	{OUTCOME_REFUSED, "refused"},	      {OUTCOME_NOT_REFUSED, "not_refused"},
	{OUTCOME_CANNOT_TELL, "cannot_tell"}, {OUTCOME_WEAK, "weak"},
	{OUTCOME_GAP, "known_gaps"},
};

static unsigned report_count(const struct selftest *t, enum outcome_kind outcome)
{
	unsigned n = 0;

	for (size_t i = 0; i < t->attacks.count; i++)
		n += level_tries(t, &t->attacks.items[i]) && t->attacks.items[i].outcome == outcome;
	return n;
}

static void print_level(const struct selftest *t)
{
	unsigned weak = report_count(t, OUTCOME_WEAK), gaps = report_count(t, OUTCOME_GAP);

	printf("level %s\n", level_word(t));
	for (size_t i = 0; i < t->attacks.count; i++) {
		const struct attack *a = &t->attacks.items[i];
		bool plain = a->outcome == OUTCOME_REFUSED;

		if (level_tries(t, a))
			printf("  %-12s %-20s %s%s%s\n", outcome_name(a->outcome), a->name,
			       a->title, plain ? "" : ": ", plain ? "" : a->detail);
	}
	printf("level %s: %u refused, %u NOT REFUSED, %u cannot tell", level_word(t),
	       report_count(t, OUTCOME_REFUSED), report_count(t, OUTCOME_NOT_REFUSED),
	       report_count(t, OUTCOME_CANNOT_TELL));
	if (weak)
		printf(", %u weak (named in layers.missing)", weak);
	if (gaps)
		printf(", %u known gap%s (SECURITY.md)", gaps, gaps == 1 ? "" : "s");
	printf("\n\n");
}

static json_t *describe_level(const struct selftest *t)
{
	json_t *level = json_pack("{s:s}", "level", level_word(t)), *cases = json_array();

	for (size_t i = 0; i < ARRAY_LEN(counts); i++)
		json_object_set_new(level, counts[i].key,
				    json_integer(report_count(t, counts[i].outcome)));
	for (size_t i = 0; i < t->attacks.count; i++) {
		const struct attack *a = &t->attacks.items[i];

		if (level_tries(t, a))
			json_array_append_new(cases, json_pack("{s:s, s:s, s:s, s:b, s:o}", "name",
							       a->name, "title", a->title,
							       "verdict", outcome_name(a->outcome),
							       "control", a->control, "detail",
							       client_text(a->detail)));
	}
	json_object_set_new(level, "cases", cases);
	return level;
}

static void report_level(const struct selftest *t, json_t *levels)
{
	if (levels)
		json_array_append_new(levels, describe_level(t));
	else
		print_level(t);
}

/* Returns 0, or the exit status of the worst finding. found: an array for JSON, or NULL. */
static int run_levels(struct selftest *t, const char *only, json_t *found)
{
	int status = 0;

	for (size_t i = 0; i < ARRAY_LEN(levels); i++) {
		struct err e = {0};

		if (only && !str_equal(only, levels[i]))
			continue;
		t->container = i == 0;
		if (level_attack(t, &e) < 0) {
			fprintf(stderr, "cloche: %s\n", e.msg);
			status = status ? status : EXIT_CLOCHE;
			continue;
		}
		report_level(t, found);
		if (report_count(t, OUTCOME_NOT_REFUSED))
			status = EXIT_THROUGH;
	}
	return status;
}

static int attack_and_report(struct selftest *t, const struct wanted *o)
{
	json_t *found = o->json ? json_array() : NULL;
	int status = run_levels(t, o->level, found), printed;

	if (!found)
		return finish_stdout(status);
	printed = print_json(json_pack("{s:o, s:b}", "levels", found, "ok", status == 0));
	return printed ? printed : status;
}

int cmd_selftest(int argc, char **argv)
{
	struct selftest t = {.stage = STAGE_NONE};
	struct wanted options = {0};
	struct err e = {0};
	int status = EXIT_CLOCHE;

	if (parse_options(argc, argv, &options, &e) < 0)
		fprintf(stderr, "cloche: %s\n", e.msg);
	else if (options.help)
		status = print_help();
	else if (stage_open(&t.stage, &e) < 0 ||
		 attacks_load(&t.stage, &options.cases, &t.attacks, &e) < 0)
		fprintf(stderr, "cloche: %s\n", e.msg);
	else
		status = attack_and_report(&t, &options);
	stage_close(&t.stage);
	attacks_done(&t.attacks);
	list_done(&options.cases);
	return status;
}
