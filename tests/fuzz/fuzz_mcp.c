/* What an MCP client sends: everything that is answered without a daemon, and every tool's check. */
#include "fuzz.h"

#include "api/mcp/mcp.h"
#include "api/mcp/mcp_internal.h"
#include "base/auto.h"

static void answer(const struct jsonrpc *m, enum mcp_era era)
{
	const struct mcp_method *method = mcp_method_find(m->method, era);
	struct mcp_fault f = {0};
	json_t *result, *message;
	auto_free char *text = NULL;
	size_t len;

	if (!method || !method->answer)
		return;
	result = method->answer(m, &f);
	PROMISE(result || (f.code < 0 && f.text[0]));
	message = result ? jsonrpc_result(m->id, mcp_finish(era, method, result))
			 : jsonrpc_error(m->id, f.code, f.text, f.data);
	text = jsonrpc_print(message, &len);
	json_decref(message);
}

static void check_tools(const json_t *args)
{
	for (size_t i = 0; i < mcp_tool_count; i++) {
		struct err e = {0};

		if (mcp_tool_check(&mcp_tools[i], args, &e) < 0)
			PROMISE(e.msg[0]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct jsonrpc_fault f;
	struct mcp_fault envelope = {0};
	struct jsonrpc m;

	if (jsonrpc_parse((const char *)data, size, &m, &f) < 0) {
		json_decref(f.id);
		return 0;
	}
	if (m.kind == JSONRPC_REQUEST) {
		if (mcp_check_envelope(&m, &envelope) < 0)
			PROMISE(envelope.code < 0);
		answer(&m, MCP_LEGACY);
		answer(&m, MCP_MODERN);
		check_tools(json_object_get(m.params, "arguments"));
	}
	jsonrpc_done(&m);
	return 0;
}
