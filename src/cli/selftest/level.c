/*
 * Theory of operation. Each attack is tried three times: outside of any sandbox, in a sandbox of level
 * container, in a sandbox of level process. The first try is the control: an attack that fails there as
 * well proves nothing when it fails inside. Attacks share a sandbox where they can. Cases that use
 * limits up get a sandbox of their own. Acts leave processes behind, and we look whether any is alive
 * afterwards. The plant on the host counts the attacks that reach it.
 */
#include "cli/selftest/selftest_internal.h"

#include <poll.h>

enum { EXIT_CANNOT = 125, RUN_MS = 120000 };

/* How a set of cases has to be started; the words are those of the probe's table. */
struct setup {
	const char *name;
	enum program_stdin in;
	bool to_file, in_group, writable;
};

static const struct setup setups[] = {
	{"common", STDIN_TTY, false, false, false},
	{"group", STDIN_NULL, false, true, false},
	{"stdin-dir", STDIN_DIRECTORY, false, false, false},
	{"stdout-file", STDIN_TTY, true, false, false},
	{"writable", STDIN_TTY, false, false, true},
};
static const struct setup solo = {"solo", STDIN_TTY, false, false, false};
static const struct setup quiet = {"act", STDIN_NULL, false, false, false};

const char *level_word(const struct selftest *t)
{
	return t->container ? "container" : "process";
}

bool level_tries(const struct selftest *t, const struct attack *a)
{
	return t->container || !(a->flags & ATTACK_CONTAINER_ONLY);
}

/* ---- starting ---- */

/* Level process has no mounts: there the current directory is the read-only one. */
static const char *level_cwd(const struct selftest *t)
{
	return t->control || t->container ? t->stage.work : t->stage.ro;
}

static int run_setup(const struct selftest *t, const struct setup *setup, const struct list *argv,
		     struct program_end *ret, struct err *e)
{
	const struct program p = {.argv = argv,
				  .cwd = level_cwd(t),
				  .in = setup->in,
				  .to_file = setup->to_file,
				  .group = setup->in_group ? t->stage.host.pid : 0,
				  .timeout_ms = RUN_MS};

	return stage_run(&t->stage, &p, ret, e);
}

static struct stage_paths level_paths(const struct selftest *t, const struct setup *setup)
{
	return (struct stage_paths){.ro = t->container ? "/ro" : t->stage.ro,
				    .ws = t->container ? t->stage.work : NULL,
				    .rw = t->container && setup->writable ? "/rw" : NULL};
}

static void cloche_argv(const struct selftest *t, const struct setup *setup, bool json,
			const struct list *options, struct list *ret)
{
	list_add_all(ret,
		     (const char *const[]){t->stage.cloche, "run", "--level", level_word(t), NULL});
	if (json)
		list_add(ret, "--json");
	if (t->container)
		list_take(ret, str_format("--mount=%s:/ro:ro", t->stage.ro));
	if (t->container && setup->writable)
		list_take(ret, str_format("--mount=%s:/rw:rw", t->stage.rw));
	if (options && options->count)
		list_add_all(ret, (const char *const *)options->items);
	list_add_all(ret, (const char *const[]){"--", "./cloche-probe", NULL});
}

static size_t add_names(const struct selftest *t, const char *setup, struct list *ret)
{
	size_t before = ret->count;

	for (size_t i = 0; i < t->attacks.count; i++) {
		const struct attack *a = &t->attacks.items[i];

		if (str_equal(a->setup, setup) && (t->control || level_tries(t, a)) &&
		    !(a->flags & ATTACK_OUTSIDE))
			list_add(ret, a->name);
	}
	return ret->count - before;
}

/* ---- the control ---- */

static int control_setup(struct selftest *t, const struct setup *setup, struct err *e)
{
	const struct stage_paths paths = {t->stage.ro, t->stage.work, t->stage.rw};
	auto_list struct list argv = {0};
	auto_program_end struct program_end end = {0};

	list_add_all(&argv, (const char *const[]){t->stage.probe, "--control", NULL});
	stage_canaries(&t->stage, &paths, NULL, &argv);
	list_take(&argv, str_format("peer=%s", t->stage.tag));
	if (!add_names(t, setup->name, &argv))
		return 0;
	if (run_setup(t, setup, &argv, &end, e) < 0)
		return -1;
	judge_lines(t, end.out);
	judge_hits(t);
	stage_reset(&t->stage);
	return 0;
}

/* Repeats until none is left, because some processes fork faster than /proc is read. */
static void end_tagged(const char *tag)
{
	for (int i = 0; i < 1000 && count_tagged(tag, true); i++)
		;
}

/* On the bare host, processes of an act are alive after so many ms, until we kill them. */
static int control_act(struct selftest *t, struct attack *a, unsigned ms, struct err *e)
{
	auto_free char *tag = str_format("%s-%s-control", t->stage.tag, a->name);
	auto_list struct list argv = {0};
	const struct program p = {
		.argv = &argv, .cwd = t->stage.work, .in = STDIN_NULL, .timeout_ms = ms};
	auto_program_end struct program_end end = {0};
	int rc;

	list_add_all(&argv, (const char *const[]){t->stage.probe, "--act", a->name, tag, NULL});
	rc = stage_run(&t->stage, &p, &end, e);
	a->control = count_tagged(tag, false) > 0;
	end_tagged(tag);
	return rc;
}

static int control_acts(struct selftest *t, struct err *e)
{
	/* A busy machine gets a second chance. */
	static const unsigned deadline_ms[] = {120, 2000};

	for (size_t i = 0; i < t->attacks.count; i++) {
		struct attack *a = &t->attacks.items[i];

		if (!(a->flags & ATTACK_OUTSIDE))
			continue;
		for (size_t j = 0; j < ARRAY_LEN(deadline_ms) && !a->control; j++)
			if (control_act(t, a, deadline_ms[j], e) < 0)
				return -1;
	}
	return 0;
}

static int control_setups(struct selftest *t, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(setups); i++)
		if (control_setup(t, &setups[i], e) < 0)
			return -1;
	return control_setup(t, &solo, e);
}

/* Notes which attacks get through where nothing stops them. */
static int control_all(struct selftest *t, struct err *e)
{
	if (t->controlled)
		return 0;
	t->control = true;
	t->controlled = control_setups(t, e) == 0 && control_acts(t, e) == 0;
	t->control = false;
	return t->controlled ? 0 : -1;
}

/* ---- one level ---- */

/* Refusing to start is a good answer to an impossible stdin. */
static void take_refusal(struct selftest *t, const struct setup *setup, const char *why)
{
	for (size_t i = 0; i < t->attacks.count; i++) {
		struct attack *a = &t->attacks.items[i];

		if (str_equal(a->setup, setup->name) && level_tries(t, a))
			judge_attack(t, a, false, why);
	}
}

static int attack_setup(struct selftest *t, const struct setup *setup, const struct plant *peer,
			const char *peer_tag, struct err *e)
{
	const struct stage_paths paths = level_paths(t, setup);
	auto_list struct list argv = {0};
	auto_program_end struct program_end end = {0};

	cloche_argv(t, setup, !setup->to_file, NULL, &argv);
	stage_canaries(&t->stage, &paths, peer, &argv);
	list_take(&argv, str_format("peer=%s", peer_tag));
	if (!add_names(t, setup->name, &argv))
		return 0;
	if (run_setup(t, setup, &argv, &end, e) < 0)
		return -1;
	if (end.status == EXIT_CANNOT && setup->in == STDIN_DIRECTORY)
		take_refusal(t, setup, end.err);
	else if (setup->to_file)
		judge_lines(t, end.out);
	else
		judge_record(t, end.out, NULL);
	judge_hits(t);
	return 0;
}

static int attack_solo(struct selftest *t, struct attack *a, struct err *e)
{
	struct stage_paths paths = level_paths(t, &solo);
	auto_list struct list argv = {0};
	auto_program_end struct program_end end = {0};

	paths.ws = NULL;
	cloche_argv(t, &solo, true, &a->options, &argv);
	stage_canaries(&t->stage, &paths, NULL, &argv);
	list_add(&argv, a->name);
	if (run_setup(t, &solo, &argv, &end, e) < 0)
		return -1;
	judge_record(t, end.out, a);
	return 0;
}

static int attack_act(struct selftest *t, struct attack *a, struct err *e)
{
	auto_free char *tag = str_format("%s-%s-%s", t->stage.tag, a->name, level_word(t));
	auto_list struct list argv = {0};
	auto_program_end struct program_end end = {0};
	unsigned left = 0;
	char detail[64];

	cloche_argv(t, &quiet, true, &a->options, &argv);
	list_add_all(&argv, (const char *const[]){"--act", a->name, tag, NULL});
	if (run_setup(t, &quiet, &argv, &end, e) < 0)
		return -1;
	for (int i = 0; i < 10 && (left = count_tagged(tag, false)); i++)
		poll(NULL, 0, 10);
	snprintf(detail, sizeof(detail), "%u processes are alive afterwards", left);
	if (end.status == EXIT_CANNOT)
		attack_note(a, OUTCOME_CANNOT_TELL, end.err);
	else
		judge_attack(t, a, left > 0, left ? detail : "nothing is alive afterwards");
	end_tagged(tag);
	return 0;
}

/*
 * Checks that there is a sandbox of this level, and notes the layers that its record lists as
 * missing.
 */
static int try_level(struct selftest *t, struct err *e)
{
	auto_list struct list argv = {0};
	auto_program_end struct program_end end = {0};

	cloche_argv(t, &quiet, true, NULL, &argv);
	list_add(&argv, "--whoami");
	if (run_setup(t, &quiet, &argv, &end, e) < 0)
		return -1;
	if (end.status != 0 || judge_missing(end.out, &t->missing) < 0) {
		char why[300];

		str_sanitise(why, sizeof(why), end.err, strcspn(end.err, "\n"));
		return err_set(e, ERR_UNSUPPORTED, "level %s: no sandbox (exit status %d): %s",
			       level_word(t), end.status, why);
	}
	return 0;
}

static int attack_with_peer(struct selftest *t, struct err *e)
{
	auto_free char *tag = str_format("%sp%d", t->stage.tag, t->container);
	struct plant peer = PLANT_NONE;
	auto_list struct list argv = {0};
	int rc;

	cloche_argv(t, &quiet, false, NULL, &argv);
	list_add_all(&argv, (const char *const[]){"--plant", tag, NULL});
	rc = plant_start(&argv, level_cwd(t), &peer, e);
	if (rc < 0)
		err_wrap(e, "level %s, second sandbox", level_word(t));
	for (size_t i = 0; rc == 0 && i < ARRAY_LEN(setups); i++)
		rc = attack_setup(t, &setups[i], &peer, tag, e);
	plant_stop(&peer);
	return rc;
}

static int attack_alone(struct selftest *t, struct attack *a, struct err *e)
{
	if (a->flags & ATTACK_OUTSIDE)
		return attack_act(t, a, e);
	return str_equal(a->setup, solo.name) ? attack_solo(t, a, e) : 0;
}

int level_attack(struct selftest *t, struct err *e)
{
	size_t answers = 0, tried = 0;

	for (size_t i = 0; i < t->attacks.count; i++)
		attack_note(&t->attacks.items[i], OUTCOME_NONE,
			    "no answer came out of the sandbox");
	/* Without a sandbox there is no need to attack the host. */
	if (try_level(t, e) < 0 || control_all(t, e) < 0 || attack_with_peer(t, e) < 0)
		return -1;
	for (size_t i = 0; i < t->attacks.count; i++) {
		struct attack *a = &t->attacks.items[i];

		if (!level_tries(t, a))
			continue;
		if (attack_alone(t, a, e) < 0)
			return -1;
		tried++;
		answers += a->outcome != OUTCOME_NONE;
		if (a->outcome == OUTCOME_NONE)
			a->outcome = OUTCOME_CANNOT_TELL;
	}
	if (tried && !answers)
		return err_set(e, ERR_SYSTEM, "level %s: no answer from inside", level_word(t));
	return 0;
}
