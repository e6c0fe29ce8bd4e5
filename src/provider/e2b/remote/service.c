/* Builds the requests that an E2B-compatible service understands. */
#include "provider/e2b/remote/remote_internal.h"

#include "wire/connect.h"

#include <jansson.h>

#define ENVD_PORT "49983"
#define USER "Authorization: Basic dXNlcjo=" /* "user:" */

/* ---- the control plane ---- */

/* Takes the body. */
static struct http_call *ask_control(struct service *s, struct http_ask *ask, char *path,
				     json_t *body, http_done done, void *arg)
{
	auto_free char *url = str_format("%s%s", s->settings.api_url, path);
	auto_free char *text = body ? must_alloc(json_dumps(body, JSON_COMPACT)) : NULL;
	struct list headers = {0};
	struct http_call *c;

	list_take(&headers, str_format("X-API-KEY: %s", s->key));
	list_add(&headers, "Content-Type: application/json");
	ask->url = url;
	ask->headers = &headers;
	ask->body = text;
	ask->len = text ? strlen(text) : 0;
	c = http_start(s->http, ask, done, arg);
	list_done(&headers);
	json_decref(body);
	free(path);
	return c;
}

static json_int_t seconds(const struct service *s)
{
	return (json_int_t)(s->settings.timeout_ms / 1000);
}

struct http_call *service_create(struct service *s, const char *id, http_done done, void *arg)
{
	struct http_ask ask = {.what = "make a sandbox", .method = "POST"};
	json_t *body = must_alloc(json_pack(
		"{s:s,s:I,s:b,s:b,s:{s:s}}", "templateID", s->settings.template, "timeout",
		seconds(s), "secure", 1, "allow_internet_access", 0, "metadata", "cloche", id));

	return ask_control(s, &ask, str_copy("/sandboxes"), body, done, arg);
}

static const struct {
	const char *what, *method, *before, *after; /* before and after the name in the path */
	bool has_timeout, has_body;
} verbs[] = {
	[SERVICE_CONNECT] = {"reach its sandbox", "POST", "/sandboxes/", "/connect", true, true},
	[SERVICE_PAUSE] = {"pause its sandbox", "POST", "/sandboxes/", "/pause", false, true},
	[SERVICE_KEEP] = {"keep its sandbox", "POST", "/sandboxes/", "/timeout", true, true},
	[SERVICE_KILL] = {"end its sandbox", "DELETE", "/sandboxes/", "", false, false},
	[SERVICE_LIST] = {"list its sandboxes", "GET", "/v2/sandboxes?metadata=cloche%3D", "",
			  false, false},
};

struct http_call *service_ask(struct service *s, enum service_verb verb, const char *name,
			      http_done done, void *arg)
{
	struct http_ask ask = {.what = verbs[verb].what, .method = verbs[verb].method};
	json_t *body = verbs[verb].has_body ? must_alloc(json_object()) : NULL;

	if (verbs[verb].has_timeout)
		json_object_set_new(body, "timeout", json_integer(seconds(s)));
	return ask_control(s, &ask,
			   str_format("%s%s%s", verbs[verb].before, name, verbs[verb].after), body,
			   done, arg);
}

struct err service_failure(const char *what, long status, const struct buf *body,
			   const struct err *e)
{
	struct err refused = {0};

	if (!status)
		return *e;
	service_refusal(what, status, buf_head(body), body->len, &refused);
	return refused;
}

/* ---- envd ---- */

/* Puts the sandbox's name and port in place of {id} and {port}. */
static char *envd_url(const struct service *s, const char *name, const char *path)
{
	struct buf b = {0};
	char *url;

	for (const char *at = s->settings.sandbox_url; *at;) {
		bool is_id = str_starts(at, "{id}"), is_port = str_starts(at, "{port}");

		if (is_id || is_port) {
			const char *by = is_id ? name : ENVD_PORT;

			buf_add(&b, by, strlen(by));
			at += strlen(is_id ? "{id}" : "{port}");
		} else {
			buf_add(&b, at++, 1);
		}
	}
	buf_add(&b, path, strlen(path) + 1);
	url = str_copy(buf_head(&b));
	buf_done(&b);
	return url;
}

static struct http_call *ask_envd(struct service *s, const struct service_sandbox *to,
				  struct http_ask *ask, const char *path, const char *type,
				  http_done done, void *arg)
{
	auto_free char *url = envd_url(s, to->name, path);
	struct list headers = {0};
	struct http_call *c;

	list_take(&headers, str_format("E2b-Sandbox-Id: %s", to->name));
	list_add(&headers, "E2b-Sandbox-Port: " ENVD_PORT);
	list_add(&headers, USER);
	if (to->token[0])
		list_take(&headers, str_format("X-Access-Token: %s", to->token));
	if (type) {
		list_take(&headers, str_format("Content-Type: %s", type));
		list_add(&headers, "Connect-Protocol-Version: 1");
		list_add(&headers, "Keepalive-Ping-Interval: 50");
	}
	ask->method = "POST";
	ask->url = url;
	ask->headers = &headers;
	c = http_start(s->http, ask, done, arg);
	list_done(&headers);
	return c;
}

struct http_call *service_upload(struct service *s, const struct service_sandbox *to,
				 const char *id, http_done done, void *arg)
{
	auto_free char *name = str_format("/tmp/.cloche-%s/guest", id);
	auto_free char *path = str_format("/files?path=%s&username=user", name);
	struct http_ask ask = {.what = "put our program into its sandbox",
			       .file = s->guest,
			       .file_size = s->guest_size,
			       .file_name = name};

	return ask_envd(s, to, &ask, path, NULL, done, arg);
}

struct http_call *service_bridge(struct service *s, const struct service_sandbox *to,
				 const char *id, http_data on_data, http_done done, void *arg)
{
	static const char script[] =
		"chmod 700 \"$0\" \"$0/guest\" && exec \"$0/guest\" bridge \"$0\"";
	auto_free char *directory = str_format("/tmp/.cloche-%s", id);
	struct http_ask ask = {.what = "run our program in its sandbox", .on_data = on_data};
	struct buf body = {0};
	struct http_call *c;

	connect_put_json(&body, must_alloc(json_pack("{s:{s:s,s:[sss],s:{},s:s},s:b}", "process",
						     "cmd", "/bin/sh", "args", "-c", script,
						     directory, "envs", "cwd", "/", "stdin", 1)));
	ask.body = buf_head(&body);
	ask.len = body.len;
	c = ask_envd(s, to, &ask, "/process.Process/Start", "application/connect+json", done, arg);
	buf_done(&body);
	return c;
}

struct http_call *service_input(struct service *s, const struct service_sandbox *to, uint32_t pid,
				const void *bytes, size_t len, http_done done, void *arg)
{
	struct http_ask ask = {.what = "write to its sandbox"};
	json_t *body = must_alloc(json_pack("{s:{s:I},s:{s:o}}", "process", "pid", (json_int_t)pid,
					    "input", "stdin", connect_from_bytes(bytes, len)));
	auto_free char *text = must_alloc(json_dumps(body, JSON_COMPACT));

	json_decref(body);
	ask.body = text;
	ask.len = strlen(text);
	return ask_envd(s, to, &ask, "/process.Process/SendInput", "application/json", done, arg);
}
