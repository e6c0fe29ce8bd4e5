/*
 * Request bodies: one table of fields for each kind of body checks it, names what it does not know,
 * and feeds /openapi.json. The sandbox options of model/spec.h come on top where a table says so.
 *
 *   static const struct body_field fields[] = {
 *           {"cmd", BODY_LIST, BODY_REQUIRED, "the command and its arguments"},
 *   };
 *   const struct body_table table = {fields, ARRAY_LEN(fields), BODY_WITH_LIMITS};
 *   if (body_check(x->json, &table, &e) < 0) ...
 *
 * After body_check every field that is there has its type, so that the getters cannot fail but for
 * what body_time and body_spec parse.
 */
#pragma once

#include "base/base.h"
#include "model/spec.h"

#include <jansson.h>

enum body_type {
	BODY_TEXT,  /* a string */
	BODY_WORD,  /* a string, or a whole number for it */
	BODY_COUNT, /* a whole number >= 0 */
	BODY_TIME,  /* seconds as a number, or "500ms" */
	BODY_FLAG,  /* true or false */
	BODY_LIST,  /* array of strings */
	BODY_MAP,   /* object of strings */
	BODY_ENV,   /* object of strings, or array of "K=V" */
	BODY_ITEMS, /* array of objects: checked by `items` */
	BODY_OBJECT,
	BODY_TYPE_COUNT,
};

enum body_flags {
	BODY_REQUIRED = 1,
	/* No longer than a guest takes them; what is longer would end its link. */
	BODY_PATH = 2,
	BODY_GLOB = 4,
};
/* Which spec fields may stand beside the table's own. */
enum body_with { BODY_ALONE, BODY_WITH_LIMITS, BODY_WITH_SPEC };

struct body_table;

struct body_field {
	const char *name;
	enum body_type type;
	unsigned flags;
	const char *help;
	const struct body_table *items; /* BODY_ITEMS, BODY_OBJECT; may be NULL */
};

struct body_table {
	const struct body_field *fields;
	size_t count;
	enum body_with with;
};

/* NULL counts as an empty object. */
int body_check(const json_t *body, const struct body_table *t, struct err *e);
/* Sets what the body says of the sandbox; not env, which callers take by body_env. */
int body_spec(const json_t *body, const struct body_table *t, struct sandbox_spec *s,
	      struct err *e);
/* Does REST know this option, in such a table? Options that name host paths are known and refused. */
bool body_knows_spec(const struct body_table *t, const struct field *f);

/* The JSON schema of a type, as text; of BODY_ITEMS and BODY_OBJECT without what is in them. */
const char *body_type_schema(enum body_type type);

/* NULL, dflt or an empty list if it is not there. */
const char *body_text(const json_t *body, const char *name);
uint64_t body_count(const json_t *body, const char *name, uint64_t dflt);
bool body_flag(const json_t *body, const char *name);
/* Which of the values (NULL at their end) a text is; 0 if it is not there; -1 and e if none. */
int body_choice(const json_t *body, const char *name, const char *const *values, struct err *e);
bool body_has(const json_t *body, const char *name);
int body_time(const json_t *body, const char *name, uint64_t dflt_ms, uint64_t *ret_ms,
	      struct err *e);
void body_list(const json_t *body, const char *name, struct list *ret);
/* K=V; names must be names. */
int body_env(const json_t *body, const char *name, struct list *ret, struct err *e);
/* One of two fields: as it is, or decoded. malloc'ed, also if it is empty. */
int body_bytes(const json_t *body, const char *text, const char *base64, char **ret,
	       size_t *ret_len, struct err *e);
