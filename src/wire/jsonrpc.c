/* Reads and writes messages of JSON-RPC 2.0. */
#include "wire/jsonrpc.h"

#include "wire/json_feed.h"

static bool is_id(const json_t *id)
{
	if (json_is_string(id))
		return json_string_length(id) <= JSONRPC_ID_MAX;
	return json_is_integer(id);
}

static int invalid(struct jsonrpc_fault *f, const char *why)
{
	f->code = JSONRPC_INVALID;
	snprintf(f->text, sizeof(f->text), "Invalid Request: %s", why);
	return -1;
}

/* A request or a notification. */
static int take_call(struct jsonrpc *m, struct jsonrpc_fault *f)
{
	const json_t *method = json_object_get(m->root, "method");
	json_t *params = json_object_get(m->root, "params");

	if (!json_is_string(method) || json_string_length(method) == 0 ||
	    json_string_length(method) > JSONRPC_METHOD_MAX)
		return invalid(f, "method must be a short string");
	if (params && !json_is_object(params))
		return invalid(f, "params must be an object");
	m->method = json_string_value(method);
	m->params = params;
	m->kind = m->id ? JSONRPC_REQUEST : JSONRPC_NOTIFICATION;
	return 0;
}

static int take_answer(struct jsonrpc *m, struct jsonrpc_fault *f)
{
	m->result = json_object_get(m->root, "result");
	m->error = json_object_get(m->root, "error");
	if (!m->result == !m->error)
		return invalid(f, "neither a method nor exactly one of result and error");
	if (m->error && !json_is_object(m->error))
		return invalid(f, "error must be an object");
	/* An error for a message that could not be read has no id. */
	if (!m->id && !m->error)
		return invalid(f, "a result without an id");
	m->kind = JSONRPC_ANSWER;
	return 0;
}

static int take_message(struct jsonrpc *m, struct jsonrpc_fault *f)
{
	const char *version = json_string_value(json_object_get(m->root, "jsonrpc"));
	json_t *id = json_object_get(m->root, "id");

	if (json_is_array(m->root))
		return invalid(f, "batches are not supported, send one message at a time");
	if (!json_is_object(m->root))
		return invalid(f, "not an object");
	if (is_id(id))
		m->id = id;
	if (!version || !str_equal(version, "2.0"))
		return invalid(f, "jsonrpc must be \"2.0\"");
	if (id && !m->id && !(json_is_null(id) && json_object_get(m->root, "error")))
		return invalid(f, "id must be a string or a whole number");
	return json_object_get(m->root, "method") ? take_call(m, f) : take_answer(m, f);
}

int jsonrpc_parse(const char *bytes, size_t len, struct jsonrpc *ret, struct jsonrpc_fault *f)
{
	struct err e = {0};

	return jsonrpc_take(json_feed_whole(bytes, len, true, &e), ret, f);
}

int jsonrpc_take(json_t *root, struct jsonrpc *ret, struct jsonrpc_fault *f)
{
	struct jsonrpc m = {.root = root};

	*f = (struct jsonrpc_fault){0};
	if (!root) {
		*f = (struct jsonrpc_fault){JSONRPC_PARSE, "Parse error: the message is not JSON",
					    NULL};
		return -1;
	}
	if (take_message(&m, f) < 0) {
		f->id = m.id ? json_deep_copy(m.id) : NULL;
		json_decref(m.root);
		return -1;
	}
	*ret = m;
	return 0;
}

void jsonrpc_done(struct jsonrpc *m)
{
	json_decref(m->root);
	*m = (struct jsonrpc){0};
}

static json_t *new_message(const json_t *id)
{
	json_t *m = json_pack("{s:s}", "jsonrpc", "2.0");

	if (id)
		json_object_set_new(m, "id", json_deep_copy(id));
	return m;
}

json_t *jsonrpc_result(const json_t *id, json_t *result)
{
	json_t *m = new_message(id);

	json_object_set_new(m, "result", result);
	return m;
}

json_t *jsonrpc_error(const json_t *id, int code, const char *text, json_t *data)
{
	json_t *m = new_message(id);
	char clean[512];
	json_t *error;

	/* The text may quote input that was cut within a character. */
	str_sanitise(clean, sizeof(clean), text, strlen(text));
	error = json_pack("{s:i, s:s}", "code", code, "message", clean);

	if (data)
		json_object_set_new(error, "data", data);
	json_object_set_new(m, "error", error);
	if (!id)
		json_object_set_new(m, "id", json_null());
	return m;
}

json_t *jsonrpc_notification(const char *method, json_t *params)
{
	json_t *m = new_message(NULL);

	json_object_set_new(m, "method", json_string(method));
	if (params)
		json_object_set_new(m, "params", params);
	return m;
}

json_t *jsonrpc_request(json_int_t id, const char *method, json_t *params)
{
	json_t *m = jsonrpc_notification(method, params);

	json_object_set_new(m, "id", json_integer(id));
	return m;
}

char *jsonrpc_print(const json_t *message, size_t *ret_len)
{
	char *text = must_alloc(json_dumps(message, JSON_COMPACT | JSON_REAL_PRECISION(15)));

	*ret_len = strlen(text);
	return text;
}
