/*
 * A JSON reader, just enough for a program without libraries to look at members of one object.
 *
 *   struct jsonr v;
 *   if (jsonr_member(text, len, "exit_code", &v) && jsonr_int(&v, &code)) ...
 *
 * Nothing is allocated or copied but by jsonr_string. A text that is not JSON has no members: the
 * whole object is checked each time, to a depth of JSONR_DEPTH.
 */
#pragma once

#include "base/base.h"

#define JSONR_DEPTH 32

struct jsonr {
	const char *at; /* one value, without spaces around it */
	size_t len;
};

/* The value of a member by its plain ASCII name; of several with that name the first. */
bool jsonr_member(const char *object, size_t len, const char *name, struct jsonr *ret);
/* The next item of an array; *at is NULL at first. False: there are no more, or this is no array. */
bool jsonr_item(const struct jsonr *array, const char **at, struct jsonr *ret);

bool jsonr_is_null(const struct jsonr *v);
bool jsonr_bool(const struct jsonr *v, bool *ret);
/* A number without fraction or exponent. */
bool jsonr_int(const struct jsonr *v, int64_t *ret);
/* The text of a string in UTF-8, NUL-terminated; the caller frees it. NULL if the value is no string. */
char *jsonr_string(const struct jsonr *v, size_t *ret_len);
