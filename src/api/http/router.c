/* From the request head to the handler: target, route, Host and Origin, token, rate, scope, body, audit. */
#include "api/http/http_internal.h"

#include "audit/audit.h"
#include "manager/manager.h"
#include "auth/gate.h"
#include "auth/tokens.h"
#include "policy/config.h"

#include <strings.h>

/* ---- the request target ---- */

static int add_arg(struct exchange *x, const char *text, size_t len, struct err *e)
{
	const char *equals = memchr(text, '=', len);
	size_t name_len = equals ? (size_t)(equals - text) : len;
	struct exchange_arg *a = &x->args[x->arg_count];

	if (len == 0)
		return 0;
	if (x->arg_count == EXCHANGE_ARGS)
		return err_set(e, ERR_INVALID, "more than %d query arguments", EXCHANGE_ARGS);
	a->name = exchange_decode(x, text, name_len, true);
	a->value = equals ? exchange_decode(x, equals + 1, len - name_len - 1, true) : "";
	if (!a->name || !a->value)
		return err_set(e, ERR_INVALID, "the query is not well encoded");
	x->arg_count++;
	return 0;
}

static int split_uri(struct exchange *x, struct err *e)
{
	char *target = (char *)x->internal->head.target, *query = strchr(target, '?');
	const char *at;

	if (query)
		*query++ = '\0';
	x->path = target;
	x->query = query ? query : "";
	if (x->path[0] != '/')
		return err_set(e, ERR_INVALID, "the request target is not a path");
	for (at = x->query; *at;) {
		size_t len = strcspn(at, "&");

		if (add_arg(x, at, len, e) < 0)
			return -1;
		at += len + (at[len] == '&');
	}
	return 0;
}

/* ---- routes ---- */

/* Walks pattern and path together; with x, keeps the parameters. */
static bool match_path(const char *pattern, const char *path, struct exchange *x)
{
	size_t count = 0;

	while (*pattern) {
		size_t len = strcspn(path, "/");

		if (pattern[0] == '*') {
			if (x)
				x->params[count] = path;
			return true;
		}
		if (pattern[0] == '{') {
			if (len == 0)
				return false;
			if (x && !(x->params[count++] = exchange_decode(x, path, len, false)))
				return false;
			pattern = strchr(pattern, '}') + 1;
			path += len;
		} else if (*pattern++ != *path++) {
			return false;
		}
	}
	return *path == '\0';
}

static bool method_fits(const struct route *r, const char *method)
{
	if (r->flags & ROUTE_ANY_METHOD)
		return true;
	return str_equal(r->method, str_equal(method, "HEAD") ? "GET" : method);
}

/* Which methods a path has, for 405. */
static void list_methods(const struct door *d, const char *path, char *list, size_t size)
{
	list[0] = '\0';
	for (size_t i = 0; i < d->route_count; i++)
		if (match_path(d->routes[i].pattern, path, NULL))
			str_append(list, size, ", ", "%s", d->routes[i].method);
}

static bool is_below(const char *path, const char *top)
{
	size_t len = strlen(top);

	return str_starts(path, top) && (!path[len] || path[len] == '/');
}

/* No route has this path. Below /v1 errors have the form of REST, whichever door came first. */
static int refuse_path(struct exchange *x, int *ret_status, struct err *e)
{
	static const char *const planned[] = {"/v1/tools", "/mcp/agents"};
	const struct server *s = x->internal->server;
	bool later = false;

	for (size_t i = 0; i < ARRAY_LEN(planned); i++)
		later = later || is_below(x->path, planned[i]);
	for (size_t i = 0; i < s->door_count; i++)
		if (s->doors[i]->id == DOOR_REST && (later || is_below(x->path, "/v1")))
			x->door = s->doors[i];
	*ret_status = later ? 501 : 404;
	return later ? err_set(e, ERR_UNSUPPORTED, "agents and tool calls are not built yet")
		     : err_set(e, ERR_NOT_FOUND, "there is nothing at this path");
}

/*
 * An agent in a sandbox has a door of its own, and nobody else has that. Who comes to the socket of the Docker API
 * reaches that door only.
 */
static bool may_reach(const struct exchange *x, const struct door *d)
{
	const struct peer *p = x->internal->peer;

	return (d->id == DOOR_AGENT) == (p->agent_box[0] != '\0') &&
	       (d->id == DOOR_DOCKER || !p->is_docker);
}

static int find_route(struct exchange *x, int *ret_status, struct err *e)
{
	const struct server *s = x->internal->server;
	const struct door *near = NULL;
	char methods[128] = "";

	for (size_t i = 0; i < s->door_count; i++) {
		const struct door *d = s->doors[i];
		const char *path;

		if (!may_reach(x, d) || (d->claims && !d->claims(x)))
			continue;
		x->door = x->door ? x->door : d;
		path = d->path ? d->path(x) : x->path;
		for (size_t j = 0; j < d->route_count; j++) {
			if (!match_path(d->routes[j].pattern, path, NULL))
				continue;
			near = near ? near : d;
			if (!method_fits(&d->routes[j], x->method))
				continue;
			x->door = d;
			x->route = &d->routes[j];
			*ret_status = 400;
			return match_path(x->route->pattern, path, x)
				       ? 0
				       : err_set(e, ERR_INVALID, "the path is not well encoded");
		}
	}
	if (!near)
		return refuse_path(x, ret_status, e);
	*ret_status = 405;
	x->door = near;
	list_methods(near, near->path ? near->path(x) : x->path, methods, sizeof(methods));
	exchange_set_header(x, "Allow", methods);
	return err_set(e, ERR_INVALID, "this path takes %s", methods);
}

/* ---- authentication ---- */

bool exchange_is_docker(const struct exchange *x)
{
	return x->internal->peer && x->internal->peer->is_docker;
}

struct sandbox *exchange_agent_box(const struct exchange *x)
{
	const char *box = x->internal->peer->agent_box;

	return box[0] ? manager_find_any(x->api->manager, box) : NULL;
}

static const char *bearer(const char *value)
{
	if (!value || strncasecmp(value, "Bearer ", 7) != 0)
		return NULL;
	value += 7;
	return value + strspn(value, " ");
}

bool exchange_login(struct exchange *x, const char *key)
{
	return tokens_check(x->api->tokens, key, (uint64_t)time(NULL), &x->caller);
}

static void be_operator(struct caller *c)
{
	snprintf(c->name, sizeof(c->name), "operator");
	c->scopes = SCOPE_RUN | SCOPE_FILES | SCOPE_READ | SCOPE_ADMIN;
	c->trust = 5;
	c->root = true;
}

int exchange_authenticate(struct exchange *x, struct err *e)
{
	const char *key = exchange_header(x, "X-API-Key"), *other;

	other = bearer(exchange_header(x, "Authorization"));
	key = other ? other : key;
	if (key && exchange_login(x, key))
		return 0;
	if (key)
		return err_set(e, ERR_DENIED, "the token is unknown or has expired");
	if (x->internal->peer->is_operator) {
		be_operator(&x->caller);
		return 0;
	}
	return err_set(e, ERR_DENIED,
		       "who asks? Send Authorization: Bearer TOKEN; `cloche token create` makes "
		       "one");
}

static int check_headers(struct exchange *x, struct err *e)
{
	const struct config *c = x->api->config;
	const struct gate g = {c->hosts, c->host_count, c->origins, c->origin_count};
	const char *host = exchange_header(x, "Host"), *origin = exchange_header(x, "Origin");

	if (x->internal->peer->is_unix)
		return 0;
	if (!gate_host_is_fine(&g, host))
		return err_field(
			e, ERR_DENIED, "Host",
			"Host: '%.100s' is none of ours; name it under http.allowed_hosts in the "
			"configuration",
			host ? host : "");
	if (origin && !(x->route && x->route->flags & ROUTE_NO_ORIGIN_CHECK) &&
	    !gate_origin_is_fine(&g, origin, host))
		return err_field(e, ERR_DENIED, "Origin",
				 "Origin: pages of '%.100s' may not call this; name it under "
				 "http.allowed_origins in the configuration",
				 origin);
	return 0;
}

void exchange_retry_after(struct exchange *x, unsigned seconds)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", seconds);
	exchange_set_header(x, "Retry-After", text);
	x->internal->retry_set = true;
}

static int check_rate(struct exchange *x, struct buckets *b, const char *name,
		      const struct config_rate *rate, struct err *e)
{
	bool first;
	unsigned wait = buckets_take(b, name, rate->per_minute, rate->burst, x->started_ns, &first);

	if (!wait)
		return 0;
	exchange_retry_after(x, wait);
	x->internal->quiet = !first;
	return err_set(e, ERR_LIMIT, "too many requests; come again in %u s", wait);
}

static int check_token_rate(struct exchange *x, struct err *e)
{
	struct config_rate rate = x->api->config->rate_token;

	if (!x->caller.token[0])
		return 0;
	if (x->caller.rate_per_minute)
		rate = (struct config_rate){x->caller.rate_per_minute, 0};
	return check_rate(x, x->internal->server->by_token, caller_id(&x->caller), &rate, e);
}

static int check_scope(const struct exchange *x, struct err *e)
{
	unsigned missing = x->route->scope & ~x->caller.scopes;
	char text[64];

	if (!missing || x->caller.scopes & SCOPE_ADMIN)
		return 0;
	scopes_format(missing, text, sizeof(text));
	return err_set(e, ERR_DENIED, "the token lacks the scope %s", text);
}

static bool is_one_of(const char *names, const char *name)
{
	size_t len = strlen(name), n;

	for (; names && *names; names += n + (names[n] == ' ')) {
		n = strcspn(names, " ");
		if (n == len && memcmp(names, name, n) == 0)
			return true;
	}
	return false;
}

/* A misspelt filter would match everything. Queries for a port inside are passed on unchecked. */
static int check_query(const struct exchange *x, struct err *e)
{
	if (x->door->id != DOOR_REST || x->route->flags & ROUTE_ANY_METHOD)
		return 0;
	for (size_t i = 0; i < x->arg_count; i++)
		if (!is_one_of(route_query(x->route), x->args[i].name))
			return err_field(e, ERR_INVALID, x->args[i].name,
					 "unknown query argument '%.40s'", x->args[i].name);
	return 0;
}

/* What tells about the daemon itself is answered to the end. */
static int check_draining(struct exchange *x, struct err *e)
{
	if (!x->internal->server->draining ||
	    (x->door->id == DOOR_REST && x->route->flags & ROUTE_OPEN))
		return 0;
	exchange_set_header(x, "Retry-After", "1");
	x->internal->retry_set = x->internal->quiet = true;
	return err_set(e, ERR_SYSTEM, "the daemon is being stopped; try again in a moment");
}

/* 0, or the status to answer with. */
static int check_request(struct exchange *x, struct err *e)
{
	char address[64];
	int status = 0;

	if (split_uri(x, e) < 0)
		return 400;
	gate_neighbours(x->caller.address, address, sizeof(address));
	if (!x->internal->peer->is_operator &&
	    check_rate(x, x->internal->server->by_address, address, &x->api->config->rate_address,
		       e) < 0)
		return 429;
	if (find_route(x, &status, e) < 0)
		return check_headers(x, e) < 0 ? 403 : status;
	if (check_headers(x, e) < 0)
		return 403;
	if (check_draining(x, e) < 0)
		return 503;
	if (x->route->flags & (ROUTE_OPEN | ROUTE_OWN_AUTH))
		return 0;
	if (exchange_authenticate(x, e) < 0)
		return 401;
	if (check_token_rate(x, e) < 0 || exchange_admit(x, x->caller.token, e) < 0)
		return 429;
	if (check_scope(x, e) < 0)
		return 403;
	return check_query(x, e) < 0 ? 400 : 0;
}

/* ---- bodies ---- */

static size_t body_limit(const struct exchange *x)
{
	static const size_t limits[] = {
		[BODY_NONE] = 0,      [BODY_JSON] = JSON_MAX, [BODY_JSON_BIG] = BIG_MAX,
		[BODY_RPC] = BIG_MAX, [BODY_BYTES] = BIG_MAX, [BODY_STREAM] = BIG_MAX,
	};
	size_t most = limits[x->route->body], set = x->api->config->max_body_bytes;

	if (set && set < most)
		most = set;
	return !x->internal->admitted && most > OPEN_BODY_MAX ? OPEN_BODY_MAX : most;
}

static int check_length(struct exchange *x, struct err *e)
{
	uint64_t most = x->api->config->max_upload_bytes;

	if (x->route->body == BODY_STREAM) {
		if (!most || x->content_length < 0 || (uint64_t)x->content_length <= most)
			return 0;
	} else {
		most = x->internal->body_max = body_limit(x);
		if (x->content_length <= (int64_t)most)
			return 0;
	}
	e->errnum = EFBIG;
	return err_set(e, ERR_LIMIT, "the body is larger than %llu bytes",
		       (unsigned long long)most);
}

/* Nothing of the body is read before the caller is known. */
void router_admit(struct exchange *x)
{
	struct err e = {0};
	int status = check_request(x, &e);

	if (!status && x->route->flags & ROUTE_OPEN && x->door->admit)
		x->door->admit(x);
	if (!status && !reply_is_begun(x) && check_length(x, &e) < 0)
		status = 413;
	if (status)
		exchange_error_as(x, status, &e);
	else if (x->route->body == BODY_STREAM && !reply_is_begun(x))
		router_call(x);
}

void router_body(struct exchange *x)
{
	struct exchange_internal *in = x->internal;
	struct err e = {0};

	x->body = in->body.len ? buf_head(&in->body) : "";
	x->body_len = in->body.len;
	if (in->feed)
		x->json = json_feed_end(in->feed, &e);
	exchange_end_feed(x);
	if (e.kind && x->route->body != BODY_RPC)
		exchange_error(x, &e);
	else if (!idempotency_begin(x))
		router_call(x);
}

/* ---- the decision, then the act ---- */

void exchange_audit_entry(const struct exchange *x, struct audit_entry *ret, const char *verdict,
			  const char *why)
{
	*ret = (struct audit_entry){0};
	if (x->caller.token[0])
		snprintf(ret->who, sizeof(ret->who), "%s %s", caller_id(&x->caller),
			 x->caller.name);
	else
		snprintf(ret->who, sizeof(ret->who), "%s",
			 x->caller.name[0] ? x->caller.name : "unknown");
	snprintf(ret->what, sizeof(ret->what), "%s %s", x->method,
		 x->route ? x->route->pattern : "");
	snprintf(ret->target, sizeof(ret->target), "%s%s%s", x->path, x->query[0] ? "?" : "",
		 x->query);
	snprintf(ret->verdict, sizeof(ret->verdict), "%s", verdict);
	snprintf(ret->why, sizeof(ret->why), "%s", why);
	snprintf(ret->from, sizeof(ret->from), "%s", x->caller.address);
}

static void on_receipt(void *arg, const struct err *e)
{
	struct exchange *x = arg;
	struct err busy = {0};

	exchange_hold(x);
	if (x->gone) {
		exchange_answer_gone(x);
	} else if (e && e->kind != ERR_NONE) {
		audit_refuse(e, &busy);
		exchange_error(x, &busy);
	} else {
		x->internal->then(x);
	}
	exchange_release(x);
}

void exchange_decide(struct exchange *x, const char *target, const char *why,
		     void (*then)(struct exchange *x))
{
	struct audit_entry entry;

	x->internal->called = true;
	x->internal->then = then;
	if (!x->api->audit) {
		then(x);
		return;
	}
	exchange_audit_entry(x, &entry, "allow", why ? why : x->door->name);
	if (target)
		snprintf(entry.target, sizeof(entry.target), "%s", target);
	audit_write(x->api->audit, &entry, on_receipt, x);
}

void exchange_note(struct exchange *x, const char *tool, const char *verdict, const char *why)
{
	struct audit_entry entry;

	if (!x->api->audit)
		return;
	exchange_audit_entry(x, &entry, verdict, why);
	snprintf(entry.what, sizeof(entry.what), "tool");
	str_sanitise(entry.target, sizeof(entry.target), tool, strlen(tool));
	audit_write(x->api->audit, &entry, NULL, NULL);
}

/* The manager audits its own work; requests that reach a guest without the manager are audited here. */
void router_call(struct exchange *x)
{
	bool looks = str_equal(x->method, "GET") || str_equal(x->method, "HEAD");
	void (*handle)(struct exchange * x) = x->door->enter ? x->door->enter : x->route->handle;

	x->internal->called = true;
	if (x->route->flags & ROUTE_AUDIT || (x->route->scope & SCOPE_FILES && !looks))
		exchange_decide(x, NULL, NULL, handle);
	else
		handle(x);
}
