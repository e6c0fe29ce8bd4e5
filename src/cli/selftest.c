/*
 * Theory of operation. cloche-probe holds the attacks as a table; `cloche-probe --list` prints it.
 * The safe ones are tried three times: outside of any sandbox (the control: what fails there as
 * well proves nothing when it fails inside), in a sandbox of level container, in one of level
 * process. What they reach for belongs to a stage of ours (selftest_stage). Cases that use limits
 * up get a sandbox of their own; acts leave processes behind, and we look whether any is alive
 * afterwards.
 */
#include "cli/selftest.h"

#include "base/auto.h"
#include "base/jsonw.h"
#include "base/str.h"
#include "cli/selftest_stage.h"
#include "model/layer.h"

#include <jansson.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { EXIT_THROUGH = 1, EXIT_CANNOT = 125, RUN_MS = 120000 };

enum verdict { NO_VERDICT, REFUSED, CANNOT_TELL, WEAK, GAP, NOT_REFUSED, VERDICT_COUNT };

static const char *const verdict_words[] = {
	[NO_VERDICT] = "not tried",    [REFUSED] = "refused",
	[CANNOT_TELL] = "cannot tell", [WEAK] = "weak",
	[GAP] = "known gap",	       [NOT_REFUSED] = "NOT REFUSED",
};

enum case_flag {
	F_SAFE = 1,
	F_CONTAINER_ONLY = 2,
	F_WEAK = 4,
	F_GAP = 8,
	F_OUTSIDE = 16,
	F_KILL_OK = 32
};

static const struct {
	const char *word;
	unsigned bit;
} flag_words[] = {
	{"safe", F_SAFE},	{"container-only", F_CONTAINER_ONLY},
	{"weak", F_WEAK},	{"gap", F_GAP},
	{"outside", F_OUTSIDE}, {"kill-ok", F_KILL_OK},
};

struct attack {
	char *name, *title, *setup;
	struct list options; /* of its sandbox */
	unsigned flags;
	layer_set layers;
	bool control; /* it gets through outside */
	enum verdict verdict;
	char detail[200];
};

struct selftest {
	struct stage stage;
	struct attack *attacks;
	size_t count;
	bool json;
	const char *level; /* NULL: both */
	/* of the level that is being tried */
	bool container;
	layer_set missing;
};

/* ---- the table ---- */

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

/* name, number, flags, layers, setup, title */
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
	if (!(a.flags & F_SAFE))
		return false;
	parse_words(columns[3], ",", take_layer, &a);
	parse_words(columns[4], " ", take_setup, &a);
	a.name = str_copy(columns[0]);
	a.title = str_copy(columns[5]);
	*ret = a;
	return true;
}

static int load_attacks(struct selftest *t, struct err *e)
{
	struct list argv = {0};
	struct start start = {.argv = &argv, .in = STDIN_NULL, .timeout_ms = RUN_MS};
	struct ended ended;
	char *rest = NULL;

	list_add(&argv, t->stage.probe);
	list_add(&argv, "--list");
	if (stage_run(&t->stage, &start, &ended, e) < 0)
		return -1;
	for (char *l = strtok_r(ended.out, "\n", &rest); l; l = strtok_r(NULL, "\n", &rest)) {
		t->attacks = must_alloc(realloc(t->attacks, (t->count + 1) * sizeof(*t->attacks)));
		t->count += parse_row(l, &t->attacks[t->count]);
	}
	ended_done(&ended);
	list_done(&argv);
	return t->count ? 0 : err_set(e, ERR_SYSTEM, "cloche-probe lists no attack");
}

static bool is_tried(const struct selftest *t, const struct attack *a)
{
	return t->container || !(a->flags & F_CONTAINER_ONLY);
}

static struct attack *find_attack(struct selftest *t, const char *name)
{
	for (size_t i = 0; i < t->count; i++)
		if (str_equal(t->attacks[i].name, name))
			return &t->attacks[i];
	return NULL;
}

/* ---- verdicts ---- */

static void say(struct attack *a, enum verdict v, const char *detail)
{
	a->verdict = v;
	str_sanitise(a->detail, sizeof(a->detail), detail, strlen(detail));
}

/*
 * Layers that may be missing without a fault: at level process whatever the record owns up to; at
 * level container the limits that an ordinary user cannot have without a cgroup of his own.
 */
static layer_set admitted(const struct selftest *t)
{
	const layer_set limits =
		LAYER_BIT(LAYER_CGROUP) | LAYER_BIT(LAYER_MEMORY) | LAYER_BIT(LAYER_CPU);

	if (!t->container)
		return t->missing;
	return geteuid() == 0 ? 0 : t->missing & limits;
}

static void judge(struct selftest *t, struct attack *a, bool through, const char *detail)
{
	if (!through)
		say(a, a->control ? REFUSED : CANNOT_TELL,
		    a->control ? detail : "fails outside of a sandbox as well");
	else if (a->flags & F_GAP)
		say(a, GAP, detail);
	else if ((a->flags & F_WEAK) && (a->layers & admitted(t)))
		say(a, WEAK, detail);
	else
		say(a, NOT_REFUSED, detail);
}

/* Takes the probe's lines apart; with control only the outcome outside is noted. */
static void take_lines(struct selftest *t, char *text, bool control)
{
	char *rest = NULL;

	for (char *l = strtok_r(text, "\n", &rest); l; l = strtok_r(NULL, "\n", &rest)) {
		char *verdict = strchr(l, '\t'),
		     *detail = verdict ? strchr(verdict + 1, '\t') : NULL;
		struct attack *a;

		if (!detail)
			continue;
		*verdict++ = '\0';
		*detail++ = '\0';
		a = find_attack(t, l);
		if (!a)
			continue;
		if (control)
			a->control = str_equal(verdict, "got-through");
		else if (str_equal(verdict, "cannot-tell"))
			say(a, CANNOT_TELL, detail);
		else
			judge(t, a, str_equal(verdict, "got-through"), detail);
	}
}

static void take_hits(struct selftest *t, bool control)
{
	struct list hits = {0};

	stage_hits(&t->stage, &hits);
	for (size_t i = 0; i < hits.count; i++) {
		struct attack *a = find_attack(t, hits.items[i]);

		if (a && control)
			a->control = true;
		else if (a)
			judge(t, a, true, "what was planted outside was reached");
	}
	list_done(&hits);
}

/* ---- starting ---- */

/* How a set of cases has to be started; the words are those of the probe's table. */
struct setup {
	const char *name;
	enum start_stdin in;
	bool to_file, in_group;
};

static const struct setup setups[] = {
	{"common", STDIN_TTY, false, false},
	{"group", STDIN_NULL, false, true},
	{"stdin-dir", STDIN_DIRECTORY, false, false},
	{"stdout-file", STDIN_TTY, true, false},
};

static struct start start_of(const struct setup *s, const struct list *argv, const char *cwd)
{
	return (struct start){.argv = argv,
			      .cwd = cwd,
			      .in = s->in,
			      .to_file = s->to_file,
			      .in_group = s->in_group,
			      .timeout_ms = RUN_MS};
}

static const char *level_word(const struct selftest *t)
{
	return t->container ? "container" : "process";
}

/* Level process has no mounts: there the current directory is what is shown read-only. */
static const char *level_cwd(const struct selftest *t)
{
	return t->container ? t->stage.work : t->stage.ro;
}

static void cloche_argv(const struct selftest *t, bool json, const struct attack *a,
			struct list *ret)
{
	list_add(ret, t->stage.cloche);
	list_add(ret, "run");
	list_add(ret, "--level");
	list_add(ret, level_word(t));
	if (json)
		list_add(ret, "--json");
	if (t->container) {
		list_add(ret, "--mount");
		list_take(ret, str_format("%s:/ro:ro", t->stage.ro));
	}
	for (size_t i = 0; a && i < a->options.count; i++)
		list_add(ret, a->options.items[i]);
	list_add(ret, "--");
	list_add(ret, "./cloche-probe");
}

static size_t add_names(const struct selftest *t, const char *setup, bool all, struct list *ret)
{
	size_t before = ret->count;

	for (size_t i = 0; i < t->count; i++)
		if (str_equal(t->attacks[i].setup, setup) && (all || is_tried(t, &t->attacks[i])) &&
		    !(t->attacks[i].flags & F_OUTSIDE))
			list_add(ret, t->attacks[i].name);
	return ret->count - before;
}

/* ---- the control ---- */

static int control_setup(struct selftest *t, const struct setup *setup, struct err *e)
{
	const struct place place = {t->stage.ro, t->stage.work};
	struct list argv = {0};
	struct start start = start_of(setup, &argv, t->stage.work);
	struct ended ended;
	int rc = 0;

	list_add(&argv, t->stage.probe);
	list_add(&argv, "--control");
	stage_canaries(&t->stage, &place, NULL, &argv);
	list_take(&argv, str_format("peer=%s", t->stage.tag));
	if (add_names(t, setup->name, true, &argv)) {
		rc = stage_run(&t->stage, &start, &ended, e);
		if (rc == 0) {
			take_lines(t, ended.out, true);
			take_hits(t, true);
			ended_done(&ended);
		}
	}
	stage_reset(&t->stage);
	list_done(&argv);
	return rc;
}

/* What an act leaves behind on the bare host is alive afterwards, until we end it. */
static int control_act(struct selftest *t, struct attack *a, struct err *e)
{
	struct list argv = {0};
	struct start start = {
		.argv = &argv, .cwd = t->stage.work, .in = STDIN_NULL, .timeout_ms = 700};
	auto_free char *tag = str_format("%s-%s-control", t->stage.tag, a->name);
	struct ended ended;
	int rc;

	list_add(&argv, t->stage.probe);
	list_add(&argv, "--act");
	list_add(&argv, a->name);
	list_add(&argv, tag);
	rc = stage_run(&t->stage, &start, &ended, e);
	if (rc == 0) {
		a->control = stage_tagged(tag, false) > 0;
		/* Some fork faster than one can read: until none is left. */
		for (int i = 0; i < 1000 && stage_tagged(tag, true); i++)
			;
		ended_done(&ended);
	}
	list_done(&argv);
	return rc;
}

static int control_all(struct selftest *t, struct err *e)
{
	static const struct setup solo = {"solo", STDIN_TTY, false, false};

	for (size_t i = 0; i < ARRAY_LEN(setups); i++)
		if (control_setup(t, &setups[i], e) < 0)
			return -1;
	for (size_t i = 0; i < t->count; i++)
		if ((t->attacks[i].flags & F_OUTSIDE) && control_act(t, &t->attacks[i], e) < 0)
			return -1;
	return control_setup(t, &solo, e);
}

/* ---- one level ---- */

static layer_set read_missing(const json_t *record)
{
	const json_t *list = json_object_get(json_object_get(record, "layers"), "missing");
	layer_set missing = 0;
	const json_t *item;
	size_t i;

	json_array_foreach(list, i, item)
	{
		int l = json_is_string(item) ? layer_find(json_string_value(item)) : -1;

		if (l >= 0)
			missing |= LAYER_BIT(l);
	}
	return missing;
}

/* The probe's lines are the record's stdout; a case that used memory up may have left none. */
static void take_record(struct selftest *t, const struct ended *ended, struct attack *solo)
{
	json_t *record = json_loads(ended->out, 0, NULL);
	const char *text = json_string_value(json_object_get(record, "stdout"));
	const char *status = json_string_value(json_object_get(record, "status"));
	auto_free char *copy = str_copy(text ? text : "");

	take_lines(t, copy, false);
	if (solo && solo->verdict == NO_VERDICT && (solo->flags & F_KILL_OK) && status &&
	    str_equal(status, "oom"))
		judge(t, solo, false, "the sandbox was killed for memory");
	json_decref(record);
}

/* Not to start at all is a fine answer to an impossible stdin. */
static void take_refusal(struct selftest *t, const struct setup *setup, const char *why)
{
	for (size_t i = 0; i < t->count; i++)
		if (str_equal(t->attacks[i].setup, setup->name) && is_tried(t, &t->attacks[i]))
			judge(t, &t->attacks[i], false, why);
}

static int attack_setup(struct selftest *t, const struct setup *setup, const struct plant *peer,
			const char *peer_tag, struct err *e)
{
	const struct place place = {t->container ? "/ro" : t->stage.ro,
				    t->container ? t->stage.work : NULL};
	struct list argv = {0};
	struct start start = start_of(setup, &argv, level_cwd(t));
	struct ended ended;
	int rc = 0;

	cloche_argv(t, !setup->to_file, NULL, &argv);
	stage_canaries(&t->stage, &place, peer, &argv);
	list_take(&argv, str_format("peer=%s", peer_tag));
	if (add_names(t, setup->name, false, &argv)) {
		rc = stage_run(&t->stage, &start, &ended, e);
		if (rc == 0 && ended.status == EXIT_CANNOT && setup->in == STDIN_DIRECTORY)
			take_refusal(t, setup, ended.err);
		else if (rc == 0 && setup->to_file)
			take_lines(t, ended.out, false);
		else if (rc == 0)
			take_record(t, &ended, NULL);
		take_hits(t, false);
		if (rc == 0)
			ended_done(&ended);
	}
	list_done(&argv);
	return rc;
}

static int attack_solo(struct selftest *t, struct attack *a, struct err *e)
{
	const struct place place = {t->container ? "/ro" : t->stage.ro, NULL};
	struct list argv = {0};
	struct start start = {.argv = &argv, .cwd = level_cwd(t), .timeout_ms = RUN_MS};
	struct ended ended;
	int rc;

	cloche_argv(t, true, a, &argv);
	stage_canaries(&t->stage, &place, NULL, &argv);
	list_add(&argv, a->name);
	rc = stage_run(&t->stage, &start, &ended, e);
	if (rc == 0) {
		take_record(t, &ended, a);
		ended_done(&ended);
	}
	list_done(&argv);
	return rc;
}

static int attack_act(struct selftest *t, struct attack *a, struct err *e)
{
	struct list argv = {0};
	struct start start = {
		.argv = &argv, .cwd = level_cwd(t), .in = STDIN_NULL, .timeout_ms = RUN_MS};
	auto_free char *tag = str_format("%s-%s-%s", t->stage.tag, a->name, level_word(t));
	struct ended ended;
	unsigned left = 0;
	char detail[64];
	int rc;

	cloche_argv(t, true, a, &argv);
	list_add(&argv, "--act");
	list_add(&argv, a->name);
	list_add(&argv, tag);
	rc = stage_run(&t->stage, &start, &ended, e);
	list_done(&argv);
	if (rc < 0)
		return -1;
	for (int i = 0; i < 10 && (left = stage_tagged(tag, false)); i++)
		poll(NULL, 0, 10);
	snprintf(detail, sizeof(detail), "%u processes are alive afterwards", left);
	if (ended.status == EXIT_CANNOT)
		say(a, CANNOT_TELL, ended.err);
	else
		judge(t, a, left > 0, left ? detail : "nothing is alive afterwards");
	for (int i = 0; i < 1000 && left; i++)
		left = stage_tagged(tag, true);
	ended_done(&ended);
	return 0;
}

/* Is there a sandbox of this level at all, and what does its record own up to? */
static int try_level(struct selftest *t, struct err *e)
{
	struct list argv = {0};
	struct start start = {
		.argv = &argv, .cwd = level_cwd(t), .in = STDIN_NULL, .timeout_ms = RUN_MS};
	struct ended ended;
	json_t *record;
	int rc = 0;

	cloche_argv(t, true, NULL, &argv);
	list_add(&argv, "--whoami");
	if (stage_run(&t->stage, &start, &ended, e) < 0)
		return -1;
	record = json_loads(ended.out, 0, NULL);
	if (record && ended.status == 0) {
		t->missing = read_missing(record);
	} else {
		char why[300];

		str_sanitise(why, sizeof(why), ended.err, strcspn(ended.err, "\n"));
		rc = err_set(e, ERR_UNSUPPORTED, "level %s: no sandbox (exit status %d): %s",
			     level_word(t), ended.status, why);
	}
	json_decref(record);
	ended_done(&ended);
	list_done(&argv);
	return rc;
}

static int attack_with_peer(struct selftest *t, struct err *e)
{
	auto_free char *tag = str_format("%sp%d", t->stage.tag, t->container);
	struct plant peer = {.pid = -1, .to = -1, .from = -1};
	struct list argv = {0};
	struct start start = {.argv = &argv, .cwd = level_cwd(t)};
	int rc = 0;

	cloche_argv(t, false, NULL, &argv);
	list_add(&argv, "--plant");
	list_add(&argv, tag);
	if (plant_start(&start, &peer, e) < 0)
		rc = err_wrap(e, "level %s, second sandbox", level_word(t));
	for (size_t i = 0; rc == 0 && i < ARRAY_LEN(setups); i++)
		rc = attack_setup(t, &setups[i], &peer, tag, e);
	plant_stop(&peer);
	list_done(&argv);
	return rc;
}

static int attack_level(struct selftest *t, struct err *e)
{
	size_t answers = 0;

	for (size_t i = 0; i < t->count; i++)
		say(&t->attacks[i], NO_VERDICT, "no answer came out of the sandbox");
	if (try_level(t, e) < 0 || attack_with_peer(t, e) < 0)
		return -1;
	for (size_t i = 0; i < t->count; i++) {
		struct attack *a = &t->attacks[i];

		if (!is_tried(t, a))
			continue;
		if (a->flags & F_OUTSIDE ? attack_act(t, a, e) < 0
					 : str_equal(a->setup, "solo") && attack_solo(t, a, e) < 0)
			return -1;
		answers += a->verdict != NO_VERDICT;
		if (a->verdict == NO_VERDICT)
			a->verdict = CANNOT_TELL;
	}
	return answers ? 0
		       : err_set(e, ERR_SYSTEM, "level %s: no answer from inside", level_word(t));
}

/* ---- output ---- */

static void count_verdicts(const struct selftest *t, unsigned counts[VERDICT_COUNT])
{
	for (size_t i = 0; i < t->count; i++)
		if (is_tried(t, &t->attacks[i]))
			counts[t->attacks[i].verdict]++;
}

static void print_table(const struct selftest *t, const unsigned counts[VERDICT_COUNT])
{
	printf("level %s\n", level_word(t));
	for (size_t i = 0; i < t->count; i++) {
		const struct attack *a = &t->attacks[i];

		if (is_tried(t, a))
			printf("  %-12s %-20s %s%s%s\n", verdict_words[a->verdict], a->name,
			       a->title, a->verdict == REFUSED ? "" : ": ",
			       a->verdict == REFUSED ? "" : a->detail);
	}
	printf("level %s: %u refused, %u NOT REFUSED, %u cannot tell", level_word(t),
	       counts[REFUSED], counts[NOT_REFUSED], counts[CANNOT_TELL]);
	if (counts[WEAK])
		printf(", %u weak (named in layers.missing)", counts[WEAK]);
	if (counts[GAP])
		printf(", %u known gap%s", counts[GAP], counts[GAP] == 1 ? "" : "s");
	printf("\n\n");
}

static void print_json(const struct selftest *t, struct jsonw *j,
		       const unsigned counts[VERDICT_COUNT])
{
	jsonw_open(j, NULL, '{');
	jsonw_string(j, "level", level_word(t));
	jsonw_uint(j, "refused", counts[REFUSED]);
	jsonw_uint(j, "not_refused", counts[NOT_REFUSED]);
	jsonw_uint(j, "cannot_tell", counts[CANNOT_TELL]);
	jsonw_uint(j, "weak", counts[WEAK]);
	jsonw_uint(j, "known_gaps", counts[GAP]);
	jsonw_open(j, "cases", '[');
	for (size_t i = 0; i < t->count; i++) {
		const struct attack *a = &t->attacks[i];

		if (!is_tried(t, a))
			continue;
		jsonw_open(j, NULL, '{');
		jsonw_string(j, "name", a->name);
		jsonw_string(j, "title", a->title);
		jsonw_string(j, "verdict", verdict_words[a->verdict]);
		jsonw_bool(j, "control", a->control);
		jsonw_string(j, "detail", a->detail);
		jsonw_close(j, '}');
	}
	jsonw_close(j, ']');
	jsonw_close(j, '}');
}

static int parse_options(struct selftest *t, int argc, char **argv, struct err *e)
{
	for (int i = 1; i < argc; i++) {
		if (str_equal(argv[i], "--json"))
			t->json = true;
		else if (str_equal(argv[i], "--level") && i + 1 < argc)
			t->level = argv[++i];
		else if (str_starts(argv[i], "--level="))
			t->level = argv[i] + strlen("--level=");
		else
			return err_set(e, ERR_INVALID,
				       "selftest: '%s': try: cloche selftest [--level "
				       "container|process] [--json]",
				       argv[i]);
	}
	if (t->level && !str_equal(t->level, "container") && !str_equal(t->level, "process"))
		return err_field(e, ERR_INVALID, "level",
				 "level: '%s' cannot be tested here; it is container or process",
				 t->level);
	return 0;
}

static int run_levels(struct selftest *t, struct jsonw *j)
{
	static const char *const levels[] = {"container", "process"};
	int status = 0;

	for (size_t i = 0; i < ARRAY_LEN(levels); i++) {
		unsigned counts[VERDICT_COUNT] = {0};
		struct err e = {0};

		if (t->level && !str_equal(t->level, levels[i]))
			continue;
		t->container = i == 0;
		if (attack_level(t, &e) < 0) {
			fprintf(stderr, "cloche: %s\n", e.msg);
			status = status ? status : EXIT_CANNOT;
			continue;
		}
		count_verdicts(t, counts);
		if (t->json)
			print_json(t, j, counts);
		else
			print_table(t, counts);
		if (counts[NOT_REFUSED])
			status = EXIT_THROUGH;
	}
	return status;
}

static void free_attacks(struct selftest *t)
{
	for (size_t i = 0; i < t->count; i++) {
		free(t->attacks[i].name);
		free(t->attacks[i].title);
		free(t->attacks[i].setup);
		list_done(&t->attacks[i].options);
	}
	free(t->attacks);
}

static int report_levels(struct selftest *t)
{
	struct jsonw j;
	int status;

	if (!t->json) {
		status = run_levels(t, NULL);
		return fflush(stdout) == 0 ? status : EXIT_CANNOT;
	}
	jsonw_begin(&j, stdout);
	jsonw_open(&j, NULL, '{');
	jsonw_open(&j, "levels", '[');
	status = run_levels(t, &j);
	jsonw_close(&j, ']');
	jsonw_bool(&j, "ok", status == 0);
	jsonw_close(&j, '}');
	jsonw_raw(&j, "\n", 1);
	return jsonw_finish(&j) == 0 ? status : EXIT_CANNOT;
}

int cmd_selftest(int argc, char **argv)
{
	struct selftest t = {0};
	struct err e = {0};
	int status = EXIT_CANNOT;

	t.stage.host = (struct plant){.pid = -1, .to = -1, .from = -1};
	if (parse_options(&t, argc, argv, &e) < 0 || stage_open(&t.stage, &e) < 0 ||
	    load_attacks(&t, &e) < 0 || control_all(&t, &e) < 0)
		fprintf(stderr, "cloche: %s\n", e.msg);
	else
		status = report_levels(&t);
	stage_close(&t.stage);
	free_attacks(&t);
	return status;
}
