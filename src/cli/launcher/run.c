/* `cloche run`, and the report of every run: exit status, lines on stderr, record. */
#include "cli/cli.h"

#include "model/guard.h"
#include "model/language.h"
#include "sandbox/sandbox.h"

#define SKIPPED_SHOWN 20

/* Paths come from inside the sandbox, so they are sanitised for the terminal. */
static void print_change(const struct change *c)
{
	char path[512];

	str_sanitise(path, sizeof(path), c->path, strlen(c->path));
	fprintf(stderr, "cloche: %s %s%s%s\n", c->kind, path, c->note ? ": " : "",
		c->note ? c->note : "");
}

/* all: with those that were applied, which is more than an agent wants to read. */
static void print_changes(const struct result *r, bool all)
{
	size_t skipped = 0;

	for (size_t i = 0; i < r->change_count; i++) {
		bool is_skipped = str_equal(r->changes[i].kind, "skipped");

		skipped += is_skipped;
		if (all || (is_skipped && skipped <= SKIPPED_SHOWN))
			print_change(&r->changes[i]);
	}
	if (!all && skipped > SKIPPED_SHOWN)
		fprintf(stderr, "cloche: and %zu more were skipped (--diff lists all)\n",
			skipped - SKIPPED_SHOWN);
}

static void print_discarded(const struct result *r)
{
	if (r->change_count)
		fprintf(stderr,
			"cloche: %zu change%s to the workspace discarded (--apply keeps, --diff "
			"lists them)\n",
			r->change_count, r->change_count == 1 ? "" : "s");
}

/* The denial that ended the run. It is printed even if stderr is not a terminal. */
static bool is_end(const struct result *r, const struct denial *d)
{
	return r->end.status == STATUS_OOM && str_equal(d->what, "limit") &&
	       str_equal(d->target, "memory");
}

static void print_denials(const struct result *r)
{
	for (size_t i = 0; i < r->denial_count; i++) {
		const struct denial *d = &r->denials[i];

		if (is_end(r, d))
			continue;
		fprintf(stderr, "cloche: refused %s %s (%llu x, %s). %s\n", d->what, d->target,
			(unsigned long long)d->count, d->rule, d->explain);
	}
}

static const char *why_ended(const struct result *r, const struct sandbox_spec *s, char *buf,
			     size_t size)
{
	switch (r->end.status) {
	case STATUS_TIMEOUT:
		snprintf(buf, size,
			 "timed out after %llu ms, everything in it was killed (-t gives it more)",
			 (unsigned long long)s->limits.timeout_ms);
		return buf;
	case STATUS_OOM:
		for (size_t i = 0; i < r->denial_count; i++)
			if (is_end(r, &r->denials[i]))
				return r->denials[i].explain;
		snprintf(buf, size, "It used more than its %llu MB of memory (-m gives it more).",
			 (unsigned long long)(s->limits.memory_bytes >> 20));
		return buf;
	case STATUS_CPU_TIME:
		return "killed: it used up its processor time (--cpu-time gives it more)";
	case STATUS_OUTPUT_LIMIT:
		return "killed: it printed without end";
	default:
		return NULL;
	}
}

/* Tells people on stderr how the run ended, and what was refused or discarded. */
void run_report(const struct result *r, const struct sandbox_spec *s)
{
	bool person = isatty(2);
	char buf[128], name[160] = "";
	const char *why = why_ended(r, s, buf, sizeof(buf));

	/* A model may have chosen the name. */
	if (r->end.exec_errno)
		str_sanitise(name, sizeof(name), s->argv.items[0], strlen(s->argv.items[0]));
	if (r->exec_missing[0])
		fprintf(stderr,
			"cloche: %s: is to be run by %s, which is not there in the sandbox\n", name,
			r->exec_missing);
	else if (r->end.exec_errno)
		fprintf(stderr, "cloche: %s: %s\n", name,
			r->end.exit_code == 127 ? "not found in the sandbox"
						: strerror(r->end.exec_errno));
	if (why)
		fprintf(stderr, "cloche: %s%s\n",
			r->end.status == STATUS_OOM ? "killed for memory. " : "", why);
	for (size_t i = 0; i < ARRAY_LEN(r->notes) && r->notes[i]; i++)
		fprintf(stderr, "cloche: %s\n", r->notes[i]);
	if (person)
		print_denials(r);
	if (s->diff || s->apply || s->keep_control)
		print_changes(r, s->diff);
	else if (person)
		print_discarded(r);
	if (s->apply == APPLY_ON_SUCCESS && r->change_count && outcome_exit_status(&r->end) != 0)
		fprintf(stderr, "cloche: nothing was applied, because the command failed\n");
	if (r->apply_failed)
		fprintf(stderr, "cloche: not all changes could be applied%s\n",
			r->changes_incomplete ? ": there are too many, too large or too deep" : "");
	if (r->output_errno)
		fprintf(stderr, "cloche: cannot write its output: %s\n", strerror(r->output_errno));
}

/* For the next command of a session. Without it that one starts in the project. */
static void save_cwd(const struct result *r, const char *file)
{
	auto_close int fd =
		r->cwd ? open(file,
			      O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
			      0600)
		       : -1;

	if (fd >= 0 && io_write_all(fd, r->cwd, strlen(r->cwd)) < 0 && ftruncate(fd, 0) < 0)
		unlink(file);
}

int run_and_report(struct sandbox_request *request, const struct language *language, bool no_daemon)
{
	const struct sandbox_spec *s = request->spec;
	char compiler[PATH_MAX], egress[PATH_MAX];
	struct result r = {0};
	struct err e = {0};
	int status;

	/* Before frames that are larger than the least stack that anybody has. */
	if (sandbox_check_stack(&e) < 0)
		return cli_fail_spec(s, &e);
	if (!no_daemon && daemon_run(request, &status))
		return status;
	if (s->seccomp && cli_find_helper("cloche-seccomp", compiler, sizeof(compiler)) == 0)
		request->seccomp_compiler = compiler;
	if ((s->net != NET_NONE || s->publish.count) &&
	    cli_find_helper("cloche-egress", egress, sizeof(egress)) == 0)
		request->egress = egress;
	sandbox_fault_stack_in();
	if (sandbox_run(request, &r, &e) < 0)
		return cli_fail_spec(s, &e);
	if (language && !r.end.exec_errno)
		r.interpreter = r.exec_path;
	if (language)
		result_add_note(&r, language_note(language, r.end.exit_code));
	if (s->cwd_file)
		save_cwd(&r, s->cwd_file);
	r.base64 = s->encoding == ENCODING_BASE64;
	status = r.apply_failed || r.output_errno ? EXIT_CLOCHE : outcome_exit_status(&r.end);
	if (!s->json)
		run_report(&r, s);
	else if (result_print(&r, stdout) < 0) {
		err_sys(&e, "cannot write the record");
		status = cli_fail(&e);
	}
	result_done(&r);
	return status;
}

int cmd_run(int argc, char **argv)
{
	struct sandbox_request request = {0};
	struct options o = {.verb = "run"};
	struct sandbox_spec s;
	struct err e = {0};
	int first, status;

	spec_init(&s);
	first = options_parse(&s, argc, argv, &o, &e);
	if (o.help)
		return cmd_help(2, (char *[]){"help", "run", NULL});
	if (first < 0 || run_take_image(&s, first == argc, &e) < 0 || spec_finish(&s, &e) < 0 ||
	    guard_refuse(&s, &e) < 0)
		return cli_fail_spec(&s, &e);
	for (int i = first; i < argc; i++)
		list_add(&s.argv, argv[i]);
	request.spec = &s;
	request.own_argv = argv - 1; /* begins with the program's name */
	status = run_and_report(&request, NULL, o.no_daemon);
	spec_done(&s);
	return status;
}
