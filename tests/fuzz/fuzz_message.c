/* Messages between agents as JSON, and the bytes that are signed: whatever is read is written and read again the same. */
#include "fuzz.h"

#include "agent/mail.h"
#include "base/auto.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *o = json_loadb((const char *)data, size, 0, NULL), *again;
	struct agent_message m, n;
	auto_buf struct buf a = {0}, b = {0};
	const json_t *content;
	struct err e = {0};

	if (!o || message_from_json(o, &m, &e) < 0) {
		PROMISE(!o || (e.kind == ERR_INVALID && e.msg[0]));
		json_decref(o);
		return 0;
	}
	PROMISE(agent_message_is_sane(&m));
	content = json_object_get(o, "content");
	PROMISE(m.size == json_string_length(content));
	again = message_to_json(1, &m, json_string_value(content));
	PROMISE(again && message_from_json(again, &n, &e) == 0);
	agent_message_encode(&m, &a);
	agent_message_encode(&n, &b);
	PROMISE(a.len == b.len && memcmp(buf_head(&a), buf_head(&b), a.len) == 0);
	/* One letter more in any text, and the bytes are others: no two messages have the same. */
	n.id[0] ^= 1;
	agent_message_encode(&n, &b);
	PROMISE(memcmp(buf_head(&a), buf_head(&b) + a.len, a.len) != 0);
	json_decref(again);
	json_decref(o);
	return 0;
}
