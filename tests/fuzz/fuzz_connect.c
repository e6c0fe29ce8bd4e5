/* Connect envelopes: whatever arrives, nothing past its end is read and what is taken is whole. */
#include "fuzz.h"

#include "wire/connect.h"

#include <string.h>

#define MAX 4096

static void rows(struct buf *in)
{
	struct connect_envelope v;
	struct err e = {0};
	int got;

	while ((got = connect_next(in, MAX, &v, &e)) > 0) {
		json_t *message = connect_message(v.data, v.len, &e);

		PROMISE(v.len <= MAX && v.size == v.len + CONNECT_HEADER && v.size <= in->len);
		PROMISE((v.flags & ~CONNECT_END) == 0);
		PROMISE(!message || json_is_object(message));
		json_decref(message);
		buf_drop(in, v.size);
	}
	PROMISE(got == 0 || e.kind == ERR_INVALID || e.kind == ERR_LIMIT);
}

static void base64(const char *text, size_t len)
{
	struct buf out = {0}, again = {0};
	json_t *back;

	if (connect_bytes(text, len, &out) == 0) {
		back = connect_from_bytes(out.len ? buf_head(&out) : "", out.len);
		PROMISE(connect_bytes(json_string_value(back), json_string_length(back), &again) ==
			0);
		PROMISE(again.len == out.len);
		PROMISE(out.len == 0 || memcmp(buf_head(&out), buf_head(&again), out.len) == 0);
		json_decref(back);
	} else {
		PROMISE(out.len == 0);
	}
	buf_done(&out);
	buf_done(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf in = {0};
	struct err e = {0};
	json_t *only;

	if (size > (64u << 10))
		return 0;
	buf_add(&in, data, size);
	only = connect_only(&in, MAX, &e);
	PROMISE(!only == (e.kind != ERR_NONE));
	json_decref(only);
	rows(&in);
	buf_done(&in);
	base64((const char *)data, size);
	return 0;
}
