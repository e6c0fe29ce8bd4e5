/* Envelopes, codes and base64 of the Connect protocol (see connect.h). */
#include "wire/connect.h"

#include "wire/json_feed.h"

#include "base/base64.h"

#include <assert.h>

static const struct {
	const char *name;
	int status;
} codes[] = {
	[CONNECT_OK] = {"ok", 200},
	[CONNECT_CANCELED] = {"canceled", 499},
	[CONNECT_UNKNOWN] = {"unknown", 500},
	[CONNECT_INVALID_ARGUMENT] = {"invalid_argument", 400},
	[CONNECT_DEADLINE_EXCEEDED] = {"deadline_exceeded", 504},
	[CONNECT_NOT_FOUND] = {"not_found", 404},
	[CONNECT_ALREADY_EXISTS] = {"already_exists", 409},
	[CONNECT_PERMISSION_DENIED] = {"permission_denied", 403},
	[CONNECT_RESOURCE_EXHAUSTED] = {"resource_exhausted", 429},
	[CONNECT_FAILED_PRECONDITION] = {"failed_precondition", 400},
	[CONNECT_ABORTED] = {"aborted", 409},
	[CONNECT_OUT_OF_RANGE] = {"out_of_range", 400},
	[CONNECT_UNIMPLEMENTED] = {"unimplemented", 501},
	[CONNECT_INTERNAL] = {"internal", 500},
	[CONNECT_UNAVAILABLE] = {"unavailable", 503},
	[CONNECT_DATA_LOSS] = {"data_loss", 500},
	[CONNECT_UNAUTHENTICATED] = {"unauthenticated", 401},
};
static_assert(ARRAY_LEN(codes) == CONNECT_CODE_COUNT, "a row for each code");

static const enum connect_code of_kind[] = {
	[ERR_NONE] = CONNECT_OK,
	[ERR_INVALID] = CONNECT_INVALID_ARGUMENT,
	[ERR_DENIED] = CONNECT_PERMISSION_DENIED,
	[ERR_NOT_FOUND] = CONNECT_NOT_FOUND,
	[ERR_CONFLICT] = CONNECT_FAILED_PRECONDITION,
	[ERR_LIMIT] = CONNECT_RESOURCE_EXHAUSTED,
	[ERR_UNSUPPORTED] = CONNECT_UNIMPLEMENTED,
	[ERR_SYSTEM] = CONNECT_INTERNAL,
};
static_assert(ARRAY_LEN(of_kind) == ERR_KIND_COUNT, "a code for each kind");

const char *connect_code_name(enum connect_code code)
{
	return codes[code].name;
}

int connect_code_status(enum connect_code code)
{
	return codes[code].status;
}

enum connect_code connect_code_of(const struct err *e)
{
	return (unsigned)e->kind < ERR_KIND_COUNT ? of_kind[e->kind] : CONNECT_INTERNAL;
}

int connect_next(const struct buf *in, size_t max, struct connect_envelope *ret, struct err *e)
{
	const unsigned char *p = in->len ? (const unsigned char *)buf_head(in) : NULL;
	size_t len;

	if (in->len == 0)
		return 0;
	/* Judged by its first byte, so that nobody waits for the rest of a refused envelope. */
	if (p[0] & CONNECT_COMPRESSED)
		return err_set(e, ERR_INVALID,
			       "a compressed envelope, though no compression was agreed on");
	if (p[0] & ~CONNECT_END)
		return err_set(e, ERR_INVALID, "an envelope with unknown flags 0x%02x", p[0]);
	if (in->len < CONNECT_HEADER)
		return 0;
	len = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
	if (len > max)
		return err_set(e, ERR_LIMIT, "a message of %zu bytes, at most %zu", len, max);
	if (in->len - CONNECT_HEADER < len)
		return 0;
	*ret = (struct connect_envelope){.flags = p[0],
					 .data = (const char *)p + CONNECT_HEADER,
					 .len = len,
					 .size = CONNECT_HEADER + len};
	return 1;
}

json_t *connect_message(const char *text, size_t len, struct err *e)
{
	json_t *message;

	if (len == 0)
		return must_alloc(json_object());
	message = json_feed_whole(text, len, false, e);
	if (!message || json_is_object(message))
		return message;
	err_set(e, ERR_INVALID, "the message is not a JSON object");
	json_decref(message);
	return NULL;
}

json_t *connect_only(const struct buf *body, size_t max, struct err *e)
{
	struct connect_envelope v;
	int got = connect_next(body, max, &v, e);

	if (got == 0)
		err_set(e, ERR_INVALID, "the request ends within its envelope");
	else if (got > 0 && v.flags & CONNECT_END)
		err_set(e, ERR_INVALID, "the request has an end of stream but no message");
	else if (got > 0 && body->len != v.size)
		err_set(e, ERR_INVALID, "the request has more than one envelope");
	else if (got > 0)
		return connect_message(v.data, v.len, e);
	return NULL;
}

void connect_put(struct buf *out, uint8_t flags, const char *text, size_t len)
{
	unsigned char head[CONNECT_HEADER] = {flags, (unsigned char)(len >> 24),
					      (unsigned char)(len >> 16), (unsigned char)(len >> 8),
					      (unsigned char)len};

	buf_add(out, head, sizeof(head));
	buf_add(out, text, len);
}

static void put_json(struct buf *out, uint8_t flags, json_t *message)
{
	/* Cannot fail: jansson refuses strings that are not UTF-8 when they are made. */
	auto_free char *text = must_alloc(json_dumps(message, JSON_COMPACT));

	connect_put(out, flags, text, strlen(text));
	json_decref(message);
}

void connect_put_json(struct buf *out, json_t *message)
{
	put_json(out, 0, message);
}

json_t *connect_error(enum connect_code code, const char *message)
{
	char clean[1024];

	str_sanitise(clean, sizeof(clean), message ? message : "", message ? strlen(message) : 0);
	return must_alloc(
		json_pack("{s:s,s:s}", "code", connect_code_name(code), "message", clean));
}

void connect_put_end(struct buf *out, enum connect_code code, const char *message)
{
	json_t *end = code == CONNECT_OK
			      ? json_object()
			      : json_pack("{s:o}", "error", connect_error(code, message));

	put_json(out, CONNECT_END, must_alloc(end));
}

int connect_timeout(const char *text, uint64_t *ret_ms, struct err *e)
{
	if (!text || !*text)
		*ret_ms = 0;
	else if (strlen(text) > 10 || parse_count(text, ret_ms, e) < 0)
		return err_field(e, ERR_INVALID, "connect-timeout-ms",
				 "connect-timeout-ms: not a number of at most ten digits");
	return 0;
}

int connect_bytes(const char *text, size_t len, struct buf *out)
{
	auto_free char *strict = must_alloc(malloc(len + 4));
	size_t pad = 0, size;

	while (pad < 2 && len > 0 && text[len - 1] == '=')
		len--, pad++;
	if (len % 4 == 1 || (pad > 0 && (len + pad) % 4 != 0))
		return -1;
	for (size_t i = 0; i < len; i++)
		strict[i] = text[i] == '-' ? '+' : text[i] == '_' ? '/' : text[i];
	while (len % 4)
		strict[len++] = '=';
	if (base64_decode(buf_reserve(out, len / 4 * 3 + 1), strict, len, &size) < 0)
		return -1;
	buf_added(out, size);
	return 0;
}

json_t *connect_from_bytes(const void *bytes, size_t len)
{
	auto_free char *text = must_alloc(malloc(BASE64_ROOM(len) + 1));
	size_t n = base64_encode(text, bytes, len);

	return must_alloc(json_stringn(text, n));
}
