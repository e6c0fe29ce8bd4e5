#include "cli/cloched.h"

#include "base/auto.h"
#include "base/jsonw.h"
#include "base/str.h"
#include "cli/selftest_level.h"
#include "cli/selftest_report.h"

#include <stdio.h>
#include <string.h>

enum { EXIT_THROUGH = 1, EXIT_CANNOT = 125 };

struct options {
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
	return fflush(stdout) == 0 ? 0 : EXIT_CANNOT;
}

static int parse_options(int argc, char **argv, struct options *o, struct err *e)
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

/* 0, or the exit status of the worst that was found. */
static int run_levels(struct selftest *t, const char *only, struct jsonw *j)
{
	int status = 0;

	for (size_t i = 0; i < ARRAY_LEN(levels); i++) {
		struct err e = {0};

		if (only && !str_equal(only, levels[i]))
			continue;
		t->container = i == 0;
		if (level_attack(t, &e) < 0) {
			fprintf(stderr, "cloche: %s\n", e.msg);
			status = status ? status : EXIT_CANNOT;
			continue;
		}
		report_level(t, j);
		if (report_count(t, OUTCOME_NOT_REFUSED))
			status = EXIT_THROUGH;
	}
	return status;
}

static int run_and_report(struct selftest *t, const struct options *o)
{
	struct jsonw j;
	int status;

	if (!o->json) {
		status = run_levels(t, o->level, NULL);
		return fflush(stdout) == 0 ? status : EXIT_CANNOT;
	}
	jsonw_begin(&j, stdout);
	jsonw_open(&j, NULL, '{');
	jsonw_open(&j, "levels", '[');
	status = run_levels(t, o->level, &j);
	jsonw_close(&j, ']');
	jsonw_bool(&j, "ok", status == 0);
	jsonw_close(&j, '}');
	jsonw_raw(&j, "\n", 1);
	return jsonw_finish(&j) == 0 ? status : EXIT_CANNOT;
}

int cmd_selftest(int argc, char **argv)
{
	struct selftest t = {.stage = STAGE_NONE};
	struct options options = {0};
	struct err e = {0};
	int status = EXIT_CANNOT;

	if (parse_options(argc, argv, &options, &e) < 0)
		fprintf(stderr, "cloche: %s\n", e.msg);
	else if (options.help)
		status = print_help();
	else if (stage_open(&t.stage, &e) < 0 ||
		 attacks_load(&t.stage, &options.cases, &t.attacks, &e) < 0)
		fprintf(stderr, "cloche: %s\n", e.msg);
	else
		status = run_and_report(&t, &options);
	stage_close(&t.stage);
	attacks_done(&t.attacks);
	list_done(&options.cases);
	return status;
}
