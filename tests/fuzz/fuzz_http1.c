/* Any bytes as the answer of a program inside a sandbox, in pieces of any size. */
#include "fuzz.h"

#include "wire/http1.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t step = size ? data[0] % 7 + 1 : 1, at, head;
	static struct http1_head h;
	struct http1_body b;
	struct buf out = {0};
	struct err e = {0};
	char *bytes;

	head = http1_head_length((const char *)data, size);
	if (!head)
		return 0;
	PROMISE(head <= size);
	bytes = malloc(head);
	memcpy(bytes, data, head);
	if (http1_head_read(bytes, head, &h, &e) < 0) {
		PROMISE(e.kind != ERR_NONE);
		free(bytes);
		return 0;
	}
	PROMISE(h.status >= 100 && h.status <= 599);
	for (size_t i = 0; i < h.count; i++) {
		PROMISE(!strpbrk(h.fields[i].name, ": \r\n"));
		PROMISE(!strpbrk(h.fields[i].value, "\r\n"));
	}
	http1_body_begin(&b, &h, false);
	for (at = head; at < size && !b.done; at += step) {
		size_t n = size - at < step ? size - at : step;

		if (http1_body_feed(&b, (const char *)data + at, n, &out) < 0)
			break;
	}
	PROMISE(out.len <= size);
	if (b.done && b.kind == HTTP1_LENGTH)
		PROMISE(out.len == (size_t)h.length);
	buf_done(&out);
	free(bytes);
	return 0;
}
