/*
 * /mcp over HTTP: which era, which session, which status. The order of the checks is part of the
 * protocol: clients tell from the first refusal what to try next.
 */
#include "api/mcp/mcp_internal.h"

#include "auth/gate.h"
#include "base/base64.h"
#include "policy/config.h"

#include <stdarg.h>
#include <strings.h>

void mcp_reply(struct exchange *x, int status, json_t *message)
{
	size_t len;
	char *text = jsonrpc_print(message, &len);

	json_decref(message);
	exchange_reply_take(x, status, "application/json", text, len);
}

static void reply_fault(struct exchange *x, const json_t *id, struct mcp_fault *f)
{
	mcp_reply(x, f->status, jsonrpc_error(id, f->code, f->text, f->data));
	f->data = NULL;
}

/* id NULL: the message had none, or could not be read. */
__attribute__((format(printf, 5, 6))) static void refuse(struct exchange *x, const json_t *id,
							 int status, int code, const char *fmt, ...)
{
	char text[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	mcp_reply(x, status, jsonrpc_error(id, code, text, NULL));
}

/* Refusals of the HTTP server: a missing or wrong token, too large, too many. */
static void door_error(struct exchange *x, int status, const struct err *e)
{
	if (status == 401)
		exchange_set_header(x, "WWW-Authenticate", "Bearer error=\"invalid_token\"");
	refuse(x, NULL, status, status == 500 ? JSONRPC_INTERNAL : MCP_NO_SESSION_HEADER, "%s",
	       e->msg);
}

/* ---- modern ---- */

static const char *trimmed(const char *value, char *room, size_t size)
{
	size_t len;

	while (*value == ' ' || *value == '\t')
		value++;
	len = strlen(value);
	while (len && (value[len - 1] == ' ' || value[len - 1] == '\t'))
		len--;
	if (len >= size)
		return NULL;
	memcpy(room, value, len);
	room[len] = '\0';
	return room;
}

/* A header's value may be wrapped: =?base64?...?= */
static bool header_is(const char *value, const char *expected)
{
	char room[4096];
	const char *v = trimmed(value, room, sizeof(room));
	size_t len = v ? strlen(v) : 0, size;
	auto_free char *plain = NULL;

	if (!v)
		return false;
	if (len < 12 || strncasecmp(v, "=?base64?", 9) != 0 || !str_equal(v + len - 2, "?="))
		return str_equal(v, expected);
	plain = must_alloc(malloc(len));
	if (base64_decode(plain, v + 9, len - 11, &size) < 0)
		return false;
	return size == strlen(expected) && memcmp(plain, expected, size) == 0;
}

/* The member of params that the Mcp-Name header repeats. */
static const char *named_member(const char *method)
{
	if (str_equal(method, "tools/call") || str_equal(method, "prompts/get"))
		return "name";
	return str_equal(method, "resources/read") ? "uri" : NULL;
}

static int check_version(const char *header, const char *version, struct mcp_fault *f)
{
	if (header && !str_equal(header, version))
		return mcp_fault_set(f, 400, MCP_HEADER_MISMATCH,
				     "MCP-Protocol-Version differs from the version in _meta");
	if (!str_equal(version, MCP_MODERN_VERSION)) {
		f->data = json_pack("{s:[s], s:s}", "supported", MCP_MODERN_VERSION, "requested",
				    version);
		return mcp_fault_set(f, 400, MCP_BAD_VERSION, "Unsupported protocol version");
	}
	if (!header)
		return mcp_fault_set(f, 400, MCP_HEADER_MISMATCH,
				     "the header MCP-Protocol-Version is missing");
	return 0;
}

static int check_modern(const struct exchange *x, const struct jsonrpc *m, struct mcp_fault *f)
{
	const char *header = exchange_header(x, "MCP-Protocol-Version");
	const char *method = exchange_header(x, "Mcp-Method");
	const char *name = exchange_header(x, "Mcp-Name");
	const json_t *meta = json_object_get(m->params, "_meta");
	const char *member = named_member(m->method);
	const char *value = member ? json_string_value(json_object_get(m->params, member)) : NULL;

	if (mcp_check_envelope(m, f) < 0)
		return -1;
	if (check_version(header, body_text(meta, MCP_META "protocolVersion"), f) < 0)
		return -1;
	if (!method || !header_is(method, m->method))
		return mcp_fault_set(
			f, 400, MCP_HEADER_MISMATCH,
			"the header Mcp-Method is missing, or differs from the method");
	if (member && (!name || !value || !header_is(name, value)))
		return mcp_fault_set(f, 400, MCP_HEADER_MISMATCH,
				     "the header Mcp-Name is missing, or differs from params.%s",
				     member);
	return 0;
}

/* ---- requests ---- */

static void answer_request(struct exchange *x, struct mcp_session *s, const struct jsonrpc *m,
			   enum mcp_era era)
{
	const struct mcp_method *method = mcp_method_find(m->method, era);
	struct mcp_fault f = {0};
	json_t *result;

	if (!method) {
		refuse(x, m->id, era == MCP_MODERN ? 404 : 200, JSONRPC_NO_METHOD,
		       "Method not found: %.64s", m->method);
		return;
	}
	if (!method->answer) {
		method->start(mcp_call_new(s, x, m, era, method));
		return;
	}
	result = method->answer(m, &f);
	if (!result) {
		reply_fault(x, m->id, &f);
		return;
	}
	if (s && str_equal(m->method, "logging/setLevel"))
		s->level = mcp_level_find(body_text(m->params, "level"));
	mcp_reply(x, 200, jsonrpc_result(m->id, mcp_finish(era, method, result)));
}

/* Modern clients have no session, but `cloche mcp` has one, whatever version its client speaks. */
static struct mcp_session *session_of_modern(struct exchange *x, const struct jsonrpc *m)
{
	const json_t *meta = json_object_get(m->params, "_meta");
	const json_t *info = json_object_get(meta, MCP_META "clientInfo");
	const char *name = body_text(info, "name");
	const char *id = exchange_header(x, "Mcp-Session-Id");
	struct mcp_session *s;
	struct err e = {0};

	if (id) {
		s = mcp_session_find(mcp_state(x->api), &x->caller, id);
		if (!s)
			refuse(x, m->id, 404, MCP_NO_SESSION, "Session not found");
		return s;
	}
	s = mcp_session_implicit(mcp_state(x->api), &x->caller, name ? name : "", &e);
	if (!s)
		refuse(x, m->id, 429, JSONRPC_INTERNAL, "%.200s", e.msg);
	return s;
}

static void post_modern(struct exchange *x, const struct jsonrpc *m)
{
	struct mcp_fault f = {0};
	struct mcp_session *s;

	if (m->kind != JSONRPC_REQUEST) {
		exchange_reply(x, 202, NULL, "", 0);
		return;
	}
	if (check_modern(x, m, &f) < 0)
		reply_fault(x, m->id, &f);
	else if ((s = session_of_modern(x, m)))
		answer_request(x, s, m, MCP_MODERN);
}

/* ---- legacy ---- */

/* NULL: it was refused. */
static struct mcp_session *session_of(struct exchange *x, const json_t *request_id)
{
	const char *id = exchange_header(x, "Mcp-Session-Id");
	const char *version = exchange_header(x, "MCP-Protocol-Version");
	struct mcp_session *s = NULL;

	if (!id)
		refuse(x, request_id, 400, MCP_NO_SESSION_HEADER,
		       "Bad Request: the header Mcp-Session-Id is missing");
	else if (!(s = mcp_session_find(mcp_state(x->api), &x->caller, id)))
		refuse(x, request_id, 404, MCP_NO_SESSION, "Session not found");
	else if (!version || mcp_is_legacy_version(version))
		return s;
	else
		refuse(x, request_id, 400, MCP_NO_SESSION_HEADER,
		       "Bad Request: Unsupported protocol version: %.32s", version);
	return NULL;
}

static void open_session(struct exchange *x, const struct jsonrpc *m)
{
	const json_t *meta = json_object_get(m->params, "_meta");
	json_t *options = json_object_get(meta, MCP_OPTIONS_KEY);
	struct mcp_session *s;
	struct err e = {0};

	if (!json_is_string(json_object_get(m->params, "protocolVersion"))) {
		answer_request(x, NULL, m, MCP_LEGACY);
		return;
	}
	s = mcp_session_open(mcp_state(x->api), &x->caller,
			     options ? json_deep_copy(options) : NULL, &e);
	if (!s) {
		refuse(x, m->id, exchange_status_of(&e), JSONRPC_PARAMS, "%.200s", e.msg);
		return;
	}
	exchange_set_header(x, "Mcp-Session-Id", s->id);
	answer_request(x, s, m, MCP_LEGACY);
}

static void take_notification(struct mcp_session *s, const struct jsonrpc *m)
{
	const json_t *id = json_object_get(m->params, "requestId");

	if (!str_equal(m->method, "notifications/cancelled") || !id)
		return;
	for (struct mcp_call *c = s->calls; c; c = c->next)
		if (json_equal(c->id, id)) {
			mcp_call_cancel(c);
			return;
		}
}

/* An answer of the client to a question of ours. */
static void take_answer(struct mcp_session *s, const struct jsonrpc *m)
{
	for (struct mcp_call *c = s->calls; c; c = c->next)
		if (c->asking && json_integer_value(m->id) == c->asking) {
			c->asking = 0;
			c->on_reply(c, m->result);
			return;
		}
}

static void post_legacy(struct exchange *x, const struct jsonrpc *m)
{
	struct mcp_session *s;

	if (m->kind == JSONRPC_REQUEST && str_equal(m->method, "initialize")) {
		open_session(x, m);
		return;
	}
	/* A modern client that forgot its envelope must not conclude that it lost a session. */
	if (m->kind == JSONRPC_REQUEST && str_equal(m->method, "server/discover")) {
		refuse(x, m->id, 404, JSONRPC_NO_METHOD,
		       "Method not found: server/discover without an envelope in _meta");
		return;
	}
	s = session_of(x, m->id);
	if (!s)
		return;
	if (m->kind == JSONRPC_REQUEST) {
		answer_request(x, s, m, MCP_LEGACY);
		return;
	}
	if (m->kind == JSONRPC_NOTIFICATION)
		take_notification(s, m);
	else
		take_answer(s, m);
	exchange_reply(x, 202, NULL, "", 0);
}

/* ---- methods of HTTP ---- */

static bool is_json(const char *type)
{
	static const char json[] = "application/json";
	size_t len = sizeof(json) - 1;

	return type && strncasecmp(type, json, len) == 0 &&
	       (type[len] == '\0' || type[len] == ';' || type[len] == ' ');
}

static bool is_modern(const struct exchange *x, const struct jsonrpc *m)
{
	const char *version = exchange_header(x, "MCP-Protocol-Version");

	if (version && strcmp(version, MCP_MODERN_VERSION) >= 0)
		return true;
	return m->kind == JSONRPC_REQUEST && mcp_era_of(m) == MCP_MODERN;
}

static void post_message(struct exchange *x)
{
	struct jsonrpc_fault f;
	struct jsonrpc m;

	if (!exchange_accepts(x, "application/json") || !exchange_accepts(x, "text/event-stream")) {
		refuse(x, NULL, 406, MCP_NO_SESSION_HEADER,
		       "Not Acceptable: Client must accept both application/json and "
		       "text/event-stream");
		return;
	}
	if (!is_json(exchange_header(x, "Content-Type"))) {
		refuse(x, NULL, 415, MCP_NO_SESSION_HEADER,
		       "Unsupported Media Type: Content-Type must be application/json");
		return;
	}
	if (jsonrpc_take(json_incref(x->json), &m, &f) < 0) {
		mcp_reply(x, 400, jsonrpc_error(f.id, f.code, f.text, NULL));
		json_decref(f.id);
		return;
	}
	if (is_modern(x, &m))
		post_modern(x, &m);
	else
		post_legacy(x, &m);
	jsonrpc_done(&m);
}

void mcp_stream_close(struct mcp_session *s)
{
	struct exchange *x = s->stream;

	if (!x)
		return;
	s->stream = NULL;
	sse_close(&s->sse);
	exchange_finish(x);
}

static void on_stream_gone(void *arg)
{
	struct mcp_session *s = arg;

	mcp_stream_close(s);
	mcp_session_settle(s);
}

/* The standalone stream: we send nothing on it, but clients expect to be able to open it. */
static void open_stream(struct exchange *x)
{
	struct mcp_session *s;

	if (!exchange_accepts(x, "text/event-stream")) {
		refuse(x, NULL, 406, MCP_NO_SESSION_HEADER,
		       "Not Acceptable: Client must accept text/event-stream");
		return;
	}
	s = session_of(x, NULL);
	if (!s)
		return;
	if (s->stream) {
		refuse(x, NULL, 409, MCP_NO_SESSION_HEADER,
		       "Conflict: Only one SSE stream is allowed per session");
		return;
	}
	s->stream = x;
	exchange_set_header(x, "Mcp-Session-Id", s->id);
	exchange_set_endless(x);
	sse_open(&s->sse, x);
	exchange_write(x, ": open\n\n", 8);
	exchange_on_gone(x, on_stream_gone, s);
}

static void delete_session(struct exchange *x)
{
	struct mcp_session *s = session_of(x, NULL);

	if (!s)
		return;
	mcp_session_end(s);
	exchange_reply(x, 200, NULL, "", 0);
}

/* Also checked on a Unix socket: browsers may reach it through a proxy. */
static bool is_from_elsewhere(const struct exchange *x)
{
	const struct config *c = x->api->config;
	const struct gate g = {c->hosts, c->host_count, c->origins, c->origin_count};
	const char *host = exchange_header(x, "Host"), *origin = exchange_header(x, "Origin");

	return !gate_host_is_fine(&g, host) || (origin && !gate_origin_is_fine(&g, origin, host));
}

static void handle_mcp(struct exchange *x)
{
	if (is_from_elsewhere(x)) {
		refuse(x, NULL, 403, MCP_NO_SESSION_HEADER,
		       "Forbidden: Host or Origin is none of this server's");
		return;
	}
	if (str_equal(x->method, "POST")) {
		post_message(x);
	} else if (str_equal(x->method, "GET")) {
		open_stream(x);
	} else if (str_equal(x->method, "DELETE")) {
		delete_session(x);
	} else {
		exchange_set_header(x, "Allow", "GET, POST, DELETE");
		refuse(x, NULL, 405, MCP_NO_SESSION_HEADER, "Method not allowed.");
	}
}

static const struct route routes[] = {
	{"POST", "/mcp", handle_mcp, 0, BODY_RPC, ROUTE_ANY_METHOD,
	 "Model Context Protocol, streamable HTTP", NULL},
};

const struct door mcp_door = {
	.id = DOOR_MCP,
	.name = "mcp",
	.routes = routes,
	.route_count = ARRAY_LEN(routes),
	.error = door_error,
};
