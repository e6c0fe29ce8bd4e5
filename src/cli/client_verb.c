/* Options and output of the daemon's verbs. */
#include "cli/client.h"

#include "base/auto.h"
#include "base/str.h"
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- options ---- */

static void print_usage(const struct verb_usage *u)
{
	printf("usage: %s\n\n%s\n", u->line, u->about);
	if (u->count)
		printf("\nOptions:\n");
	for (size_t i = 0; i < u->count; i++) {
		const struct verb_option *o = &u->options[i];
		auto_free char *left = str_format("--%s%s%s", o->name, o->metavar ? " " : "",
						  o->metavar ? o->metavar : "");

		if (o->letter)
			printf("  -%c, %-24s %s\n", o->letter, left, o->help);
		else
			printf("      %-24s %s\n", left, o->help);
	}
}

static const struct verb_option *find_option(const struct verb_usage *u, const char *arg)
{
	size_t len = strcspn(arg, "=");

	for (size_t i = 0; i < u->count; i++) {
		const struct verb_option *o = &u->options[i];

		if (arg[1] == '-'
			    ? len - 2 == strlen(o->name) && strncmp(arg + 2, o->name, len - 2) == 0
			    : o->letter && arg[1] == o->letter)
			return o;
	}
	return NULL;
}

static void set_option(const struct verb_option *o, const char *value)
{
	if (o->values)
		list_add(o->values, value);
	else
		*o->value = value;
}

/* Takes argv[*at], and its value; *at is then the last argument that was used. */
static int take_option(const struct verb_usage *u, int argc, char **argv, int *at, struct err *e)
{
	const char *arg = argv[*at], *equals = strchr(arg, '=');
	const struct verb_option *o = find_option(u, arg);

	if (!o)
		return err_set(e, ERR_INVALID, "unknown option '%s'; see `%.*s --help`", arg,
			       (int)strcspn(u->line + 7, " ") + 7, u->line);
	if (!o->metavar) {
		if (arg[1] == '-' ? equals != NULL : arg[2] != '\0')
			return err_set(e, ERR_INVALID, "--%s takes no value", o->name);
		set_option(o, "true");
		return 0;
	}
	if (arg[1] == '-' && equals) {
		set_option(o, equals + 1);
	} else if (arg[1] != '-' && arg[2]) {
		set_option(o, arg + 2);
	} else {
		if (*at + 1 >= argc)
			return err_set(e, ERR_INVALID, "--%s needs a value: %s", o->name,
				       o->metavar);
		set_option(o, argv[++*at]);
	}
	return 0;
}

int verb_parse(const struct verb_usage *u, int argc, char **argv, struct err *e)
{
	auto_free char **rest = must_alloc(calloc((size_t)argc + 1, sizeof(*rest)));
	bool only_args = false;
	int count = 0;

	for (int i = 1; i < argc; i++) {
		char *arg = argv[i];

		if (only_args || arg[0] != '-' || !arg[1]) {
			rest[count++] = arg;
			only_args = only_args || u->max_args < 0;
		} else if (str_equal(arg, "--")) {
			only_args = true;
		} else if (str_equal(arg, "--help") || str_equal(arg, "-h")) {
			print_usage(u);
			return -2;
		} else if (take_option(u, argc, argv, &i, e) < 0) {
			return -1;
		}
	}
	if (count < u->min_args || (u->max_args >= 0 && count > u->max_args))
		return err_set(e, ERR_INVALID, "usage: %s", u->line);
	/* The options were taken: their places are free. */
	memcpy(argv + argc - count, rest, (size_t)count * sizeof(*rest));
	return argc - count;
}

int verb_stop(int parsed, const struct err *e)
{
	return parsed == -2 ? finish_stdout(0) : cli_fail(e);
}

/* ---- tables ---- */

#define COLUMNS 12

struct table {
	size_t columns, width[COLUMNS];
	struct list cells; /* row after row, the heads first */
};

/* How many columns of a terminal: characters, near enough. */
static size_t width_of(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += ((unsigned char)*text & 0xc0) != 0x80;
	return n;
}

struct table *table_new(const char *const *heads, size_t count)
{
	struct table *t = must_alloc(calloc(1, sizeof(*t)));

	t->columns = count < COLUMNS ? count : COLUMNS;
	table_row(t, heads);
	return t;
}

void table_row(struct table *t, const char *const *cells)
{
	for (size_t i = 0; i < t->columns; i++) {
		const char *text = cells[i] && *cells[i] ? cells[i] : "-";
		char clean[256];

		str_sanitise(clean, sizeof(clean), text, strlen(text));
		list_add(&t->cells, clean);
		if (width_of(clean) > t->width[i])
			t->width[i] = width_of(clean);
	}
}

void table_print(struct table *t, FILE *to)
{
	for (size_t i = 0; i < t->cells.count; i++) {
		size_t column = i % t->columns;
		const char *text = t->cells.items[i];
		bool last = column + 1 == t->columns;

		fputs(text, to);
		if (last)
			fputc('\n', to);
		else
			fprintf(to, "%*s", (int)(t->width[column] - width_of(text)) + 2, "");
	}
	list_done(&t->cells);
	free(t);
}

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

const char *format_age(const char *when, char *buf, size_t size)
{
	struct tm tm = {0};
	const char *end = when ? strptime(when, "%Y-%m-%dT%H:%M:%S", &tm) : NULL;
	long s = end ? (long)(time(NULL) - timegm(&tm)) : 0;

	if (!end)
		return NULL;
	if (s < 0)
		s = 0;
	if (s < 120)
		snprintf(buf, size, "%lds", s);
	else if (s < 7200)
		snprintf(buf, size, "%ldm", s / 60);
	else if (s < 172800)
		snprintf(buf, size, "%ldh", s / 3600);
	else
		snprintf(buf, size, "%ldd", s / 86400);
	return buf;
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

json_t *client_text(const char *text)
{
	json_t *value = json_string(text);
	char clean[8192];

	if (value)
		return value;
	str_sanitise(clean, sizeof(clean), text, strlen(text));
	return json_string(clean);
}

const char *text_at(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

double number_at(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}
