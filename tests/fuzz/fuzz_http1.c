/* Any bytes as a client's request, and as the answer of a program inside a sandbox, in pieces of any size. */
#include "fuzz.h"

#include "wire/http1.h"

#include <string.h>

static void check_fields(const struct http1_head *h)
{
	for (size_t i = 0; i < h->count; i++) {
		PROMISE(!strpbrk(h->fields[i].name, ": \r\n"));
		PROMISE(!strpbrk(h->fields[i].value, "\r\n"));
	}
}

/* A body of a request: what is taken in odd pieces is what http1_body_feed takes at once. */
static void read_body(const struct http1_head *h, const char *bytes, size_t len, size_t step)
{
	struct http1_body b, whole;
	struct buf out = {0}, all = {0};
	size_t at = 0, taken = 0;

	http1_body_begin_request(&b, h);
	http1_body_begin_request(&whole, h);
	while (!b.done && at < len) {
		ssize_t framing = http1_body_framing(&b, bytes + at, len - at);
		size_t content;

		if (framing < 0)
			break;
		at += (size_t)framing;
		content = http1_body_content(&b, len - at < step ? len - at : step);
		PROMISE(content <= len - at);
		buf_add(&out, bytes + at, content);
		http1_body_took(&b, content);
		at += content;
		taken = at;
	}
	PROMISE(taken <= len && at <= len);
	if (b.done) {
		PROMISE(http1_body_feed(&whole, bytes, at, &all) == 0 && whole.done);
		PROMISE(all.len == out.len &&
			(!all.len || !memcmp(buf_head(&all), buf_head(&out), all.len)));
		if (!h->chunked)
			PROMISE(out.len == (h->length > 0 ? (size_t)h->length : 0));
	}
	buf_done(&out);
	buf_done(&all);
}

static void read_request(const uint8_t *data, size_t size)
{
	size_t scanned = 0, step = size ? data[0] % 7 + 1 : 1, at;
	static struct http1_head h;
	struct err e = {0};
	ssize_t head = 0;
	char *bytes;

	for (at = 0; at < size && !head; at += step)
		head = http1_request_length((const char *)data, at + step < size ? at + step : size,
					    &scanned);
	if (head <= 0)
		return;
	PROMISE((size_t)head <= size);
	PROMISE(!memchr(data, 0, (size_t)head));
	bytes = malloc((size_t)head);
	memcpy(bytes, data, (size_t)head);
	if (http1_request_read(bytes, (size_t)head, &h, &e) < 0) {
		PROMISE(e.kind != ERR_NONE);
	} else {
		PROMISE(http1_is_token(h.method) && *h.target && !strpbrk(h.target, " \r\n"));
		PROMISE(!(h.chunked && h.length >= 0));
		check_fields(&h);
		read_body(&h, (const char *)data + head, size - (size_t)head, step);
	}
	free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t step = size ? data[0] % 7 + 1 : 1, at, head;
	static struct http1_head h;
	struct http1_body b;
	struct buf out = {0};
	struct err e = {0};
	char *bytes;

	read_request(data, size);
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
	check_fields(&h);
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
