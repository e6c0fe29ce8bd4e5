/* JSON-RPC messages of clients. */
#include "fuzz.h"

#include "base/auto.h"
#include "wire/jsonrpc.h"

#include <string.h>

/* What we answer is a message again, on one line, with the id that it answers. */
static void check_answer(json_t *answer, const json_t *id)
{
	struct jsonrpc_fault f;
	struct jsonrpc m;
	size_t len;
	auto_free char *text = jsonrpc_print(answer, &len);

	PROMISE(!memchr(text, '\n', len));
	PROMISE(jsonrpc_parse(text, len, &m, &f) == 0);
	PROMISE(m.kind == JSONRPC_ANSWER);
	PROMISE(id ? m.id && json_equal(m.id, id) : !m.id);
	jsonrpc_done(&m);
	json_decref(answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct jsonrpc_fault f;
	struct jsonrpc m;

	if (jsonrpc_parse((const char *)data, size, &m, &f) < 0) {
		PROMISE(f.code < 0 && f.text[0]);
		check_answer(jsonrpc_error(f.id, f.code, f.text, NULL), f.id);
		json_decref(f.id);
		return 0;
	}
	PROMISE((m.kind == JSONRPC_ANSWER) == !m.method);
	PROMISE(m.kind != JSONRPC_REQUEST || m.id);
	PROMISE(m.kind != JSONRPC_NOTIFICATION || !m.id);
	PROMISE(!m.params || json_is_object(m.params));
	if (m.kind == JSONRPC_REQUEST)
		check_answer(jsonrpc_result(m.id, json_object()), m.id);
	jsonrpc_done(&m);
	return 0;
}
