#include "cli/selftest_report.h"

#include "base/auto.h"

#include <stdio.h>

/* Keys of the counts in JSON; each outcome of an attack that was tried has one. */
static const struct {
	enum outcome outcome;
	const char *key;
} counts[] = {
	{OUTCOME_REFUSED, "refused"},	      {OUTCOME_NOT_REFUSED, "not_refused"},
	{OUTCOME_CANNOT_TELL, "cannot_tell"}, {OUTCOME_WEAK, "weak"},
	{OUTCOME_GAP, "known_gaps"},
};

unsigned report_count(const struct selftest *t, enum outcome outcome)
{
	unsigned n = 0;

	for (size_t i = 0; i < t->attacks.count; i++)
		n += level_tries(t, &t->attacks.items[i]) && t->attacks.items[i].outcome == outcome;
	return n;
}

static void print_table(const struct selftest *t)
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

static void add_object(const struct selftest *t, struct jsonw *j)
{
	jsonw_open(j, NULL, '{');
	jsonw_string(j, "level", level_word(t));
	for (size_t i = 0; i < ARRAY_LEN(counts); i++)
		jsonw_uint(j, counts[i].key, report_count(t, counts[i].outcome));
	jsonw_open(j, "cases", '[');
	for (size_t i = 0; i < t->attacks.count; i++) {
		const struct attack *a = &t->attacks.items[i];

		if (!level_tries(t, a))
			continue;
		jsonw_open(j, NULL, '{');
		jsonw_string(j, "name", a->name);
		jsonw_string(j, "title", a->title);
		jsonw_string(j, "verdict", outcome_name(a->outcome));
		jsonw_bool(j, "control", a->control);
		jsonw_string(j, "detail", a->detail);
		jsonw_close(j, '}');
	}
	jsonw_close(j, ']');
	jsonw_close(j, '}');
}

void report_level(const struct selftest *t, struct jsonw *j)
{
	if (j)
		add_object(t, j);
	else
		print_table(t);
}
