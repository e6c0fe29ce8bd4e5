#include "api/http/text.h"

#include "base/base64.h"

json_t *text_json(const char *bytes, size_t len)
{
	json_t *whole = json_stringn(bytes, len);
	struct buf b = {0};

	if (whole)
		return whole;
	for (size_t i = 0; i < len;) {
		size_t n = utf8_sequence(bytes + i, len - i);

		buf_add(&b, n ? bytes + i : "\xef\xbf\xbd", n ? n : 3);
		i += n ? n : 1;
	}
	whole = must_alloc(json_stringn_nocheck(b.len ? buf_head(&b) : "", b.len));
	buf_done(&b);
	return whole;
}

json_t *text_json_base64(const void *bytes, size_t len)
{
	char *text = must_alloc(malloc(BASE64_ROOM(len) + 1));
	size_t n = base64_encode(text, bytes, len);
	json_t *value = must_alloc(json_stringn_nocheck(text, n));

	free(text);
	return value;
}
