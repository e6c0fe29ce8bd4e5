/*
 * Verbs of cloched as data: a verb is a row with its options, how many arguments it takes, and a
 * function, or for the simple ones the request and the columns of its answer.
 *
 *   static const struct column columns[] = {{"ID", "id", COLUMN_TEXT}, ...};
 *   const struct verb verb_things = {.line = "cloche things [--json]", .about = "Lists things.",
 *           .run = verb_list, .request = "GET /v1/things", .member = "things", COLUMNS(columns),
 *           OPTIONS(options)};
 */
#pragma once

#include "base/base.h"
#include "cli/verbs/client.h"

enum { VERB_MANY = 100000 }; /* for max_args: no limit */

struct verb_option {
	const char *name;    /* with dashes: "on-timeout" */
	char letter;	     /* or 0 */
	const char *metavar; /* NULL: a flag, whose value is "true" */
	const char *help;
	const char *usual; /* the default value, or NULL */
};

/* How the value of a column is shown. Text stays as it is; a missing member is "-". */
enum column_kind {
	COLUMN_TEXT,   /* also a number, or an array of words */
	COLUMN_DIGEST, /* its beginning */
	COLUMN_BYTES,
	COLUMN_USAGE,  /* bytes, of memory_limit_bytes */
	COLUMN_AGE,    /* since an RFC 3339 time */
	COLUMN_EXPIRY, /* unix seconds; 0 is "never" */
	COLUMN_COUNT,  /* 0 is "-" */
	COLUMN_PERCENT,
	COLUMN_DECIMAL, /* two places */
};

struct column {
	const char *head;
	const char *key; /* "a.b|c": member b of object a, or if that is missing c */
	enum column_kind kind;
};

struct verb_call;

struct verb {
	const char *name;  /* of a part of a verb: `cloche token NAME` */
	const char *line;  /* "cloche ps [OPTIONS]" */
	const char *about; /* a sentence or two */
	/* Returns the exit status, or -1 with an error to print. */
	int (*run)(struct verb_call *v, struct err *e);
	const struct verb_option *options;
	size_t option_count;
	int min_args, max_args; /* max -1: a command with its own options follows */
	bool is_local;		/* needs no daemon */

	/* For verb_each and verb_list. */
	const char *request; /* "POST /pause" (client_ask); "GET /v1/snapshots" */
	const char *member;  /* the answer's array of rows */
	const struct column *columns;
	size_t column_count;

	/* Instead of all that: about is the usage, and the first argument names one of these. */
	const struct verb *parts;
	size_t part_count;
};
#define ARGS(least, most) .min_args = (least), .max_args = (most)
#define OPTIONS(table) .options = (table), .option_count = ARRAY_LEN(table)
#define COLUMNS(table) .columns = (table), .column_count = ARRAY_LEN(table)
#define PARTS(table) .parts = (table), .part_count = ARRAY_LEN(table)

struct verb_call {
	const struct verb *verb;
	struct client client;
	char **args; /* NULL-terminated */
	int count;
	struct list *values; /* per option: all values that were given */
	bool json;	     /* --json was given */
};

/* Parses, runs, prints the error, cleans up. Returns the exit status. */
int verb_main(const struct verb *verb, int argc, char **argv);
/* The value of an option: the last one given, or its default. */
const char *verb_text(const struct verb_call *v, const char *name);
const struct list *verb_texts(const struct verb_call *v, const char *name);
/* "usage: LINE" as an error. Returns -1. */
int verb_misused(const struct verb_call *v, struct err *e);

/*
 * For .run: sends the request for each named sandbox; with --json prints the answers as an array.
 */
int verb_each(struct verb_call *v, struct err *e);
/*
 * For .run: prints the answer to the request, which is about the named sandbox unless its path
 * begins with /v1/.
 */
int verb_list(struct verb_call *v, struct err *e);

/* DELETE of each name below this path ("/v1/secrets/"); all are tried. Returns the exit status. */
int verb_delete(struct verb_call *v, const char *below, char **names);

/* ---- output ---- */

/* Prints rows, an array of objects; cells are sanitised. */
void table_print(const json_t *rows, const struct column *columns, size_t count);
/*
 * Prints the answer with --json, else the table of its rows. Frees the answer. Returns the exit
 * status.
 */
int verb_show(const struct verb_call *v, json_t *answer);
/* Prints an object with --json, else its "id". Frees the object. Returns the exit status. */
int verb_show_id(const struct verb_call *v, json_t *made);
/* Prints a JSON value and a newline. Frees the value. Returns the exit status. */
int print_json(json_t *value);
/* Flushes stdout. Returns the exit status, or EXIT_CLOCHE if that failed. */
int finish_stdout(int status);
/* Writes "1.5G", "12K" to the caller's buffer and returns it. */
const char *format_bytes(uint64_t bytes, char *buf, size_t size);
