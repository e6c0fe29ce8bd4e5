/*
 * JSON of a client as its bytes arrive: built piece by piece, so that no large text is parsed in one go, and
 * counted before it is built.
 *
 *   struct json_feed *f = json_feed_new(JSON_FEED_VALUES, false);
 *   json_feed_add(f, bytes, len, &e);         -1: not JSON, or too many values; nothing more is taken
 *   value = json_feed_end(f, &e);             the value, or NULL and e
 *   json_feed_free(f);
 *
 * Stricter than jansson in nothing but the bounds: members are unique, strings are UTF-8.
 */
#pragma once

#include "base/base.h"

#include <jansson.h>

#define JSON_FEED_VALUES 50000
#define JSON_FEED_DEPTH 64

struct json_feed;

/* allow_nul: \u0000 may be in strings, but not in names. */
struct json_feed *json_feed_new(size_t max_values, bool allow_nul);
int json_feed_add(struct json_feed *f, const char *bytes, size_t len, struct err *e);
/* The caller owns the value. */
json_t *json_feed_end(struct json_feed *f, struct err *e);
/* The same, of a text that is no value or not whole: what was built of it, or NULL. */
json_t *json_feed_take(struct json_feed *f);
/* How many were built. */
size_t json_feed_values(const struct json_feed *f);
void json_feed_free(struct json_feed *f);
/* A whole text at once. */
json_t *json_feed_whole(const char *bytes, size_t len, bool allow_nul, struct err *e);
