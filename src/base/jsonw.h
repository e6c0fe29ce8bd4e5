/*
 * A JSON writer: commas, escaping and buffering, so that callers only name keys and values.
 *
 *   struct jsonw j;
 *   jsonw_begin(&j, stdout);
 *   jsonw_open(&j, NULL, '{');
 *   jsonw_string(&j, "id", id);
 *   jsonw_open(&j, "items", '[');
 *   jsonw_int(&j, NULL, 1);              inside an array the key is NULL
 *   jsonw_close(&j, ']');
 *   jsonw_close(&j, '}');
 *   jsonw_finish(&j);
 *
 * Text comes from inside sandboxes: whatever its bytes, the output is valid JSON in UTF-8. Bytes
 * that are not UTF-8 become U+FFFD; control characters (C0, DEL, C1) are escaped, so that a record
 * shown on a terminal cannot steer it. (The name keeps clear of jansson's json_*, which some of our
 * binaries link.)
 */
#pragma once

#include "base/base.h"

struct jsonw {
	FILE *to;
	struct buf *into; /* instead of a FILE */
	bool comma;	  /* something stands before the next item */
	size_t used;
	char buf[8192];
};

void jsonw_begin(struct jsonw *j, FILE *to);
/* Appends to a buffer; jsonw_finish is needed all the same. */
void jsonw_begin_buf(struct jsonw *j, struct buf *into);
/* Hands everything to the FILE and flushes that; -1 if it could not be written. */
int jsonw_finish(struct jsonw *j);

/* '{' or '['; closed with '}' or ']'. */
void jsonw_open(struct jsonw *j, const char *key, char bracket);
void jsonw_close(struct jsonw *j, char bracket);

/* A NULL string is null. */
void jsonw_string(struct jsonw *j, const char *key, const char *value);
void jsonw_bool(struct jsonw *j, const char *key, bool value);
void jsonw_int(struct jsonw *j, const char *key, int64_t value);
void jsonw_uint(struct jsonw *j, const char *key, uint64_t value);
/* Three decimals. */
void jsonw_real(struct jsonw *j, const char *key, double value);
void jsonw_null(struct jsonw *j, const char *key);
void jsonw_base64(struct jsonw *j, const char *key, const void *data, size_t len);

/* A string value in pieces. A character split over two pieces counts as broken. */
void jsonw_text_open(struct jsonw *j, const char *key);
void jsonw_text(struct jsonw *j, const char *text, size_t len);
void jsonw_text_close(struct jsonw *j);

/* How many bytes were written since jsonw_begin_buf, if the buffer was empty then. */
size_t jsonw_len(const struct jsonw *j);

/* Writes bytes as they are: a newline after the record, say. */
void jsonw_raw(struct jsonw *j, const char *bytes, size_t len);
