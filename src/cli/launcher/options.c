/*
 * The command line of the launcher: options set fields of the spec, by the table in model/spec.c.
 */
#include "cli/cli.h"

#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

void cli_option_name(const char *field, char *ret, size_t size)
{
	snprintf(ret, size, "%s", field);
	for (char *p = ret; *p; p++)
		*p = *p == '_' ? '-' : *p;
}

void cli_print_option(const struct option_help *o, int width)
{
	const char letter[] = {'-', o->letter, ',', '\0'};
	char left[64];

	snprintf(left, sizeof(left), "--%s%s%s", o->name, o->metavar ? " " : "",
		 o->metavar ? o->metavar : "");
	printf("  %3s %-*s %s\n", o->letter ? letter : "", width, left, o->help);
}

/* Sets fields of the spec from "name\0value\0...", which cloched prints. */
static int apply_pairs(struct sandbox_spec *s, const char *data, size_t size, struct err *e)
{
	const char *end = data + size;

	while (data < end) {
		const char *value = memchr(data, '\0', (size_t)(end - data));
		const char *next =
			value ? memchr(value + 1, '\0', (size_t)(end - value - 1)) : NULL;

		if (!next)
			return err_set(e, ERR_SYSTEM, "policy: cloched sent half a setting");
		if (spec_set(s, data, value + 1, e) < 0)
			return -1;
		data = next + 1;
	}
	return 0;
}

/* cloched parses the YAML, so that the launcher needs no library. */
static int load_policy(struct sandbox_spec *s, const char *file, struct err *e)
{
	static char pairs[2 << 20];
	char helper[PATH_MAX];
	char *argv[] = {helper, "policy", "compile", (char *)file, NULL};
	posix_spawn_file_actions_t actions;
	int pipe_fds[2], status, rc;
	ssize_t n;
	pid_t pid;

	if (cli_find_helper("cloched", helper, sizeof(helper)) < 0)
		return err_field(e, ERR_UNSUPPORTED, "policy",
				 "policy: cloched, which reads policy files, is not installed");
	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return err_sys(e, "policy: cannot create a pipe");
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], 1);
	rc = posix_spawn(&pid, helper, &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(pipe_fds[1]);
	n = rc == 0 ? io_read_all(pipe_fds[0], pairs, sizeof(pairs)) : -1;
	close(pipe_fds[0]);
	if (rc != 0 || n < 0 || n == (ssize_t)sizeof(pairs) || waitpid(pid, &status, 0) < 0)
		return err_set(e, ERR_SYSTEM, "policy: cannot run %s", helper);
	/* On failure cloched prints the reason instead. */
	if (status != 0 && n > 0)
		return err_field(e, ERR_INVALID, "policy", "policy: %.*s", (int)n, pairs);
	if (status != 0)
		return err_field(e, ERR_INVALID, "policy", "policy: %s cannot be used", file);
	return apply_pairs(s, pairs, (size_t)n, e);
}

static int set_field(struct sandbox_spec *s, const char *name, const char *value, struct err *e)
{
	const struct field *f = spec_field_find(name);

	if (spec_set(s, name, value, e) < 0)
		return -1;
	if (f && str_equal(f->name, "policy"))
		return load_policy(s, value, e);
	return 0;
}

static const struct field *find_letter(char letter)
{
	for (size_t i = 0; i < spec_field_count; i++)
		if (spec_fields[i].letter == letter)
			return &spec_fields[i];
	return NULL;
}

/* The value of an option: attached by "=" or to the letter, or the next argument. */
static const char *take_value(int argc, char **argv, int *i, const char *attached)
{
	if (attached)
		return attached;
	return *i + 1 < argc ? argv[++*i] : NULL;
}

static int missing_value(const char *field, const char *option, struct err *e)
{
	return err_field(e, ERR_INVALID, field, "%s needs a value", option);
}

/* The rest of the argument after an option's name; NULL if it is another option. */
static const char *behind_name(const char *arg, const char *name)
{
	size_t len = strlen(name);

	return str_starts(arg, name) && (!arg[len] || arg[len] == '=') ? arg + len : NULL;
}

/* Takes options that are not fields of the spec. 1: taken, 0: not one of them. */
static int own_option(int argc, char **argv, int *i, struct options *o, struct err *e)
{
	const char *arg = argv[*i], *rest;

	if (str_equal(arg, "--help") || str_equal(arg, "-h")) {
		o->help = true;
		return 1;
	}
	if ((rest = behind_name(arg, "--no-daemon"))) {
		if (*rest && !str_equal(rest, "=true") && !str_equal(rest, "=false"))
			return err_field(e, ERR_INVALID, "no_daemon",
					 "no_daemon: '%s' is neither true nor false", rest + 1);
		o->no_daemon = !str_equal(rest, "=false");
		return 1;
	}
	if (!o->for_code)
		return 0;
	if (str_starts(arg, "-e")) {
		o->code = take_value(argc, argv, i, arg[2] ? arg + 2 + (arg[2] == '=') : NULL);
		return o->code ? 1 : missing_value("code", arg, e);
	}
	rest = behind_name(arg, "--lang");
	if (!rest)
		return 0;
	o->lang = take_value(argc, argv, i, *rest ? rest + 1 : NULL);
	return o->lang ? 1 : missing_value("lang", arg, e);
}

/* The message names options with dashes. */
static int unknown_option(const struct options *o, const char *name, struct err *e)
{
	const char *near = spec_field_near(name);
	char hint[64];

	cli_option_name(near ? near : "", hint, sizeof(hint));
	if (near)
		return err_field(e, ERR_INVALID, name, "unknown option --%s; did you mean --%s?",
				 name, hint);
	return err_field(e, ERR_INVALID, name, "unknown option --%s; see `cloche help %s`", name,
			 o->verb);
}

static int long_option(struct sandbox_spec *s, int argc, char **argv, int *i,
		       const struct options *o, struct err *e)
{
	const char *arg = argv[*i] + 2, *equals = strchr(arg, '=');
	const struct field *f;
	const char *value;
	char name[64];

	snprintf(name, sizeof(name), "%.*s", equals ? (int)(equals - arg) : (int)strlen(arg), arg);
	f = spec_field_find(name);
	if (!f)
		return unknown_option(o, name, e);
	if (!f->metavar)
		return set_field(s, f->name, equals ? equals + 1 : "true", e);
	value = take_value(argc, argv, i, equals ? equals + 1 : NULL);
	return value ? set_field(s, f->name, value, e) : missing_value(f->name, argv[*i], e);
}

static int short_option(struct sandbox_spec *s, int argc, char **argv, int *i,
			const struct options *o, struct err *e)
{
	const char *arg = argv[*i];
	const struct field *f = arg[1] == 'e' ? spec_field_find("env") : find_letter(arg[1]);
	const char *value;

	if (!f)
		return err_field(e, ERR_INVALID, arg + 1, "unknown option %s; see `cloche help %s`",
				 arg, o->verb);
	value = take_value(argc, argv, i, arg[2] ? arg + 2 + (arg[2] == '=') : NULL);
	return value ? set_field(s, f->name, value, e) : missing_value(f->name, arg, e);
}

/* Goes on after an error, because a later --json decides how the error is printed. */
int options_parse(struct sandbox_spec *s, int argc, char **argv, struct options *o, struct err *e)
{
	struct err later;
	int i = 1, end = 0;

	for (; i < argc; i++) {
		const char *arg = argv[i];
		struct err *to = end < 0 ? &later : e;
		int rc;

		if (str_equal(arg, "--")) {
			i++;
			break;
		}
		if (arg[0] != '-' || arg[1] == '\0')
			break;
		rc = own_option(argc, argv, &i, o, to);
		if (rc == 0)
			rc = arg[1] == '-' ? long_option(s, argc, argv, &i, o, to)
					   : short_option(s, argc, argv, &i, o, to);
		if (rc < 0)
			end = -1;
	}
	return end < 0 ? -1 : i;
}
