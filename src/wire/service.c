/* Parses the answers of an E2B-compatible service, and trusts none of them. */
#include "wire/service.h"

#include "wire/connect.h"

#include <jansson.h>

/* Copies a text of the service's without control characters. */
static void copy_shown(char *dst, size_t size, const char *text)
{
	str_sanitise(dst, size, text ? text : "", text ? strnlen(text, size) : 0);
}

/* ---- a sandbox ---- */

static int put_token(const json_t *o, char *to, size_t size, struct err *e)
{
	const json_t *v = json_object_get(o, "envdAccessToken");
	const char *text = json_string_value(v);

	to[0] = '\0';
	if (!v || json_is_null(v))
		return 0;
	/* It becomes a header: printable, one line. */
	if (!text || json_string_length(v) >= size)
		return err_set(e, ERR_SYSTEM, "the service's token for its sandbox is no token");
	for (const char *c = text; *c; c++)
		if (*c <= ' ' || *c > '~')
			return err_set(e, ERR_SYSTEM,
				       "the service's token for its sandbox is no token");
	snprintf(to, size, "%s", text);
	return 0;
}

int service_sandbox_parse(const char *text, size_t len, struct service_sandbox *ret, struct err *e)
{
	json_t *o = json_loadb(text, len, 0, NULL);
	const char *name = json_string_value(json_object_get(o, "sandboxID"));
	int rc;

	*ret = (struct service_sandbox){0};
	if (!json_is_object(o) || !name || !remote_name_is_valid(name)) {
		rc = err_set(e, ERR_SYSTEM, "the service's answer names no sandbox");
	} else {
		snprintf(ret->name, sizeof(ret->name), "%s", name);
		rc = put_token(o, ret->token, sizeof(ret->token), e);
	}
	json_decref(o);
	return rc;
}

int service_list_parse(const char *text, size_t len, const char *id, char ret[REMOTE_ID],
		       struct err *e)
{
	json_t *all = json_loadb(text, len, 0, NULL);
	int rc = 0;

	if (!json_is_array(all))
		rc = err_set(e, ERR_SYSTEM, "the service's answer is no list");
	for (size_t i = 0; rc == 0 && i < json_array_size(all); i++) {
		const json_t *o = json_array_get(all, i);
		const char *name = json_string_value(json_object_get(o, "sandboxID"));
		const char *ours = json_string_value(
			json_object_get(json_object_get(o, "metadata"), "cloche"));

		if (!name || !ours || !str_equal(ours, id) || !remote_name_is_valid(name))
			continue;
		snprintf(ret, REMOTE_ID, "%s", name);
		rc = 1;
	}
	json_decref(all);
	return rc;
}

/* ---- an error ---- */

static const struct {
	long status;
	enum err_kind kind;
	const char *meaning;
} refusals[] = {
	{401, ERR_DENIED, "it does not accept the key"},
	{403, ERR_DENIED, "it does not allow that"},
	{404, ERR_NOT_FOUND, "it has no such thing"},
	{409, ERR_CONFLICT, "not in this state"},
	{429, ERR_LIMIT, "it wants fewer requests"},
	{502, ERR_SYSTEM, "the sandbox is not there"},
	{503, ERR_SYSTEM, "it is busy"},
	{507, ERR_LIMIT, "the sandbox is full"},
};

int service_refusal(const char *what, long status, const char *text, size_t len, struct err *e)
{
	json_t *o = json_loadb(text, len, 0, NULL);
	char said[160];
	const char *meaning = "";
	enum err_kind kind = ERR_SYSTEM;

	copy_shown(said, sizeof(said), json_string_value(json_object_get(o, "message")));
	json_decref(o);
	for (size_t i = 0; i < ARRAY_LEN(refusals); i++)
		if (refusals[i].status == status) {
			kind = refusals[i].kind;
			meaning = refusals[i].meaning;
		}
	return err_set(e, kind, "the E2B service refused to %s: status %ld%s%s%s%s", what, status,
		       *meaning ? ", " : "", meaning, *said ? ": " : "", said);
}

/* ---- events ---- */

static int take_data(const json_t *data, struct buf *out, struct service_event *ret, struct err *e)
{
	const json_t *v = json_object_get(data, "stdout");

	ret->kind = SERVICE_OUT;
	if (!v) {
		v = json_object_get(data, "stderr");
		ret->kind = SERVICE_ERR;
	}
	if (!json_is_string(v)) {
		ret->kind = SERVICE_NOTHING;
		return 1;
	}
	if (connect_bytes(json_string_value(v), json_string_length(v), out) < 0)
		return err_set(e, ERR_SYSTEM, "the service's stream has output that is not base64");
	return 1;
}

static int take_start(const json_t *start, struct service_event *ret, struct err *e)
{
	json_int_t pid = json_integer_value(json_object_get(start, "pid"));

	if (pid < 1 || pid > INT32_MAX)
		return err_set(e, ERR_SYSTEM, "the service's stream starts no process");
	ret->kind = SERVICE_START;
	ret->pid = (uint32_t)pid;
	return 1;
}

/* The end of the process, or of the stream. */
static void take_end(const json_t *end, enum service_event_kind kind, const char *key,
		     const char *otherwise, struct service_event *ret)
{
	const char *text = json_string_value(json_object_get(end, key));

	ret->kind = kind;
	if (end)
		copy_shown(ret->text, sizeof(ret->text), text && *text ? text : otherwise);
}

static int take_message(const struct connect_envelope *v, struct buf *out,
			struct service_event *ret, struct err *e)
{
	json_t *o = connect_message(v->data, v->len, e);
	const json_t *event = json_object_get(o, "event");
	int rc = 1;

	if (!o)
		return -1;
	if (v->flags & CONNECT_END)
		take_end(json_object_get(o, "error"), SERVICE_END, "message", "it failed", ret);
	else if (json_object_get(event, "start"))
		rc = take_start(json_object_get(event, "start"), ret, e);
	else if (json_object_get(event, "data"))
		rc = take_data(json_object_get(event, "data"), out, ret, e);
	else if (json_object_get(event, "end"))
		take_end(json_object_get(event, "end"), SERVICE_EXIT, "status", "it ended", ret);
	json_decref(o);
	return rc;
}

int service_event_next(struct buf *in, struct buf *out, struct service_event *ret, struct err *e)
{
	struct connect_envelope v;
	int rc = connect_next(in, SERVICE_ENVELOPE, &v, e);

	*ret = (struct service_event){0};
	if (rc > 0)
		rc = take_message(&v, out, ret, e);
	if (rc > 0)
		buf_drop(in, v.size);
	if (rc < 0) {
		err_wrap(e, "the service's stream is not understood");
		e->kind = ERR_SYSTEM;
	}
	return rc;
}
