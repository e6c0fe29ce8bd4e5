/*
 * JSON-RPC 2.0, as MCP uses it: one message is one JSON object.
 *
 *   struct jsonrpc m;
 *   struct jsonrpc_fault f;
 *   if (jsonrpc_parse(bytes, len, &m, &f) < 0)
 *           send(jsonrpc_error(NULL, f.code, f.text, NULL));
 *   ... m.kind, m.id, m.method, m.params
 *   jsonrpc_done(&m);
 *
 * An id is a string or a whole number, and 0 is one like any other; it goes back as it came. Arrays
 * (batches) are refused: MCP has none since 2025-06-18.
 */
#pragma once

#include "base/base.h"

#include <jansson.h>

enum jsonrpc_code {
	JSONRPC_PARSE = -32700,
	JSONRPC_INVALID = -32600,
	JSONRPC_NO_METHOD = -32601,
	JSONRPC_PARAMS = -32602,
	JSONRPC_INTERNAL = -32603,
};

enum jsonrpc_kind {
	JSONRPC_REQUEST,
	JSONRPC_NOTIFICATION,
	JSONRPC_ANSWER, /* to a request of ours: result or error */
};

#define JSONRPC_ID_MAX 512     /* bytes of a string id */
#define JSONRPC_METHOD_MAX 128 /* bytes */

struct jsonrpc {
	enum jsonrpc_kind kind;
	json_t *root;	    /* owned; the rest is borrowed from it */
	json_t *id;	    /* NULL: a notification */
	const char *method; /* NULL: an answer */
	json_t *params;	    /* an object, or NULL if there are none */
	json_t *result, *error;
};

struct jsonrpc_fault {
	int code;
	char text[160];
	json_t *id; /* owned: of the request at fault, where it could be told; else NULL */
};

/* -1: f says why. Nothing is to be freed then but f->id. */
int jsonrpc_parse(const char *bytes, size_t len, struct jsonrpc *ret, struct jsonrpc_fault *f);
/* The same of a value, which it takes over; NULL: the bytes were no JSON. */
int jsonrpc_take(json_t *root, struct jsonrpc *ret, struct jsonrpc_fault *f);
void jsonrpc_done(struct jsonrpc *m);

/* Messages of ours, for the caller to free. id is copied (NULL: null); the rest is taken over. */
json_t *jsonrpc_result(const json_t *id, json_t *result);
json_t *jsonrpc_error(const json_t *id, int code, const char *text, json_t *data);
json_t *jsonrpc_notification(const char *method, json_t *params);
json_t *jsonrpc_request(json_int_t id, const char *method, json_t *params);
/* On one line, without a newline; malloc'ed. */
char *jsonrpc_print(const json_t *message, size_t *ret_len);
