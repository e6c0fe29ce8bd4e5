/* Responses of a daemon, fed whole and byte by byte: both must see the same. */
#include "fuzz.h"

#include "base/buf.h"
#include "wire/http_answer.h"

#include <string.h>

static void collect(void *arg, const char *bytes, size_t len)
{
	PROMISE(len > 0);
	buf_add(arg, bytes, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct http_answer whole = {0}, slow = {0};
	struct buf a = {0}, b = {0};
	int rc = http_answer_feed(&whole, (const char *)data, size, collect, &a), slow_rc = 0;

	for (size_t i = 0; i < size && slow_rc == 0; i++)
		slow_rc = http_answer_feed(&slow, (const char *)data + i, 1, collect, &b);
	PROMISE(rc == slow_rc && whole.status == slow.status);
	PROMISE(a.len == b.len && (a.len == 0 || memcmp(buf_head(&a), buf_head(&b), a.len) == 0));
	PROMISE(strcmp(whole.session, slow.session) == 0);
	if (rc == 0)
		http_answer_end(&whole);
	http_answer_done(&whole);
	http_answer_done(&slow);
	buf_done(&a);
	buf_done(&b);
	return 0;
}
