/* Exchanges: their life, what was asked, and the request body. */
#include "api/http/http_internal.h"

#include "auth/gate.h"
#include "auth/shares.h"
#include "policy/config.h"
#include "manager/manager.h"
#include "wire/http1.h"

#include <strings.h>

#define TRIM_MIN (1u << 20)

/* ---- life ---- */

struct whole_exchange {
	struct exchange x;
	struct exchange_internal in;
};

struct exchange *exchange_new(struct peer *p)
{
	struct whole_exchange *w = must_alloc(calloc(1, sizeof(*w)));

	w->in.server = p->server;
	w->in.peer = p;
	w->in.length = EXCHANGE_UNKNOWN_LENGTH;
	w->x.api = p->server->api;
	w->x.internal = &w->in;
	w->x.content_length = -1;
	w->x.started_ns = now_ns();
	w->x.method = w->x.path = w->x.query = "";
	snprintf(w->x.caller.address, sizeof(w->x.caller.address), "%s", p->address);
	p->server->exchange_count++;
	return &w->x;
}

int exchange_read_head(struct exchange *x, const char *bytes, size_t len, struct err *e)
{
	struct exchange_internal *in = x->internal;

	in->head_text = must_alloc(malloc(len + 1));
	memcpy(in->head_text, bytes, len);
	in->head_text[len] = '\0';
	if (http1_request_read(in->head_text, len, &in->head, e) < 0)
		return -1;
	/* What is decoded is never longer than the target, but for an end of each part. */
	in->scratch = must_alloc(
		malloc(2 * strlen(in->head.target) + 2 * EXCHANGE_PARAMS + 2 * EXCHANGE_ARGS + 8));
	if (!in->peer->is_unix)
		gate_client(x->api->config->proxies, x->api->config->proxy_count, in->peer->address,
			    exchange_header(x, "X-Forwarded-For"), x->caller.address,
			    sizeof(x->caller.address));
	x->method = in->head.method;
	x->content_length = in->head.length;
	return 0;
}

/* In reverse order: an object may use those that were added before it. */
static void free_owned(struct exchange_internal *in)
{
	while (in->owned) {
		struct exchange_owned *o = in->owned;

		in->owned = o->next;
		if (o->done)
			o->done(o->data);
		free(o->data);
		free(o);
	}
}

const char *exchange_tenant(const struct exchange *x)
{
	return x->internal->admitted ? x->internal->tenant : SHARES_STRANGER;
}

int exchange_admit(struct exchange *x, const char *tenant, struct err *e)
{
	struct exchange_internal *in = x->internal;

	if (in->admitted)
		return 0;
	if (in->peer && server_count_peer(in->peer, tenant, e) < 0)
		return -1;
	snprintf(in->tenant, sizeof(in->tenant), "%s", tenant);
	in->admitted = true;
	if (in->peer) {
		snprintf(in->peer->caller, sizeof(in->peer->caller), "%s", caller_id(&x->caller));
		peer_admit(in->peer);
	}
	return 0;
}

/* Answers are never refused for want of budget: commands that still print get less instead. */
void exchange_count(struct exchange *x)
{
	struct exchange_internal *in = x->internal;
	size_t now = in->reply_len + in->out.len + in->extra;

	if (now < COUNTED_MIN)
		now = 0;
	if (!now && !in->counted)
		return;
	if (!in->output)
		in->output = shares_of(manager_shares(x->api->manager), exchange_tenant(x),
				       SHARE_OUTPUT);
	budget_count(in->output, now);
	budget_give(in->output, in->counted);
	in->counted = now;
}

void exchange_keep(struct exchange *x, size_t bytes)
{
	x->internal->extra += bytes;
	exchange_count(x);
}

void exchange_end_feed(struct exchange *x)
{
	struct exchange_internal *in = x->internal;

	if (!in->feed)
		return;
	in->json_values = json_feed_values(in->feed);
	in->unfinished = json_feed_take(in->feed);
	json_feed_free(take_ptr(in->feed));
}

static void exchange_free(struct exchange *x)
{
	struct exchange_internal *in = x->internal;

	free_owned(in);
	in->reply_len = in->extra = 0;
	buf_done(&in->out);
	exchange_count(x);
	exchange_end_feed(x);
	json_bin_add(x, x->json ? x->json : in->unfinished);
	/* Some time later, once for many. */
	if (in->held >= TRIM_MIN && !in->server->trim.place)
		loop_timer_set(x->api->loop, &in->server->trim, 1000);
	buf_done(&in->body);
	buf_done(&in->pre);
	list_done(&in->names);
	list_done(&in->values);
	free(in->reply);
	free(in->reply_type);
	free(in->head_text);
	free(in->scratch);
	free(in->body_hash);
	in->server->exchange_count--;
	in->server->endless_count -= in->is_endless;
	free(x); /* the first member of its struct whole_exchange */
}

void exchange_set_endless(struct exchange *x)
{
	x->internal->server->endless_count += !x->internal->is_endless;
	x->internal->is_endless = true;
}

void exchange_hold(struct exchange *x)
{
	x->internal->hold++;
}

void exchange_release(struct exchange *x)
{
	struct exchange_internal *in = x->internal;

	in->hold--;
	if (in->hold == 0 && !in->peer && (in->answered || !in->called))
		exchange_free(x);
}

void *exchange_attach(struct exchange *x, size_t size, void (*done)(void *data))
{
	x->data = must_alloc(calloc(1, size));
	exchange_also_free(x, x->data, done);
	return x->data;
}

void exchange_also_free(struct exchange *x, void *data, void (*done)(void *data))
{
	struct exchange_owned *o = must_alloc(malloc(sizeof(*o)));

	*o = (struct exchange_owned){data, done, x->internal->owned};
	x->internal->owned = o;
}

/* ---- the client's end ---- */

void exchange_tell_gone(struct exchange *x)
{
	struct exchange_internal *in = x->internal;

	x->gone = true;
	if (in->told_gone)
		return;
	in->told_gone = true;
	exchange_hold(x);
	if (in->on_gone && !in->answered)
		in->on_gone(in->gone_arg);
	if (in->on_open) {
		in->on_open(in->open_arg, NULL, NULL, 0);
		in->on_open = NULL;
	}
	exchange_release(x);
}

void exchange_on_gone(struct exchange *x, void (*call)(void *arg), void *arg)
{
	x->internal->on_gone = call;
	x->internal->gone_arg = arg;
}

void exchange_completed(struct exchange *x, bool well)
{
	struct exchange_internal *in = x->internal;

	exchange_hold(x);
	/* After HEAD the rest of a stream is not wanted. */
	if (!well || (in->is_stream && !in->finished))
		exchange_tell_gone(x);
	in->peer = NULL;
	exchange_release(x);
}

/* ---- what was asked ---- */

const char *exchange_decode(struct exchange *x, const char *text, size_t len, bool query)
{
	char *start = x->internal->scratch + x->internal->scratch_used;

	if (!http1_unescape(text, len, query, start))
		return NULL;
	x->internal->scratch_used += strlen(start) + 1;
	return start;
}

const char *exchange_header(const struct exchange *x, const char *name)
{
	return http1_field(&x->internal->head, name);
}

void exchange_each_header(const struct exchange *x,
			  void (*call)(void *arg, const char *name, const char *value), void *arg)
{
	const struct http1_head *h = &x->internal->head;

	for (size_t i = 0; i < h->count; i++)
		call(arg, h->fields[i].name, h->fields[i].value);
}

const char *exchange_arg(const struct exchange *x, const char *name)
{
	for (size_t i = 0; i < x->arg_count; i++)
		if (str_equal(x->args[i].name, name))
			return x->args[i].value;
	return NULL;
}

static int arg_number(const struct exchange *x, const char *name,
		      int (*parse)(const char *s, uint64_t *ret, struct err *e), uint64_t max,
		      uint64_t *ret, struct err *e)
{
	const char *value = exchange_arg(x, name);
	struct err inner = {0};
	uint64_t n = *ret;

	if (value && parse(value, &n, &inner) < 0)
		return err_field(e, ERR_INVALID, name, "%s: %.300s", name, inner.msg);
	if (value && n > max)
		return err_field(e, ERR_INVALID, name, "%s: '%.40s' is too large", name, value);
	*ret = n;
	return 0;
}

int exchange_arg_uint(const struct exchange *x, const char *name, uint64_t dflt, uint64_t max,
		      uint64_t *ret, struct err *e)
{
	*ret = dflt;
	return arg_number(x, name, parse_count, max, ret, e);
}

int exchange_arg_time(const struct exchange *x, const char *name, uint64_t dflt_ms, uint64_t max_ms,
		      uint64_t *ret_ms, struct err *e)
{
	*ret_ms = dflt_ms;
	return arg_number(x, name, parse_time, max_ms, ret_ms, e);
}

bool exchange_arg_flag(const struct exchange *x, const char *name)
{
	const char *v = exchange_arg(x, name);

	return v && (!*v || str_equal(v, "1") || str_equal(v, "true") || str_equal(v, "yes"));
}

bool exchange_accepts(const struct exchange *x, const char *type)
{
	const char *accept = exchange_header(x, "Accept");
	size_t len = strlen(type);

	for (; accept && *accept; accept++)
		if (!strncasecmp(accept, type, len) &&
		    (!accept[len] || strchr(",; \t", accept[len])))
			return true;
	return false;
}

/* ---- the body ---- */

void exchange_take_body(struct exchange *x, const struct body_ops *ops, void *arg)
{
	x->internal->ops = ops;
	x->internal->ops_arg = arg;
	exchange_more(x);
}

void exchange_more(struct exchange *x)
{
	struct exchange_internal *in = x->internal;

	in->paused = false;
	if (in->peer)
		peer_kick(in->peer);
}

static bool is_open(const struct exchange *x)
{
	return !x->internal->answered && !x->gone;
}

void exchange_call_back(struct exchange *x)
{
	struct exchange_internal *in = x->internal;

	if (in->ops && !in->end_told && in->complete && is_open(x)) {
		in->end_told = true;
		in->ops->end(in->ops_arg);
	}
	if (in->want_room && in->on_room && !in->finished) {
		in->want_room = false;
		in->on_room(in->room_arg);
	}
}

bool exchange_takes_json(const struct exchange *x)
{
	enum body_mode body = x->route ? x->route->body : BODY_NONE;

	return body == BODY_JSON || body == BODY_JSON_BIG || body == BODY_RPC;
}

/* What is held of the body, in memory or as JSON. The body of a request that is refused is thrown away. */
static size_t hold_body(struct exchange *x, const char *bytes, size_t len)
{
	struct exchange_internal *in = x->internal;
	bool is_rpc = x->route->body == BODY_RPC; /* its door says what is wrong */
	struct err e = {0};

	if (!in->bodies)
		in->bodies = shares_of(manager_shares(x->api->manager), exchange_tenant(x),
				       SHARE_BODIES);
	if (in->held + len > in->body_max) {
		err_set(&e, ERR_LIMIT, "the body is larger than %zu bytes", in->body_max);
		exchange_error_as(x, 413, &e);
	} else if (!budget_take(in->bodies, len)) {
		shares_refuse(SHARE_BODIES, &e);
		exchange_error_as(x, 503, &e);
	} else if (exchange_takes_json(x)) {
		in->held += len;
		idempotency_feed(x, bytes, len);
		if (!in->feed)
			in->feed = json_feed_new(JSON_FEED_VALUES, is_rpc);
		if (json_feed_add(in->feed, bytes, len, &e) < 0 && !is_rpc)
			exchange_error(x, &e);
	} else {
		in->held += len;
		idempotency_feed(x, bytes, len);
		buf_add(&in->body, bytes, len);
	}
	return len;
}

/* A length that was not announced is checked as the body arrives. */
static bool is_over(const struct exchange *x, size_t more)
{
	uint64_t most = x->api->config->max_upload_bytes;

	return most && x->internal->received + more > most;
}

size_t exchange_feed(struct exchange *x, const char *bytes, size_t len)
{
	struct exchange_internal *in = x->internal;
	size_t taken;

	if (in->has_reply || in->answered) {
		in->discarded += len;
		return len;
	}
	if (x->route->body != BODY_STREAM) {
		in->received += len;
		return hold_body(x, bytes, len);
	}
	if (!in->ops || in->paused)
		return 0;
	if (is_over(x, len)) {
		in->peer->broken = true;
		return 0;
	}
	taken = in->ops->take(in->ops_arg, bytes, len);
	in->received += taken;
	in->paused = taken < len;
	return taken;
}

void exchange_complete(struct exchange *x)
{
	struct exchange_internal *in = x->internal;

	in->complete = true;
	if (!in->called && !reply_is_begun(x))
		router_body(x);
}
