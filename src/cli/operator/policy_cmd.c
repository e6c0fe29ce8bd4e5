/* `cloche policy`: policy files from the command line. */
#include "cli/operator/cloched.h"

#include "cli/cli.h"
#include "cli/verbs/client_verb.h"
#include "policy/policy.h"
#include "sandbox/workspace/control.h"

enum { EXIT_INVALID = 1 };

/* Prints `FILE: ok`, or the mistake and its place. */
static int check_files(int argc, char **argv)
{
	int status = 0;

	for (int i = 0; i < argc; i++) {
		struct policy p;
		struct err e = {0};

		bool is_loaded = policy_load(argv[i], &p, &e) == 0;

		if (is_loaded && policy_judge(&p, &e) == 0) {
			printf("%s: ok\n", argv[i]);
		} else {
			fprintf(stderr, "%s\n", e.msg);
			status = EXIT_INVALID;
		}
		if (is_loaded)
			policy_done(&p);
	}
	return finish_stdout(status);
}

static int explain_file(int argc, char **argv)
{
	struct policy p;
	struct err e = {0};

	if (policy_load(argv[0], &p, &e) < 0) {
		fprintf(stderr, "%s\n", e.msg);
		return EXIT_INVALID;
	}
	policy_explain(&p, stdout);
	policy_done(&p);
	return finish_stdout(0);
}

/* The launcher reads into a buffer of twice this size. A longer text must fail, not be cut. */
#define COMPILED_MAX ((size_t)1 << 20)

static size_t compiled_size(const struct policy *p)
{
	size_t size = 0;

	for (size_t i = 0; i < p->names.count; i++)
		size += strlen(p->names.items[i]) + strlen(p->values.items[i]) + 2;
	return size;
}

/*
 * For the launcher, which has no YAML parser: prints name NUL value NUL ... for spec_set, or the
 * error.
 */
static int compile_file(int argc, char **argv)
{
	struct policy p;
	struct err e = {0};

	if (policy_load(argv[0], &p, &e) < 0) {
		printf("%s", e.msg);
		return finish_stdout(EXIT_CLOCHE);
	}
	if (compiled_size(&p) > COMPILED_MAX) {
		printf("%s: more settings than a run can take", p.file);
		policy_done(&p);
		return finish_stdout(EXIT_CLOCHE);
	}
	for (size_t i = 0; i < p.names.count; i++)
		printf("%s%c%s%c", p.names.items[i], '\0', p.values.items[i], '\0');
	policy_done(&p);
	return finish_stdout(0);
}

/* The list of control files; they depend on no policy. */
static int list_control(int argc, char **argv)
{
	static const char *const where[] = {"", " (acts once it is pushed)", " (in a repository)"};

	for (size_t i = 0; i < control_row_count; i++) {
		const struct control_row *r = &control_rows[i];

		printf("%-32s %s%s\n", r->name, strchr(r->reason, ':') + 2, where[r->where]);
	}
	return finish_stdout(0);
}

struct policy_part {
	const char *name;
	int min_files, max_files;
	int (*run)(int argc, char **argv);
};

static const struct policy_part parts[] = {
	{"check", 1, 1000, check_files},
	{"explain", 1, 1, explain_file},
	{"compile", 1, 1, compile_file},
	{"control", 0, 0, list_control},
};

static const char usage[] =
	"usage: cloche policy check FILE...     is it valid?\n"
	"       cloche policy explain FILE      what would be done, in order\n"
	"       cloche policy control           the control files, which --apply leaves out\n"
	"FILE is a path, or the name of a shipped policy: strict, code, build, agent.\n";

int cmd_policy(int argc, char **argv)
{
	if (argc > 1 && (str_equal(argv[1], "--help") || str_equal(argv[1], "-h"))) {
		fputs(usage, stdout);
		return finish_stdout(0);
	}
	for (size_t i = 0; argc > 1 && i < ARRAY_LEN(parts); i++) {
		if (!str_equal(argv[1], parts[i].name))
			continue;
		if (argc - 2 < parts[i].min_files || argc - 2 > parts[i].max_files)
			break;
		return parts[i].run(argc - 2, argv + 2);
	}
	fputs(usage, stderr);
	return EXIT_CLOCHE;
}
