/*
 * multipart/form-data: the first byte says in which steps the rest arrives; what comes out must not
 * depend on it.
 */
#include "fuzz.h"

#include "base/str.h"
#include "wire/multipart.h"

#include <string.h>

static void read_all(const uint8_t *data, size_t size, size_t step, struct buf *out)
{
	struct multipart_event *v = must_alloc(calloc(1, sizeof(*v)));
	struct multipart m;
	struct err e = {0};
	int got = 0;

	PROMISE(multipart_init(&m, "multipart/form-data; boundary=b", &e) == 0);
	for (size_t at = 0; at < size && got >= 0; at += step) {
		multipart_add(&m, data + at, size - at < step ? size - at : step);
		while ((got = multipart_next(&m, v, &e)) > 0 && v->kind != MULTIPART_END) {
			if (v->kind == MULTIPART_DATA) {
				PROMISE(v->len > 0 && v->len <= m.in.len);
				buf_add(out, v->data, v->len);
				multipart_used(&m, v->len);
			} else {
				PROMISE(v->kind != MULTIPART_PART || strlen(v->filename) < 4097);
				buf_add(out, v->kind == MULTIPART_PART ? "\1" : "\2", 1);
			}
		}
		PROMISE(got >= 0 || e.kind == ERR_INVALID);
		PROMISE(m.in.len <= MULTIPART_HEADERS + step + 100);
	}
	multipart_done(&m);
	free(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf whole = {0}, parts = {0};

	if (size < 1 || size > (64u << 10))
		return 0;
	read_all(data + 1, size - 1, size, &whole);
	read_all(data + 1, size - 1, (size_t)data[0] + 1, &parts);
	PROMISE(whole.len == parts.len);
	PROMISE(whole.len == 0 || memcmp(buf_head(&whole), buf_head(&parts), whole.len) == 0);
	buf_done(&whole);
	buf_done(&parts);
	return 0;
}
