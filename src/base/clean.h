/*
 * Text from inside a sandbox, made fit for a model or a terminal: valid UTF-8 without escape sequences, control
 * characters (line ends and tabs stay), characters that reverse text or are not seen, and secrets. What was changed
 * is counted. str_sanitise (base/str.h) is the same for a text of one line.
 */
#pragma once

#include "base/base.h"

#define CLEAN_VALUE_MIN 8 /* shorter values are words of any text */

struct cleaned {
	uint64_t invalid;   /* bytes that were no UTF-8 */
	uint64_t control;   /* control characters, escape sequences */
	uint64_t invisible; /* invisible, or changing the direction */
	uint64_t secrets;   /* by their form, or one of values */
};

/* Adds to `to`. values: known secrets, or NULL. */
void clean_text(struct buf *to, const char *text, size_t len, const struct list *values,
		struct cleaned *n);
bool cleaned_any(const struct cleaned *n);
/* The values of those variables, NAME=VALUE, whose names say that they are secret. */
void clean_values_of(const struct list *env, struct list *ret);
