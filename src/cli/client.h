/*
 * What the daemon's verbs (create, ps, exec ...) share: where the daemon is, JSON calls, paths,
 * options, tables.
 *
 * The daemon is CLOCHE_URL (http://HOST:PORT or unix:/PATH) with CLOCHE_TOKEN, or else the Unix
 * socket of this user's daemon, or else that of the system's.
 */
#pragma once

#include "base/err.h"
#include "base/list.h"
#include "cli/client_http.h"

#include <jansson.h>
#include <stdbool.h>

struct client {
	struct http_target target;
	struct http *http; /* kept open between calls */
	int status;	   /* of the last call's answer; 0: there was none */
};

int client_init(struct client *c, struct err *e);
void client_done(struct client *c);

/*
 * One JSON call. body: taken over, or NULL. ret: the answer, or NULL where nobody cares; the caller
 * frees it. A status other than 2xx is an error with the daemon's own words.
 */
int client_call(struct client *c, const char *method, const char *path, json_t *body, json_t **ret,
		struct err *e);
/* The head of an answer is there and is not 2xx: reads the rest and makes an error of it. Returns -1. */
int client_error(struct http *h, const struct http_response *r, struct err *e);
/* The same for 2xx: the rest is JSON, or nothing (null). The caller frees it. */
int client_answer(struct http *h, json_t **ret, struct err *e);
/* A connection of one's own, for streams; the caller closes it. */
struct http *client_connect(const struct client *c, struct err *e);

/* "/v1/sandboxes/ID" and what follows; ID is encoded. The caller frees it. */
char *client_path(const char *id, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The id of a sandbox given by id, by name, or by the unique start of an id. */
int client_find(struct client *c, const char *id_or_name, char *ret_id, size_t size, struct err *e);

/* The daemon remembers those that ended for a while. */
bool client_is_gone(const json_t *sandbox);

/* ---- options of a verb ---- */

struct verb_option {
	const char *name;    /* with dashes; "memory" */
	char letter;	     /* or 0 */
	const char *metavar; /* NULL: a flag */
	const char *help;
	const char **value;  /* set to the argument, or to "true" */
	struct list *values; /* instead: may be given often */
};

struct verb_usage {
	const char *line;  /* "cloche ps [OPTIONS]" */
	const char *about; /* a sentence or two */
	const struct verb_option *options;
	size_t count;
	int min_args, max_args; /* max -1: any */
};

/*
 * Returns the index of the first argument: all of them are moved behind the options. Options come in
 * any place, but with max_args -1 (a command follows) only before the first argument. -1: e says
 * what is wrong; -2: help was printed.
 */
int verb_parse(const struct verb_usage *u, int argc, char **argv, struct err *e);
/* The exit status for verb_parse's -1 and -2. */
int verb_stop(int parsed, const struct err *e);

/* ---- output ---- */

struct table; /* columns as wide as what is in them */

struct table *table_new(const char *const *heads, size_t count);
/* Cells are sanitised and copied; NULL is "-". */
void table_row(struct table *t, const char *const *cells);
/* Prints and frees. */
void table_print(struct table *t, FILE *to);

/* "1.5G", "12K" into a buffer of the caller's. */
const char *format_bytes(uint64_t bytes, char *buf, size_t size);
/* "3m", "2h" since an RFC 3339 time. */
const char *format_age(const char *when, char *buf, size_t size);
/* One JSON value and a newline. Frees it. Returns the exit status. */
int print_json(json_t *value);
/* The exit status once stdout is flushed. */
int finish_stdout(int status);

/* A string of any bytes; of those that are not UTF-8 a sanitised one. */
json_t *client_text(const char *text);
/* Text of a member, or NULL. */
const char *text_at(const json_t *object, const char *key);
double number_at(const json_t *object, const char *key);
