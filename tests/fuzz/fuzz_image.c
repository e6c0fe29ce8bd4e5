/*
 * What images bring along. The first byte picks a reader: names, records, tars of layers, and JSON of each kind,
 * whose output is read back as the caller of the parser would.
 */
#include "fuzz.h"

#include "image/image.h"
#include "image/worker/worker.h"
#include "wire/tar.h"

#include <string.h>

static void name(const uint8_t *data, size_t size)
{
	auto_free char *text = must_alloc(strndup((const char *)data, size));
	struct image_reference r, again;
	struct err e = {0};

	if (image_reference_parse(text, &r, &e) < 0)
		return;
	/* The short form means the same, and nothing in it leads out of a path. */
	PROMISE(image_reference_parse(r.name, &again, &e) == 0);
	PROMISE(str_equal(r.name, again.name) && str_equal(r.registry, again.registry));
	PROMISE(str_equal(r.repository, again.repository));
	PROMISE(!strstr(r.repository, "..") && r.repository[0] != '/');
	PROMISE(r.tag[0] || r.digest[0]);
	PROMISE(str_is_printable(r.name) && !strpbrk(r.name, " \"\\\n"));
}

static void record(const uint8_t *data, size_t size)
{
	struct image_record r, again;
	auto_buf struct buf text = {0};
	struct err e = {0};

	if (image_record_parse((const char *)data, size, &r, &e) < 0)
		return;
	for (size_t i = 0; i < r.layers.count; i++)
		PROMISE(image_is_hex(r.layers.items[i]));
	image_record_format(&r, &text);
	if (text.len <= IMAGE_RECORD_MAX) {
		PROMISE(image_record_parse(buf_head(&text), text.len, &again, &e) == 0);
		PROMISE(again.env.count == r.env.count && again.size == r.size);
		image_record_done(&again);
	}
	image_record_done(&r);
}

struct bytes {
	const uint8_t *at, *end;
};

static ssize_t read_bytes(void *arg, void *to, size_t len)
{
	struct bytes *b = arg;

	if (len > (size_t)(b->end - b->at))
		len = (size_t)(b->end - b->at);
	memcpy(to, b->at, len);
	b->at += len;
	return (ssize_t)len;
}

static void tar(const uint8_t *data, size_t size)
{
	struct bytes b = {data, data + size};
	struct tar_in in = {.read = read_bytes, .arg = &b};
	struct tar_layer layer = {.max_entries = 50, .max_bytes = 1 << 20, .max_depth = 10};
	struct tar_extract x = {.root = -1, .dry = true, .layer = &layer};
	struct err e = {0};

	(void)tar_extract(&x, &in, &e);
	PROMISE(x.entries <= 50 && layer.bytes <= 1 << 20);
}

static void json(const uint8_t *data, size_t size)
{
	static const char *const kinds[] = {"manifest", "docker",  "config", "build",
					    "show",	"history", "passwd", "group"};
	char *says = NULL;
	size_t len = 0;
	struct image_record r;
	struct err e = {0};
	const char *kind;
	FILE *to;

	if (size == 0)
		return;
	kind = kinds[data[0] % ARRAY_LEN(kinds)];
	to = must_alloc(open_memstream(&says, &len));
	if (worker_parse_text(kind, "amd64", (const char *)data + 1, size - 1, to) == 0) {
		fclose(to);
		/* What is for a terminal has no control characters. */
		if (str_equal(kind, "show") || str_equal(kind, "history"))
			for (size_t i = 0; i < len; i++)
				PROMISE(says[i] == '\n' ||
					((unsigned char)says[i] >= ' ' && says[i] != 127));
		else
			PROMISE(len == 0 || says[len - 1] == '\0');
		if (str_equal(kind, "config") && image_record_parse(says, len, &r, &e) == 0)
			image_record_done(&r);
	} else {
		fclose(to);
	}
	free(says);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const readers[])(const uint8_t *, size_t) = {name, record, tar, json};

	if (size > 0)
		readers[data[0] % ARRAY_LEN(readers)](data + 1, size - 1);
	return 0;
}
