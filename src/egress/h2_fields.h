/* The header fields of one HTTP/2 message, as they arrive and as they are sent on. */
#pragma once

#include "egress/http_check.h"
#include "egress/redact.h"

#include <nghttp2/nghttp2.h>

/* Zero-initialised is empty. */
struct h2_fields {
	struct buf text; /* names and values, each with its end */
	size_t count;
	struct {
		uint32_t name, value;
	} at[HTTP1_FIELDS];
};

/* -1: too many, too long, or a zero byte in it. */
int h2_fields_add(struct h2_fields *f, const char *name, size_t name_len, const char *value,
		  size_t value_len);
/* NULL: there is none. */
const char *h2_fields_get(const struct h2_fields *f, const char *name);
/* Pointers to all; room is HTTP1_FIELDS. */
size_t h2_fields_list(const struct h2_fields *f, struct http1_field *ret);
void h2_fields_done(struct h2_fields *f);

/* nva gets one entry; texts are copied by nghttp2 when they are submitted. */
void h2_nv(nghttp2_nv *nv, const char *name, const char *value, bool is_secret);
