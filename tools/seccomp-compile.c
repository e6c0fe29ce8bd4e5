/*
 * seccomp-compile: turns the commented text profiles into C.
 *
 *	seccomp-compile -o OUT.c NAME=FILE...	what src/kern/seccomp.h declares as generated
 *	seccomp-compile --list FILE		every decision, one line per call and architecture
 *	seccomp-compile --dump ARCH FILE	the program, one instruction per line: code jt jf k
 *	seccomp-compile --narrow FILE		a profile of the caller's own, for this machine, on stdout:
 *						"sha256:HEX", a newline, struct sock_filter...
 *
 * The last is what `cloche --seccomp FILE` runs, as cloche-seccomp. Each program that leaves here was run against the rules first (seccomp/verify.c).
 */
#include "seccomp/compile.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

void fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

void *allocate(size_t size)
{
	/* A chain that a leak checker can follow. */
	static struct chunk {
		struct chunk *before;
		max_align_t data[];
	} * last;
	struct chunk *c = calloc(1, sizeof(*c) + size);

	if (!c)
		fail("out of memory");
	c->before = last;
	last = c;
	return c->data;
}

static struct profile *read_profile(const char *name, const char *path)
{
	struct profile *p = allocate(sizeof(*p));

	p->name = name;
	profile_read(p, path);
	return p;
}

static struct program *make_program(const struct profile *p, enum arch arch)
{
	struct program *prog = allocate(sizeof(*prog));

	program_build(prog, p, arch);
	program_verify(prog, p, arch);
	return prog;
}

static void write_string(FILE *out, const char *s)
{
	fputc('"', out);
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			fputc('\\', out);
		fputc(*s, out);
	}
	fputc('"', out);
}

static void write_reports(FILE *out, const struct profile *p, enum arch arch)
{
	fprintf(out, "static const struct seccomp_report %s_reports[] = {\n", p->name);
	for (uint32_t nr = 0; nr < NR_END; nr++) {
		const struct call *c = profile_call(p, arch, nr);
		unsigned report = 0;

		for (unsigned i = 0; c && i < c->rule_count; i++) {
			const struct rule *r = c->rules[i];

			if (r->action != REPORT)
				continue;
			fprintf(out, "\t{%u, \"%s\", ", nr, c->name);
			write_string(out, r->reason);
			fprintf(out, ", %d, %u},\n", r->errnum, ++report);
		}
	}
	fprintf(out, "};\n");
}

static void write_arch(FILE *out, const struct profile *p, enum arch arch)
{
	const struct program *prog = make_program(p, arch);

	fprintf(out, "static const struct sock_filter %s_insns[] = {", p->name);
	for (unsigned i = 0; i < prog->count; i++)
		fprintf(out, "%s{0x%02x, %u, %u, 0x%08x},", i % 4 ? " " : "\n\t",
			prog->insns[i].code, prog->insns[i].jt, prog->insns[i].jf,
			prog->insns[i].k);
	fprintf(out, "\n};\n");
	write_reports(out, p, arch);
}

static void write_profile(FILE *out, const struct profile *p)
{
	fprintf(out,
		"const struct seccomp_profile seccomp_profile_%s = {\n"
		"\t.name = \"%s\",\n"
		"\t.digest = \"sha256:%s\",\n"
		"\t.insns = %s_insns,\n"
		"\t.count = sizeof(%s_insns) / sizeof(%s_insns[0]),\n"
		"\t.reports = %s_reports,\n"
		"\t.report_count = sizeof(%s_reports) / sizeof(%s_reports[0]),\n"
		"};\n",
		p->name, p->name, p->digest, p->name, p->name, p->name, p->name, p->name, p->name);
}

static void compile(const char *path, char **profiles)
{
	enum { MAX = 24 };
	const struct profile *p[MAX];
	unsigned count = 0;
	FILE *out;

	for (; profiles[count]; count++) {
		char *equals = strchr(profiles[count], '=');

		if (!equals || count == MAX)
			fail("NAME=FILE expected, not '%s'", profiles[count]);
		*equals = '\0';
		p[count] = read_profile(profiles[count], equals + 1);
	}
	out = fopen(path, "w");
	if (!out)
		fail("%s: %m", path);
	fprintf(out, "/* Made by tools/seccomp-compile from policies/seccomp; do not edit. */\n"
		     "#include \"kern/seccomp.h\"\n\n");
	for (unsigned a = 0; a < ARCH_COUNT; a++) {
		fprintf(out, "#%s defined(%s)\n", a ? "elif" : "if", archs[a].macro);
		for (unsigned i = 0; i < count; i++)
			write_arch(out, p[i], (enum arch)a);
	}
	fprintf(out, "#else\n#error \"no seccomp profile for this architecture\"\n#endif\n\n");
	for (unsigned i = 0; i < count; i++)
		write_profile(out, p[i]);
	if (fclose(out))
		fail("%s: %m", path);
}

static void print_rule(const struct rule *r)
{
	static const char *const names[] = {
		[ALLOW] = "allow",   [ERRNO] = "errno", [REPORT] = "report",
		[NOTIFY] = "notify", [KILL] = "kill",
	};

	printf("%s%s%s%s%s", names[r->action], r->errname ? " " : "", r->errname ? r->errname : "",
	       r->condition ? " if " : "", r->condition ? r->condition : "");
}

static void list(const char *path)
{
	const struct profile *p = read_profile("profile", path);

	printf("%-8s %4s  %-24s %s\n", "arch", "nr", "call", "decision (the first that holds)");
	for (unsigned a = 0; a < ARCH_COUNT; a++) {
		for (uint32_t nr = 0; nr < NR_END; nr++) {
			const struct call *c = profile_call(p, (enum arch)a, nr);

			if (!c)
				continue;
			printf("%-8s %4u  %-24s ", archs[a].name, nr, c->name);
			for (unsigned i = 0; i < c->rule_count; i++) {
				print_rule(c->rules[i]);
				fputs(i + 1 < c->rule_count ? "; " : "\n", stdout);
			}
		}
		printf("%-8s %4s  %-24s ", archs[a].name, "-", "(any other)");
		print_rule(p->fallback);
		putchar('\n');
	}
}

static void dump(const char *arch, const char *path)
{
	const struct profile *p = read_profile("profile", path);
	const struct program *prog;
	unsigned a = 0;

	while (a < ARCH_COUNT && strcmp(archs[a].name, arch))
		a++;
	if (a == ARCH_COUNT)
		fail("unknown architecture '%s'", arch);
	prog = make_program(p, (enum arch)a);
	for (unsigned i = 0; i < prog->count; i++)
		printf("%u %u %u %u\n", prog->insns[i].code, prog->insns[i].jt, prog->insns[i].jf,
		       prog->insns[i].k);
}

static enum arch own_arch(void)
{
	struct utsname u;
	unsigned a = 0;

	if (uname(&u) < 0)
		fail("uname: %m");
	while (a < ARCH_COUNT && strcmp(archs[a].name, u.machine))
		a++;
	if (a == ARCH_COUNT)
		fail("unknown architecture '%s'", u.machine);
	return (enum arch)a;
}

static void narrow(const char *path)
{
	struct profile *p = allocate(sizeof(*p));
	const struct program *prog;

	p->name = "own";
	p->is_callers = p->narrows = true;
	profile_read(p, path);
	profile_add_canary(p);
	prog = make_program(p, own_arch());
	printf("sha256:%s\n", p->digest);
	fwrite(prog->insns, sizeof(prog->insns[0]), prog->count, stdout);
	if (fflush(stdout))
		fail("cannot write: %m");
}

int main(int argc, char **argv)
{
	if (argc > 3 && strcmp(argv[1], "-o") == 0)
		compile(argv[2], argv + 3);
	else if (argc == 3 && strcmp(argv[1], "--list") == 0)
		list(argv[2]);
	else if (argc == 3 && strcmp(argv[1], "--narrow") == 0)
		narrow(argv[2]);
	else if (argc == 4 && strcmp(argv[1], "--dump") == 0)
		dump(argv[2], argv[3]);
	else
		fail("usage: seccomp-compile -o OUT.c NAME=FILE... | --list FILE | --narrow FILE | "
		     "--dump ARCH FILE");
	return 0;
}
