/*
 * Resources: what a client's user may look at. cloche://sandboxes/ID, .../files/PATH and
 * .../processes/N/log. Only sandboxes of the same client are there.
 */
#include "api/mcp_inside.h"

#include "base/auto.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct listing {
	const struct mcp_session *s;
	json_t *list;
};

static bool list_one(void *arg, struct sandbox *box)
{
	struct listing *l = arg;
	auto_free char *uri = NULL, *name = NULL;

	if (!mcp_session_owns(l->s, box))
		return true;
	uri = str_format(MCP_URI "%s", sandbox_id(box));
	name = str_format("sandbox %s", sandbox_id(box));
	json_array_append_new(l->list, json_pack("{s:s, s:s, s:s, s:s}", "uri", uri, "name", name,
						 "description", "Its state, limits and layers",
						 "mimeType", "application/json"));
	return true;
}

void mcp_resources_list(struct mcp_call *c)
{
	struct listing l = {.s = c->session};

	if (json_object_get(c->params, "cursor")) {
		mcp_call_fault(c, JSONRPC_PARAMS, "unknown cursor", NULL);
		return;
	}
	l.list = json_array();
	manager_each(c->session->state->api->manager, &c->session->caller, list_one, &l);
	if (&mcp_extra)
		mcp_extra.add_resources(l.list);
	mcp_call_result(c, json_pack("{s:o}", "resources", l.list));
}

void mcp_resource_missing(struct mcp_call *c, const char *uri)
{
	mcp_call_fault(c, c->era == MCP_MODERN ? JSONRPC_PARAMS : MCP_NO_RESOURCE,
		       "Resource not found", json_pack("{s:s}", "uri", uri));
}

static const char *uri_of(const struct mcp_call *c)
{
	const char *uri = json_string_value(json_object_get(c->params, "uri"));

	return uri ? uri : "";
}

/* The sandbox's id, or "", and what stands behind it: "" or "/...". */
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

static int hex_digit(char c)
{
	static const char digits[] = "0123456789abcdef";
	const char *p = c ? strchr(digits, c >= 'A' && c <= 'F' ? c + 32 : c) : NULL;

	return p ? (int)(p - digits) : -1;
}

/* %41 -> A, in place. False: broken, or a zero byte. */
static bool decode(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (*s == '%') {
			int high = hex_digit(s[1]), low = high < 0 ? -1 : hex_digit(s[2]);

			if (low < 0 || high * 16 + low == 0)
				return false;
			*to++ = (char)(high * 16 + low);
			s += 2;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
	return true;
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
	else if (str_starts(rest, "/files/") && decode(rest))
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
	struct err e = {0};
	char id[IPC_ID];
	struct sandbox *box;

	if (extra) {
		mcp_call_result(c, extra);
		return;
	}
	split_uri(uri, id, sizeof(id));
	if (str_equal(id, "default"))
		memcpy(id, c->session->sandbox, sizeof(id));
	box = id[0] ? manager_find(c->session->state->api->manager, &c->session->caller, id, &e)
		    : NULL;
	if (!box || !mcp_session_owns(c->session, box)) {
		mcp_resource_missing(c, uri);
		return;
	}
	if ((c->session->caller.scopes & SCOPE_FILES) != SCOPE_FILES) {
		mcp_call_fault(c, JSONRPC_PARAMS, "the token of this client may not read files",
			       NULL);
		return;
	}
	c->run = read_inside;
	mcp_call_with_sandbox(c, id);
}
