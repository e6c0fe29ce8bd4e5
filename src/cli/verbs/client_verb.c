/*
 * Parses options and arguments of cloched's verbs and prints their output, as their rows describe.
 */
#include "cli/verbs/client_verb.h"

#include "cli/cli.h"

#include <assert.h>

/* ---- options ---- */

static void print_verb_usage(const struct verb *u)
{
	printf("usage: %s\n\n%s\n", u->line, u->about);
	if (u->option_count)
		printf("\nOptions:\n");
	for (size_t i = 0; i < u->option_count; i++) {
		const struct verb_option *o = &u->options[i];

		cli_print_option(&(struct option_help){o->letter, o->name, o->metavar, o->help},
				 24);
	}
}

/* The index of an option in the table; option_count if it is not there. */
static size_t find_option(const struct verb *u, const char *arg)
{
	size_t len = strcspn(arg, "="), i;

	for (i = 0; i < u->option_count; i++) {
		const struct verb_option *o = &u->options[i];

		if (arg[1] == '-'
			    ? len - 2 == strlen(o->name) && strncmp(arg + 2, o->name, len - 2) == 0
			    : o->letter && arg[1] == o->letter)
			break;
	}
	return i;
}

/* Takes argv[*at], and its value; *at is then the last argument that was used. */
static int take_option(struct verb_call *v, int argc, char **argv, int *at, struct err *e)
{
	const char *arg = argv[*at], *equals = strchr(arg, '='), *line = v->verb->line;
	size_t i = find_option(v->verb, arg);
	const struct verb_option *o = &v->verb->options[i];

	if (i == v->verb->option_count)
		return err_set(e, ERR_INVALID, "unknown option '%s'; see `%.*s --help`", arg,
			       (int)strcspn(line + 7, " ") + 7, line);
	if (!o->metavar) {
		if (arg[1] == '-' ? equals != NULL : arg[2] != '\0')
			return err_set(e, ERR_INVALID, "--%s takes no value", o->name);
		list_add(&v->values[i], "true");
		return 0;
	}
	if (arg[1] == '-' && equals) {
		list_add(&v->values[i], equals + 1);
	} else if (arg[1] != '-' && arg[2]) {
		list_add(&v->values[i], arg + 2);
	} else {
		if (*at + 1 >= argc)
			return err_set(e, ERR_INVALID, "--%s needs a value: %s", o->name,
				       o->metavar);
		list_add(&v->values[i], argv[++*at]);
	}
	return 0;
}

/*
 * Options may come anywhere, but if a command follows (max_args -1) only before the first
 * argument. 1: help is wanted.
 */
static int parse_args(struct verb_call *v, int argc, char **argv, struct err *e)
{
	const struct verb *u = v->verb;
	bool only_args = false;

	for (int i = 1; i < argc; i++) {
		char *arg = argv[i];

		if (only_args || arg[0] != '-' || !arg[1]) {
			v->args[v->count++] = arg;
			only_args = only_args || u->max_args < 0;
		} else if (str_equal(arg, "--")) {
			only_args = true;
		} else if (str_equal(arg, "--help") || str_equal(arg, "-h")) {
			return 1;
		} else if (take_option(v, argc, argv, &i, e) < 0) {
			return -1;
		}
	}
	if (v->count < u->min_args || (u->max_args >= 0 && v->count > u->max_args))
		return verb_misused(v, e);
	return 0;
}

const struct list *verb_texts(const struct verb_call *v, const char *name)
{
	for (size_t i = 0; i < v->verb->option_count; i++)
		if (str_equal(v->verb->options[i].name, name))
			return &v->values[i];
	assert(!"an option of the verb");
	return NULL;
}

const char *verb_text(const struct verb_call *v, const char *name)
{
	const struct list *given = verb_texts(v, name);

	return given->count ? given->items[given->count - 1]
			    : v->verb->options[given - v->values].usual;
}

int verb_misused(const struct verb_call *v, struct err *e)
{
	return err_set(e, ERR_INVALID, "usage: %s", v->verb->line);
}

/* ---- a verb ---- */

static int choose_part(const struct verb *verb, int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < verb->part_count; i++)
		if (str_equal(argv[1], verb->parts[i].name))
			return verb_main(&verb->parts[i], argc - 1, argv + 1);
	if (argc > 1 && (str_equal(argv[1], "--help") || str_equal(argv[1], "-h"))) {
		fputs(verb->about, stdout);
		return finish_stdout(0);
	}
	fputs(verb->about, stderr);
	return EXIT_CLOCHE;
}

static int parse_and_run(struct verb_call *v, int argc, char **argv)
{
	struct err e = {0};
	int rc = parse_args(v, argc, argv, &e);

	if (rc > 0) {
		print_verb_usage(v->verb);
		return finish_stdout(0);
	}
	for (size_t i = 0; i < v->verb->option_count; i++)
		v->json = v->json ||
			  (v->values[i].count && str_equal(v->verb->options[i].name, "json"));
	if (rc == 0 && !v->verb->is_local)
		rc = client_init(&v->client, &e);
	if (rc == 0)
		rc = v->verb->run(v, &e);
	return rc < 0 ? cli_fail(&e) : rc;
}

int verb_main(const struct verb *verb, int argc, char **argv)
{
	struct verb_call v = {.verb = verb};
	int status;

	if (verb->parts)
		return choose_part(verb, argc, argv);
	v.args = must_alloc(calloc((size_t)argc + 1, sizeof(*v.args)));
	v.values = must_alloc(calloc(verb->option_count + 1, sizeof(*v.values)));
	status = parse_and_run(&v, argc, argv);
	client_done(&v.client);
	for (size_t i = 0; i < verb->option_count; i++)
		list_done(&v.values[i]);
	free(v.values);
	free(v.args);
	return status;
}

int verb_each(struct verb_call *v, struct err *e)
{
	json_t *all = json_array(), *one;
	int status = 0, printed = 0;

	for (char **id = v->args; *id; id++) {
		if (client_ask(&v->client, v->verb->request, *id, NULL, &one, e) == 0)
			json_array_append_new(all, one);
		else
			status = cli_fail(e);
	}
	if (v->json)
		printed = print_json(all);
	else
		json_decref(all);
	return status ? status : printed;
}

int verb_delete(struct verb_call *v, const char *below, char **names)
{
	int status = 0;

	for (; *names; names++) {
		struct err e = {0};
		char encoded[1024];

		http_encode(encoded, sizeof(encoded), *names, false);
		auto_free char *path = str_format("%s%s", below, encoded);

		if (client_call(&v->client, "DELETE", path, NULL, NULL, &e) < 0)
			status = cli_fail(&e);
	}
	return status;
}

int verb_list(struct verb_call *v, struct err *e)
{
	const char *path = strchr(v->verb->request, ' ') + 1;
	json_t *answer;
	int rc = str_starts(path, "/v1/")
			 ? client_call(&v->client, "GET", path, NULL, &answer, e)
			 : client_ask(&v->client, v->verb->request, v->args[0], NULL, &answer, e);

	return rc < 0 ? -1 : verb_show(v, answer);
}

/* ---- tables ---- */

#define COLUMNS_MAX 12

const char *format_bytes(uint64_t bytes, char *buf, size_t size)
{
	static const char units[] = "BKMGT";
	double n = (double)bytes;
	size_t unit = 0;

	while (n >= 1024 && unit + 2 < sizeof(units)) {
		n /= 1024;
		unit++;
	}
	snprintf(buf, size, unit && n < 10 ? "%.1f%c" : "%.0f%c", n, units[unit]);
	return buf;
}

/* "3m", "2h" since an RFC 3339 time. */
static char *format_age(const char *when)
{
	static const struct {
		long below, unit;
		char letter;
	} steps[] = {{120, 1, 's'}, {7200, 60, 'm'}, {172800, 3600, 'h'}, {0, 86400, 'd'}};
	struct tm tm = {0};
	long s;
	size_t i = 0;

	if (!when || !strptime(when, "%Y-%m-%dT%H:%M:%S", &tm))
		return NULL;
	s = (long)(time(NULL) - timegm(&tm));
	s = s < 0 ? 0 : s;
	while (steps[i].below && s >= steps[i].below)
		i++;
	return str_format("%ld%c", s / steps[i].unit, steps[i].letter);
}

static char *format_expiry(time_t when)
{
	char text[32];
	struct tm tm;

	if (!when || !gmtime_r(&when, &tm))
		return str_copy("never");
	strftime(text, sizeof(text), when <= time(NULL) ? "expired %Y-%m-%d" : "%Y-%m-%d %H:%MZ",
		 &tm);
	return str_copy(text);
}

/* A command as one line. */
static char *join_words(const json_t *words)
{
	char *line = str_copy("");
	const json_t *word;
	size_t i;

	json_array_foreach (words, i, word) {
		char *longer =
			str_format("%s%s%s", line, *line ? " " : "", json_string_value(word));

		free(line);
		line = longer;
	}
	return line;
}

static const json_t *find_member(const json_t *row, const char *key)
{
	for (;;) {
		size_t len = strcspn(key, ".|");
		auto_free char *name = str_format("%.*s", (int)len, key);
		const json_t *value = json_object_get(row, name);

		if (key[len] == '.')
			return find_member(value, key + len + 1);
		if (value || !key[len])
			return value;
		key += len + 1;
	}
}

static char *format_number(const json_t *row, const json_t *value, enum column_kind kind)
{
	double n = json_number_value(value);
	char used[16], limit[16];

	switch (kind) {
	case COLUMN_USAGE:
		return str_format("%s / %s", format_bytes((uint64_t)n, used, sizeof(used)),
				  format_bytes((uint64_t)number_at(row, "memory_limit_bytes"),
					       limit, sizeof(limit)));
	case COLUMN_BYTES:
		return str_copy(format_bytes((uint64_t)n, used, sizeof(used)));
	case COLUMN_EXPIRY:
		return format_expiry((time_t)n);
	case COLUMN_PERCENT:
		return str_format("%.1f%%", n);
	case COLUMN_DECIMAL:
		return str_format("%.2f", n);
	default:
		return kind == COLUMN_COUNT && n == 0 ? NULL : str_format("%.0f", n);
	}
}

/* NULL: there is nothing to show. The caller frees it. */
static char *format_cell(const json_t *row, const struct column *c)
{
	const json_t *value = find_member(row, c->key);
	const char *text = json_string_value(value);

	if (c->kind == COLUMN_AGE)
		return format_age(text);
	if (text)
		return str_format("%.*s", c->kind == COLUMN_DIGEST ? 19 : 4096, text);
	if (json_is_array(value))
		return join_words(value);
	return json_is_number(value) ? format_number(row, value, c->kind) : NULL;
}

/* The width on a terminal: counts characters, which is near enough. */
static size_t width_of(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += ((unsigned char)*text & 0xc0) != 0x80;
	return n;
}

static void add_cell(struct list *cells, size_t *width, const char *text)
{
	char clean[256];

	text = text && *text ? text : "-";
	str_sanitise(clean, sizeof(clean), text, strlen(text));
	list_add(cells, clean);
	if (width_of(clean) > *width)
		*width = width_of(clean);
}

void table_print(const json_t *rows, const struct column *columns, size_t count)
{
	struct list cells = {0}; /* row by row, the heads first */
	size_t width[COLUMNS_MAX] = {0};
	const json_t *row;
	size_t i, c;

	assert(count <= COLUMNS_MAX);
	for (c = 0; c < count; c++)
		add_cell(&cells, &width[c], columns[c].head);
	json_array_foreach (rows, i, row) {
		for (c = 0; c < count; c++) {
			auto_free char *text = format_cell(row, &columns[c]);

			add_cell(&cells, &width[c], text);
		}
	}
	for (i = 0; i < cells.count; i++) {
		const char *text = cells.items[i];
		size_t blanks = width[i % count] - width_of(text) + 2;

		if (i % count + 1 == count)
			puts(text);
		else
			printf("%s%*s", text, (int)blanks, "");
	}
	list_done(&cells);
}

int finish_stdout(int status)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	perror("cloche: cannot write to stdout");
	return EXIT_CLOCHE;
}

int print_json(json_t *value)
{
	auto_free char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);

	json_decref(value);
	if (text)
		puts(text);
	return finish_stdout(text ? 0 : EXIT_CLOCHE);
}

int verb_show(const struct verb_call *v, json_t *answer)
{
	if (v->json)
		return print_json(answer);
	table_print(json_is_array(answer) ? answer : json_object_get(answer, v->verb->member),
		    v->verb->columns, v->verb->column_count);
	json_decref(answer);
	return finish_stdout(0);
}

int verb_show_id(const struct verb_call *v, json_t *made)
{
	if (v->json)
		return print_json(made);
	puts(text_at(made, "id") ? text_at(made, "id") : "");
	json_decref(made);
	return finish_stdout(0);
}
