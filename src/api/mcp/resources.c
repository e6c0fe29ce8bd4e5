/*
 * Resources, for the user of a client: cloche://sandboxes/ID, .../files/PATH and .../processes/N/log. Only
 * sandboxes of the same client are shown.
 */
#include "api/mcp/mcp_internal.h"

#include "wire/http1.h"

void mcp_resources_list(struct mcp_call *c)
{
	struct list ids = {0};
	json_t *all;

	if (json_object_get(c->params, "cursor")) {
		mcp_call_fault(c, JSONRPC_PARAMS, "unknown cursor", NULL);
		return;
	}
	all = json_array();
	mcp_session_ids(c->session, &ids);
	for (size_t i = 0; i < ids.count; i++) {
		auto_free char *uri = str_format(MCP_URI "%s", ids.items[i]);
		auto_free char *name = str_format("sandbox %s", ids.items[i]);

		json_array_append_new(all,
				      json_pack("{s:s, s:s, s:s, s:s}", "uri", uri, "name", name,
						"description", "Its state, limits and layers",
						"mimeType", "application/json"));
	}
	list_done(&ids);
	if (&mcp_extra)
		mcp_extra.add_resources(all);
	mcp_call_result(c, json_pack("{s:o}", "resources", all));
}

void mcp_resource_missing(struct mcp_call *c, const char *uri)
{
	mcp_call_fault(c, c->era == MCP_MODERN ? JSONRPC_PARAMS : MCP_NO_RESOURCE,
		       "Resource not found", json_pack("{s:s}", "uri", uri));
}

static const char *uri_of(const struct mcp_call *c)
{
	const char *uri = body_text(c->params, "uri");

	return uri ? uri : "";
}

/* Splits off the sandbox's id, or ""; returns the rest: "" or "/...". */
static const char *split_uri(const char *uri, char *ret_id, size_t size)
{
	size_t len;

	ret_id[0] = '\0';
	if (!str_starts(uri, MCP_URI))
		return "";
	uri += strlen(MCP_URI);
	len = strcspn(uri, "/");
	if (len < size)
		snprintf(ret_id, size, "%.*s", (int)len, uri);
	return uri + len;
}

static void read_description(struct mcp_call *c)
{
	json_t *about = sandbox_describe(c->box);
	auto_free char *text = must_alloc(json_dumps(about, JSON_COMPACT));

	json_decref(about);
	mcp_call_result(c, json_pack("{s:[{s:s, s:s, s:s}]}", "contents", "uri", uri_of(c),
				     "mimeType", "application/json", "text", text));
}

static void read_inside(struct mcp_call *c)
{
	const char *uri = uri_of(c);
	char id[IPC_ID];
	auto_free char *rest = str_copy(split_uri(uri, id, sizeof(id)));
	unsigned eid;
	int end = 0;

	if (!*rest)
		read_description(c);
	else if (str_starts(rest, "/files/") && http1_unescape(rest, strlen(rest), false, rest))
		mcp_read_as_resource(c, uri, rest + strlen("/files"));
	else if (sscanf(rest, "/processes/%9u/log%n", &eid, &end) == 1 && end && !rest[end])
		mcp_log_as_resource(c, uri, eid);
	else
		mcp_resource_missing(c, uri);
}

void mcp_resources_read(struct mcp_call *c)
{
	const char *uri = uri_of(c);
	json_t *extra = &mcp_extra ? mcp_extra.read_resource(uri) : NULL;
	struct sandbox *box;
	char id[IPC_ID];

	if (extra) {
		mcp_call_result(c, extra);
		return;
	}
	split_uri(uri, id, sizeof(id));
	box = mcp_session_box(c->session, id);
	if (!box) {
		mcp_resource_missing(c, uri);
		return;
	}
	if ((c->session->caller.scopes & SCOPE_FILES) != SCOPE_FILES) {
		mcp_call_fault(c, JSONRPC_PARAMS, "the token of this client may not read files",
			       NULL);
		return;
	}
	c->run = read_inside;
	mcp_call_with_sandbox(c, sandbox_id(box));
}
