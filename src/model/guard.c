/* The command line of the Python guard, and the reader of its report. */
#include "model/guard.h"

static const char *const names[] = {
	[GUARD_OFF] = "off", [GUARD_IMPORTS] = "imports", [GUARD_STRICT] = "strict"};

const char *guard_name(enum guard profile)
{
	return names[profile];
}

bool guard_is_name(const char *name)
{
	size_t len = strlen(name);

	return len > 0 && len <= 100 && strspn(name, STR_ALNUM "_.") == len;
}

int guard_refuse(const struct sandbox_spec *s, struct err *e)
{
	if (s->guard == GUARD_OFF)
		return 0;
	return err_field(e, ERR_UNSUPPORTED, "guard",
			 "guard: only Python can be guarded, by `cloche code` or as the code of a "
			 "request; else ask for guard off");
}

static void add_names(struct list *argv, const char *option, const struct list *from)
{
	for (size_t i = 0; from && i < from->count; i++) {
		list_add(argv, option);
		list_add(argv, from->items[i]);
	}
}

/* -I: nothing in the workspace may be imported before the guard is in place. */
void guard_argv(const struct guard_call *c, struct list *argv)
{
	list_add(argv, c->python ? c->python : "python3");
	list_add(argv, "-I");
	list_add(argv, c->program ? c->program : GUARD_PROGRAM);
	list_add(argv, "--profile");
	list_add(argv, guard_name(c->profile));
	add_names(argv, "--allow", c->allow);
	add_names(argv, "--deny", c->deny);
	add_names(argv, "--deny-node", c->nodes);
	list_add(argv, "--report");
	list_add(argv, c->report ? c->report : GUARD_REPORT);
	list_add(argv, "--");
	list_add(argv, c->snippet);
}

/* ---- the report ---- */

static const char *const noted_names[] = {"file", "process", "socket", "ctypes"};

/* Per category: the reason, and the smallest change that would allow it. */
static const struct {
	const char *category, *what, *change;
} kinds[] = {
	{"import", "The guard keeps this module from the program.",
	 "If it is needed, ask for: --guard-allow"},
	{"name", "The guard refuses this name, which belongs to the interpreter.",
	 "Use another name, or ask for: --guard imports"},
	{"attribute", "The guard refuses this attribute, which leads out of the program.",
	 "Do without it, or ask for: --guard imports"},
	{"builtin", "The guard leaves only builtins that compute.",
	 "Do without it, or ask for: --guard imports"},
	{"node", "The guard refuses this kind of code.",
	 "Write it in another way, or ask for: --guard imports"},
	{"syntax", "The guard could not parse the program.", "Correct it first."},
	{"file", "The guard refuses files: the program may only compute.",
	 "Pass data through stdin and stdout, or ask for: --guard imports"},
	{"process", "The guard refuses to start programs.", "If it is needed: --guard imports"},
	{"socket", "The guard refuses sockets.", "If it is needed: --guard imports"},
	{"ctypes", "The guard refuses native code.", "If it is needed: --guard imports"},
};

struct report_row {
	char kind[16], category[16], target[128];
	unsigned line;
};

/* One field up to a tab or the end of the line, cut to size. */
static const char *take_field(const char *p, const char *end, char *ret, size_t size)
{
	const char *stop = memchr(p, '\t', (size_t)(end - p));
	size_t len = (size_t)((stop ? stop : end) - p);

	str_sanitise(ret, size, p, len);
	return stop ? stop + 1 : end;
}

static void read_row(const char *p, const char *end, struct report_row *ret)
{
	char number[12];

	p = take_field(p, end, ret->kind, sizeof(ret->kind));
	p = take_field(p, end, ret->category, sizeof(ret->category));
	p = take_field(p, end, ret->target, sizeof(ret->target));
	take_field(p, end, number, sizeof(number));
	ret->line = (unsigned)strtoul(number, NULL, 10);
}

static void describe_denial(enum guard profile, const struct report_row *row, size_t kind,
			    struct denial *d)
{
	bool is_module = str_equal(row->category, "import") && guard_is_name(row->target);
	char at[24] = "";

	if (row->line)
		snprintf(at, sizeof(at), "Line %u. ", row->line);
	snprintf(d->what, sizeof(d->what), "guard");
	snprintf(d->target, sizeof(d->target), "%s %s", row->category, row->target);
	snprintf(d->rule, sizeof(d->rule), "guard %s", guard_name(profile));
	snprintf(d->explain, sizeof(d->explain), "%s%s %s%s%.*s", at, kinds[kind].what,
		 kinds[kind].change, is_module ? " " : "",
		 is_module ? (int)strcspn(row->target, ".") : 0, row->target);
}

static void add_denial(enum guard profile, const struct report_row *row, struct guard_report *r)
{
	struct denial d = {.count = 1};

	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		if (!str_equal(row->category, kinds[i].category))
			continue;
		describe_denial(profile, row, i, &d);
		for (size_t j = 0; j < r->count; j++)
			if (str_equal(r->denials[j].target, d.target)) {
				r->denials[j].count++;
				return;
			}
		if (r->count < GUARD_DENIALS)
			r->denials[r->count++] = d;
		return;
	}
}

void guard_read_report(enum guard profile, const char *data, size_t size, struct guard_report *ret)
{
	const char *end = data + (size < GUARD_REPORT_BYTES ? size : GUARD_REPORT_BYTES);

	*ret = (struct guard_report){0};
	while (data < end) {
		const char *stop = memchr(data, '\n', (size_t)(end - data));
		struct report_row row;

		if (!stop)
			return;
		read_row(data, stop, &row);
		if (str_equal(row.kind, "refused"))
			add_denial(profile, &row, ret);
		for (size_t i = 0; str_equal(row.kind, "noted") && i < ARRAY_LEN(noted_names); i++)
			ret->noted[i] += str_equal(row.category, noted_names[i]);
		data = stop + 1;
	}
}

bool guard_format_notes(const struct guard_report *r, char *buf, size_t size)
{
	size_t len = (size_t)snprintf(buf, size, "The guard saw use of:");
	bool any = false;

	for (size_t i = 0; i < ARRAY_LEN(noted_names) && len < size; i++) {
		if (!r->noted[i])
			continue;
		len += (size_t)snprintf(buf + len, size - len, "%s %s (%u)", any ? "," : "",
					noted_names[i], r->noted[i]);
		any = true;
	}
	if (!any)
		buf[0] = '\0';
	return any;
}

void guard_add_report(enum guard profile, const char *data, size_t size, struct result *r)
{
	auto_free struct guard_report *g = must_alloc(malloc(sizeof(*g)));

	guard_read_report(profile, data, size, g);
	result_add_denials(r, g->denials, g->count);
	guard_format_notes(g, r->guard_note, sizeof(r->guard_note));
}
