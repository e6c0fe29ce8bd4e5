/*
 * The Connect protocol as far as envd clients speak it: JSON only, never compressed. A unary call is
 * a bare JSON message both ways; a stream is a row of envelopes (one byte of flags, four of length,
 * big-endian, then JSON) whose last one carries the flag CONNECT_END and either {} or an error.
 *
 *   struct connect_envelope v;
 *   switch (connect_next(&in, MAX, &v, &e)) ...   1: one is there; 0: more bytes needed; -1: not ours
 *   ... use v.data, v.len; then buf_drop(&in, v.size)
 *
 *   connect_put(&out, 0, text, len); ... connect_put_end(&out, CONNECT_OK, NULL);
 */
#pragma once

#include "base/base.h"

#include <jansson.h>

#define CONNECT_HEADER 5
#define CONNECT_COMPRESSED 1
#define CONNECT_END 2

enum connect_code {
	CONNECT_OK,
	CONNECT_CANCELED,
	CONNECT_UNKNOWN,
	CONNECT_INVALID_ARGUMENT,
	CONNECT_DEADLINE_EXCEEDED,
	CONNECT_NOT_FOUND,
	CONNECT_ALREADY_EXISTS,
	CONNECT_PERMISSION_DENIED,
	CONNECT_RESOURCE_EXHAUSTED,
	CONNECT_FAILED_PRECONDITION,
	CONNECT_ABORTED,
	CONNECT_OUT_OF_RANGE,
	CONNECT_UNIMPLEMENTED,
	CONNECT_INTERNAL,
	CONNECT_UNAVAILABLE,
	CONNECT_DATA_LOSS,
	CONNECT_UNAUTHENTICATED,
	CONNECT_CODE_COUNT,
};

/* "not_found"; and the HTTP status of a unary answer with it. */
const char *connect_code_name(enum connect_code code);
int connect_code_status(enum connect_code code);
enum connect_code connect_code_of(const struct err *e);

struct connect_envelope {
	uint8_t flags;
	const char *data; /* within the buffer it was read from */
	size_t len;
	size_t size; /* header and data */
};

/* Looks at the envelope at the front of what has arrived; the buffer stays as it is. */
int connect_next(const struct buf *in, size_t max, struct connect_envelope *ret, struct err *e);
/* Parses a body that must be exactly one envelope with one JSON object. NULL: e says why not. */
json_t *connect_only(const struct buf *body, size_t max, struct err *e);
/* Parses one JSON object; "" is {} as in proto3 JSON over Connect. NULL: e says why not. */
json_t *connect_message(const char *text, size_t len, struct err *e);

void connect_put(struct buf *out, uint8_t flags, const char *text, size_t len);
/* Adds the message and frees it. */
void connect_put_json(struct buf *out, json_t *message);
/* The last envelope: CONNECT_OK, or an error. */
void connect_put_end(struct buf *out, enum connect_code code, const char *message);
/* {"code":...,"message":...}: of a unary error, and inside the last envelope. */
json_t *connect_error(enum connect_code code, const char *message);

/* "connect-timeout-ms": at most ten digits; NULL and "" are 0, which is none. */
int connect_timeout(const char *text, uint64_t *ret_ms, struct err *e);
/* Bytes in proto3 JSON: base64 of either alphabet, padded or not. -1: not that. Appends to out. */
int connect_bytes(const char *text, size_t len, struct buf *out);
/* A new JSON string holding these bytes in base64. */
json_t *connect_from_bytes(const void *bytes, size_t len);
