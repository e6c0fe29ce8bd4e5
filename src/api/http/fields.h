/*
 * Fields of JSON objects: one table for each kind of request body checks the body, names unknown
 * fields, and feeds /openapi.json. The sandbox options of model/spec.h are added where a table says so.
 * The tools of MCP (api/mcp/tools.c) describe their arguments and results by the same tables.
 *
 *   const struct body_table table = BODY_TABLE(BODY_WITH_LIMITS,
 *           NEEDED("cmd", BODY_LIST, "the command and its arguments"));
 *   if (body_check(x->json, &table, &e) < 0) ...
 *
 * After body_check every field that is present has its type: of the getters only body_time, body_size and
 * body_spec can fail, on values that they parse.
 */
#pragma once

#include "base/base.h"
#include "model/spec.h"

#include <jansson.h>

enum body_type {
	BODY_TEXT, /* a string */
	BODY_PATH, /* a string no longer than a guest takes a path; a longer one would end its link */
	BODY_GLOB,  /* the same for a glob */
	BODY_WORD,  /* a string, or a whole number for it */
	BODY_COUNT, /* a whole number >= 0 */
	BODY_TIME,  /* seconds as a number, or "500ms" */
	BODY_FLAG,  /* true or false */
	BODY_LIST,  /* array of strings */
	BODY_MAP,   /* object of strings */
	BODY_ENV,   /* object of strings, or array of "K=V" */
	BODY_ITEMS, /* array of objects: checked by `items` */
	BODY_OBJECT,
	BODY_STRING,  /* MCP: a string that may hold NUL */
	BODY_INTEGER, /* MCP: of any sign */
	BODY_NUMBER,  /* MCP: of any sign */
	BODY_TYPE_COUNT,
};

enum body_flags {
	BODY_REQUIRED = 1,
};
/* Which sandbox options a body may have besides the table's own fields. */
enum body_with { BODY_ALONE, BODY_WITH_LIMITS, BODY_WITH_NETWORK, BODY_WITH_SPEC };

struct body_table;

struct body_field {
	const char *name;
	enum body_type type;
	unsigned flags;
	const char *help;
	const struct body_table *items; /* BODY_ITEMS, BODY_OBJECT; may be NULL */
	double min, max;		/* BODY_INTEGER, BODY_NUMBER; both 0: no bounds */
	const char *const *values;	/* of a text: one of these; NULL-terminated */
};

struct body_table {
	const struct body_field *fields;
	size_t count;
	enum body_with with;
};

/* A field that may be left out, and one that may not. */
#define FIELD(n, t, h, ...)                                                                        \
	{                                                                                          \
		.name = n, .type = t, .help = h, __VA_ARGS__                                       \
	}
#define NEEDED(n, t, h, ...) FIELD(n, t, h, .flags = BODY_REQUIRED, __VA_ARGS__)
#define BODY_TABLE(w, ...)                                                                         \
	{                                                                                          \
		.fields = (const struct body_field[]){__VA_ARGS__},                                \
		.count = ARRAY_LEN(((const struct body_field[]){__VA_ARGS__})), .with = w          \
	}

/* NULL counts as an empty object. */
int body_check(const json_t *body, const struct body_table *t, struct err *e);
/* Sets the sandbox options of the body, but not env: see body_env. */
int body_spec(const json_t *body, const struct body_table *t, struct sandbox_spec *s,
	      struct err *e);
/* May bodies of this table have this option? Options that name paths of the host are refused. */
bool body_knows_spec(const struct body_table *t, const struct field *f);

const struct body_field *body_field_find(const struct body_table *t, const char *name);
bool body_has_type(const json_t *value, enum body_type type);
/* "string", "integer" ...; NULL if JSON has no one type for it. */
const char *body_type_name(enum body_type type);
/* The JSON schema of objects with these fields. */
json_t *body_schema(const struct body_table *t);

/* For a missing field: NULL, dflt, false or an empty list. */
const char *body_text(const json_t *body, const char *name);
uint64_t body_count(const json_t *body, const char *name, uint64_t dflt);
bool body_flag(const json_t *body, const char *name);
/* The index of a text in values (NULL at the end); 0 if the field is missing; -1 and e if none matches. */
int body_choice(const json_t *body, const char *name, const char *const *values, struct err *e);
bool body_has(const json_t *body, const char *name);
int body_time(const json_t *body, const char *name, uint64_t dflt_ms, uint64_t *ret_ms,
	      struct err *e);
int body_size(const json_t *body, const char *name, uint64_t dflt, uint64_t *ret, struct err *e);
void body_list(const json_t *body, const char *name, struct list *ret);
/* As K=V; a name must not be empty. */
int body_env(const json_t *body, const char *name, struct list *ret, struct err *e);
/* The text, or the decoded base64, whichever field is present. malloc'ed, also if it is empty. */
int body_bytes(const json_t *body, const char *text, const char *base64, char **ret,
	       size_t *ret_len, struct err *e);
