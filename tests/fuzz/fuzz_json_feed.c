/* Any bytes as JSON in pieces of any size: read as jansson reads them, or refused. */
#include "fuzz.h"

#include "wire/json_feed.h"

#include <string.h>

/* How deep the text is nested; brackets in strings do not count. */
static size_t depth_of(const char *text, size_t len)
{
	size_t depth = 0, most = 0;
	bool quoted = false;

	for (size_t i = 0; i < len; i++) {
		if (quoted && text[i] == '\\')
			i++;
		else if (text[i] == '"')
			quoted = !quoted;
		else if (!quoted && (text[i] == '{' || text[i] == '['))
			depth++;
		else if (!quoted && (text[i] == '}' || text[i] == ']'))
			depth--;
		if (depth > most && depth < len)
			most = depth;
	}
	return most;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t step = size ? data[0] % 5 + 1 : 1, max = size && data[0] % 3 ? JSON_FEED_VALUES : 5;
	bool nul = size && data[0] % 2;
	struct json_feed *f = json_feed_new(max, nul);
	const char *text = (const char *)data;
	struct err e = {0};
	json_t *value = NULL, *other;
	int rc = 0;

	for (size_t at = 0; at < size && rc == 0; at += step)
		rc = json_feed_add(f, text + at, size - at < step ? size - at : step, &e);
	if (rc == 0)
		value = json_feed_end(f, &e);
	PROMISE(value || e.kind != ERR_NONE);
	other = json_loadb(text, size,
			   JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | (nul ? JSON_ALLOW_NUL : 0),
			   NULL);
	if (value)
		PROMISE(other && json_equal(value, other));
	/* Jansson takes a zero byte for the end of the text. */
	if (other && !value && max > 5 && !memchr(text, 0, size))
		PROMISE(depth_of(text, size) > JSON_FEED_DEPTH || size > 400);
	json_decref(value);
	json_decref(other);
	json_feed_free(f);
	return 0;
}
