/* The client of the daemon: finds the daemon, sends requests, and turns refusals into errors. */
#include "cli/verbs/client.h"

#include "policy/config.h"

#include <stdarg.h>

#define SYSTEM_SOCKET "/run/cloche/cloche.sock"
#define ANSWER_MAX ((size_t)64 << 20)

/* ---- where the daemon is ---- */

int client_config(struct config *c, const char *file, struct err *e)
{
	auto_free char *found = file ? NULL : config_find();

	config_init(c);
	if (!file)
		file = found;
	return (file && config_load(file, c, e) < 0) || config_finish(c, e) < 0 ? -1 : 0;
}

static int own_socket(char *ret, size_t size, struct err *e)
{
	auto_free struct config *c = must_alloc(malloc(sizeof(*c)));

	if (client_config(c, NULL, e) < 0)
		return -1;
	config_socket_path(c, ret, size);
	for (uint32_t i = 0; i < c->listen_count; i++) {
		if (!str_starts(c->listen[i], "unix:"))
			continue;
		snprintf(ret, size, "%s", c->listen[i] + 5);
		break;
	}
	return 0;
}

int client_init(struct client *c, struct err *e)
{
	const char *url = getenv("CLOCHE_URL"), *token = getenv("CLOCHE_TOKEN");
	char path[CONFIG_PATH];

	*c = (struct client){0};
	if (url && *url) {
		if (http_target_parse(url, &c->target, e) < 0)
			return err_wrap(e, "CLOCHE_URL");
	} else {
		if (own_socket(path, sizeof(path), e) < 0)
			return -1;
		if (access(path, F_OK) < 0 && access(SYSTEM_SOCKET, F_OK) == 0)
			snprintf(path, sizeof(path), "%s", SYSTEM_SOCKET);
		if (strlen(path) >= sizeof(c->target.unix_path))
			return err_set(e, ERR_INVALID, "%s: too long for a socket", path);
		strcpy(c->target.unix_path, path);
	}
	if (token && strlen(token) >= sizeof(c->target.token))
		return err_set(e, ERR_INVALID, "CLOCHE_TOKEN is too long for a token");
	if (token && strpbrk(token, "\r\n"))
		return err_set(e, ERR_INVALID, "CLOCHE_TOKEN has a line break in it");
	snprintf(c->target.token, sizeof(c->target.token), "%s", token ? token : "");
	return 0;
}

void client_done(struct client *c)
{
	http_close(c->http);
	c->http = NULL;
}

struct http_client *client_connect(const struct client *c, struct err *e)
{
	return http_open(&c->target, e);
}

/* ---- calls ---- */

static int read_answer_body(struct http_client *h, struct buf *b, struct err *e)
{
	ssize_t n;

	do {
		n = http_read(h, buf_reserve(b, 65536), 65536, e);
		if (n > 0)
			buf_added(b, (size_t)n);
	} while (n > 0 && b->len < ANSWER_MAX);
	return n < 0 ? -1 : 0;
}

static enum err_kind error_kind_of(const char *name)
{
	for (int k = ERR_NONE + 1; name && k < ERR_KIND_COUNT; k++)
		if (str_equal(name, err_kind_name((enum err_kind)k)))
			return (enum err_kind)k;
	return ERR_SYSTEM;
}

static const char *token_hint(int status)
{
	return status == 401 ? "; set CLOCHE_TOKEN to a key of this daemon" : "";
}

int client_error(struct http_client *h, const struct http_response *r, struct err *e)
{
	struct err ignored = {0};
	json_auto_t *body = NULL;
	const json_t *error;

	client_answer(h, &body, &ignored);
	error = json_object_get(body, "error");
	if (!text_at(error, "message"))
		return err_set(e, ERR_SYSTEM, "the daemon answered with status %d%s", r->status,
			       token_hint(r->status));
	return err_field(e, error_kind_of(text_at(error, "kind")),
			 text_at(error, "field") ? text_at(error, "field") : "", "%s%s",
			 text_at(error, "message"), token_hint(r->status));
}

int client_answer(struct http_client *h, json_t **ret, struct err *e)
{
	auto_buf struct buf b = {0};
	json_t *answer;

	if (read_answer_body(h, &b, e) < 0)
		return -1;
	answer = json_loadb(b.len ? buf_head(&b) : "null", b.len ? b.len : 4,
			    JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	if (!answer)
		return err_set(e, ERR_SYSTEM, "the daemon's answer is not JSON");
	*ret = answer;
	return 0;
}

static int send_and_receive(struct client *c, const struct http_request *r,
			    struct http_response *ret, struct err *e)
{
	bool reused = c->http != NULL;

	for (;;) {
		if (!c->http)
			c->http = http_open(&c->target, e);
		if (!c->http)
			return -1;
		if (http_send(c->http, r, e) == 0 && http_receive(c->http, ret, e) == 0)
			return 0;
		client_done(c);
		/*
		 * A kept connection may have been closed meanwhile. Only a GET may be repeated
		 * safely.
		 */
		if (!reused || !str_equal(r->method, "GET"))
			return -1;
		reused = false;
	}
}

int client_call(struct client *c, const char *method, const char *path, json_t *body, json_t **ret,
		struct err *e)
{
	auto_free char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	const struct http_request r = {.method = method,
				       .path = path,
				       .content_type = text ? "application/json" : NULL,
				       .body = text,
				       .body_len = text ? strlen(text) : 0,
				       .stream_len = HTTP_NO_BODY};
	struct http_response response;
	auto_buf struct buf b = {0};
	int rc;

	json_decref(body);
	c->status = 0;
	if (send_and_receive(c, &r, &response, e) < 0)
		return -1;
	c->status = response.status;
	if (response.status < 200 || response.status > 299) {
		client_error(c->http, &response, e);
		client_done(c);
		return -1;
	}
	/* An answer that nobody reads need not be JSON. */
	rc = ret ? client_answer(c->http, ret, e) : read_answer_body(c->http, &b, e);
	if (rc < 0)
		client_done(c);
	return rc;
}

char *client_path(const char *id, const char *fmt, ...)
{
	auto_free char *rest = NULL;
	char encoded[256];
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&rest, fmt, ap) < 0)
		must_alloc(NULL);
	va_end(ap);
	http_encode(encoded, sizeof(encoded), id, false);
	return str_format("/v1/sandboxes/%s%s", encoded, rest);
}

int client_ask(struct client *c, const char *request, const char *which, json_t *body, json_t **ret,
	       struct err *e)
{
	size_t method_len = strcspn(request, " ");
	auto_free char *method = str_format("%.*s", (int)method_len, request), *path = NULL;
	char id[64];

	if (client_find(c, which, id, sizeof(id), e) < 0) {
		json_decref(body);
		return -1;
	}
	path = client_path(id, "%s", request + method_len + (request[method_len] == ' '));
	return client_call(c, method, path, body, ret, e);
}

static void add_page(json_t *all, const json_t *page, bool also_gone)
{
	json_t *item;
	size_t i;

	json_array_foreach (json_object_get(page, "sandboxes"), i, item) {
		const char *state = text_at(item, "state");

		if (also_gone || !state || !str_equal(state, "destroyed"))
			json_array_append(all, item);
	}
}

json_t *client_sandboxes(struct client *c, const char *filter, bool also_gone, struct err *e)
{
	json_t *all = json_array();
	char cursor[512] = "";

	do {
		auto_free char *path = str_format("/v1/sandboxes?limit=1000%s%s%s", filter,
						  *cursor ? "&cursor=" : "", cursor);
		json_auto_t *page = NULL;

		if (client_call(c, "GET", path, NULL, &page, e) < 0) {
			json_decref(all);
			return NULL;
		}
		add_page(all, page, also_gone);
		http_encode(cursor, sizeof(cursor),
			    text_at(page, "cursor") ? text_at(page, "cursor") : "", false);
	} while (*cursor);
	return all;
}

int client_find(struct client *c, const char *id_or_name, char *ret_id, size_t size, struct err *e)
{
	json_auto_t *all = NULL;
	const json_t *item;
	int count = 0;
	size_t i;

	/* A whole id needs no search. */
	if (strlen(id_or_name) >= 16 && str_only(id_or_name, STR_LOWER STR_DIGITS, 1, SIZE_MAX)) {
		snprintf(ret_id, size, "%s", id_or_name);
		return 0;
	}
	all = client_sandboxes(c, "", false, e);
	if (!all)
		return -1;
	json_array_foreach (all, i, item) {
		const char *id = text_at(item, "id"), *name = text_at(item, "name");

		if (!id || !(str_starts(id, id_or_name) || (name && str_equal(name, id_or_name))))
			continue;
		snprintf(ret_id, size, "%s", id);
		count++;
		if (str_equal(id, id_or_name)) {
			count = 1;
			break;
		}
	}
	if (count == 1)
		return 0;
	return err_set(e, ERR_NOT_FOUND,
		       count ? "'%s' could be several sandboxes; give the whole id"
			     : "there is no sandbox '%s'; see `cloche ps`",
		       id_or_name);
}

int client_put_pairs(json_t *body, const char *key, const struct list *pairs, struct err *e)
{
	json_t *object = pairs->count ? json_object() : NULL;

	if (object)
		json_object_set_new(body, key, object);
	for (size_t i = 0; i < pairs->count; i++) {
		const char *pair = pairs->items[i], *equals = strchr(pair, '=');
		const char *value = equals ? equals + 1 : getenv(pair);
		auto_free char *name = str_format("%.*s", (int)strcspn(pair, "="), pair);

		if (!equals && (!value || !str_equal(key, "env")))
			return err_field(e, ERR_INVALID, key, "%s: '%s' is not K=V", key, pair);
		if (json_object_set_new(object, name, json_string(value)) < 0)
			return err_field(e, ERR_INVALID, key, "%s: '%s' is not UTF-8", key, name);
	}
	return 0;
}

json_t *client_list(const struct list *l)
{
	json_t *array = json_array();

	for (size_t i = 0; i < l->count; i++)
		if (json_array_append_new(array, json_string(l->items[i])) < 0) {
			json_decref(array);
			return NULL;
		}
	return array;
}

int client_put(json_t *body, const char *key, json_t *value, struct err *e)
{
	if (json_object_set_new(body, key, value) == 0)
		return 0;
	return err_field(e, ERR_INVALID, key, "%s: is not UTF-8", key);
}

json_t *client_text(const char *text)
{
	json_t *value = json_string(text);
	char clean[8192];

	if (value)
		return value;
	str_sanitise(clean, sizeof(clean), text, strlen(text));
	return json_string(clean);
}

const char *text_at(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

double number_at(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}
