/* Responses of a daemon, fed whole and byte by byte: both must see the same. */
#include "fuzz.h"

#include "base/buf.h"
#include "wire/http1.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct http1_answer whole, slow;
	struct buf a = {0}, b = {0};
	int rc, slow_rc = 0;

	whole = slow = (struct http1_answer){0};
	rc = http1_answer_feed(&whole, (const char *)data, size, &a);
	for (size_t i = 0; i < size && slow_rc >= 0; i++)
		slow_rc = http1_answer_feed(&slow, (const char *)data + i, 1, &b);
	PROMISE(rc == slow_rc);
	if (rc >= 0) {
		PROMISE(whole.has_head == slow.has_head && whole.body.kind == slow.body.kind);
		PROMISE(!whole.has_head || whole.head.status == slow.head.status);
		PROMISE(a.len == b.len && (!a.len || !memcmp(buf_head(&a), buf_head(&b), a.len)));
		PROMISE(http1_answer_end(&whole) == http1_answer_end(&slow));
	}
	http1_answer_done(&whole);
	http1_answer_done(&slow);
	buf_done(&a);
	buf_done(&b);
	return 0;
}
