/* Exchanges: their life, what was asked, the request body, and the work of the access handler. */
#include "api/http/http_internal.h"

#include "auth/shares.h"
#include "policy/config.h"
#include "manager/manager.h"
#include "wire/http1.h"

#include <strings.h>
#include <sys/socket.h>

/* ---- life ---- */

struct whole_exchange {
	struct exchange x;
	struct exchange_internal in;
};

static void run_task(void *arg);
static void on_hup(void *arg, uint32_t events);

struct exchange *exchange_new(struct peer *p, const char *uri)
{
	struct whole_exchange *w = must_alloc(calloc(1, sizeof(*w)));
	struct exchange_internal *in = &w->in;
	size_t len = strlen(uri);

	in->server = p->server;
	in->peer = p;
	in->uri = str_copy(uri);
	in->scratch = must_alloc(malloc(2 * len + 2 * EXCHANGE_PARAMS + 2 * EXCHANGE_ARGS + 8));
	in->task = (struct loop_task){.call = run_task, .arg = &w->x};
	in->hup = (struct loop_watch){
		.fd = p->fd, .events = EPOLLRDHUP, .call = on_hup, .arg = &w->x};
	in->length = EXCHANGE_UNKNOWN_LENGTH;
	w->x.api = p->server->api;
	w->x.internal = in;
	w->x.content_length = -1;
	w->x.started_ns = now_ns();
	w->x.method = "";
	w->x.path = w->x.query = "";
	snprintf(w->x.caller.address, sizeof(w->x.caller.address), "%s", p->address);
	p->server->exchange_count++;
	return &w->x;
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
		in->output =
			shares_of(manager_shares(x->api->manager), x->caller.token, SHARE_OUTPUT);
	budget_count(in->output, now);
	budget_give(in->output, in->counted);
	in->counted = now;
}

void exchange_keep(struct exchange *x, size_t bytes)
{
	x->internal->extra += bytes;
	exchange_count(x);
}

static void exchange_free(struct exchange *x)
{
	struct exchange_internal *in = x->internal;
	struct loop *l = x->api->loop;

	loop_unwatch(l, &in->hup);
	loop_task_remove(l, &in->task);
	free_owned(in);
	in->reply_len = in->extra = 0;
	buf_done(&in->out);
	exchange_count(x);
	json_decref(x->json);
	in->server->buffered -= in->body.len;
	buf_done(&in->body);
	list_done(&in->names);
	list_done(&in->values);
	free(in->reply);
	free(in->reply_type);
	free(in->uri);
	free(in->scratch);
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

/* ---- suspending; the client's end ---- */

void exchange_suspend(struct exchange *x)
{
	struct exchange_internal *in = x->internal;

	if (in->suspended || !in->conn)
		return;
	in->suspended = true;
	MHD_suspend_connection(in->conn);
	peer_set_timer(in->peer, 0);
	loop_watch(x->api->loop, &in->hup);
}

void exchange_resume(struct exchange *x)
{
	struct exchange_internal *in = x->internal;

	if (!in->suspended)
		return;
	in->suspended = false;
	loop_unwatch(x->api->loop, &in->hup);
	MHD_resume_connection(in->conn);
	server_kick(in->server);
}

void exchange_tell_gone(struct exchange *x)
{
	struct exchange_internal *in = x->internal;

	x->gone = true;
	in->cut = true;
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

static void on_hup(void *arg, uint32_t events)
{
	struct exchange *x = arg;

	exchange_hold(x);
	if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
		exchange_tell_gone(x);
		exchange_resume(x);
	} else {
		reply_write_direct(x);
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
	if (!well || !in->queued || (in->is_stream && !in->finished))
		exchange_tell_gone(x);
	in->peer = NULL;
	in->conn = NULL;
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
	struct MHD_Connection *c = x->internal->conn;

	return c ? MHD_lookup_connection_value(c, MHD_HEADER_KIND, name) : NULL;
}

struct header_visit {
	void (*call)(void *arg, const char *name, const char *value);
	void *arg;
};

static enum MHD_Result each_header(void *cls, enum MHD_ValueKind kind, const char *key,
				   const char *value)
{
	struct header_visit *each = cls;

	each->call(each->arg, key, value ? value : "");
	return MHD_YES;
}

void exchange_each_header(const struct exchange *x,
			  void (*call)(void *arg, const char *name, const char *value), void *arg)
{
	struct header_visit each = {call, arg};

	if (x->internal->conn)
		MHD_get_connection_values(x->internal->conn, MHD_HEADER_KIND, each_header, &each);
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
	if (in->complete)
		loop_task_add(x->api->loop, &in->task);
	else if (!in->in_mhd)
		exchange_resume(x);
}

static void tell_end(struct exchange *x)
{
	struct exchange_internal *in = x->internal;

	if (!in->ops || in->end_told || !in->complete || in->has_reply || in->is_stream || x->gone)
		return;
	in->end_told = true;
	in->ops->end(in->ops_arg);
}

static void run_task(void *arg)
{
	struct exchange *x = arg;
	struct exchange_internal *in = x->internal;

	exchange_hold(x);
	tell_end(x);
	if (in->want_room && in->on_room && !in->finished) {
		in->want_room = false;
		in->on_room(in->room_arg);
	}
	exchange_release(x);
}

static enum MHD_Result discard_body(struct exchange_internal *in, size_t *size)
{
	in->discarded += *size;
	*size = 0;
	/* The answer is out already: a client that still sends does not read it. */
	return in->early_reply && in->discarded > LATE_MAX ? MHD_NO : MHD_YES;
}

static enum MHD_Result buffer_body(struct exchange *x, const char *data, size_t *size)
{
	struct exchange_internal *in = x->internal;
	struct err e = {0};

	if (in->body.len + *size > in->body_max)
		err_set(&e, ERR_LIMIT, "the body is larger than %zu bytes", in->body_max);
	else if (in->server->buffered + *size > BUFFERED_MAX)
		err_set(&e, ERR_LIMIT, "too many requests are being read; try again");
	if (e.kind) {
		in->discarding = true;
		exchange_error_as(x, in->body.len + *size > in->body_max ? 413 : 503, &e);
		return discard_body(in, size);
	}
	buf_add(&in->body, data, *size);
	in->server->buffered += *size;
	*size = 0;
	return MHD_YES;
}

/* A length that was not announced is checked as the body arrives. */
static bool is_over(const struct exchange *x, size_t more)
{
	uint64_t most = x->api->config->max_upload_bytes;

	return most && x->internal->received + more > most;
}

static enum MHD_Result take_some(struct exchange *x, const char *data, size_t *size)
{
	struct exchange_internal *in = x->internal;
	size_t taken;

	peer_set_timer(in->peer, in->early_reply ? ENDING_MS : STALL_MS);
	if (in->discarding || in->has_reply || in->is_stream)
		return discard_body(in, size);
	if (x->route->body != BODY_STREAM)
		return buffer_body(x, data, size);
	if (!in->ops || in->paused) {
		exchange_suspend(x);
		return MHD_YES;
	}
	if (is_over(x, *size))
		return MHD_NO;
	taken = in->ops->take(in->ops_arg, data, *size);
	in->received += taken;
	if (in->cut)
		return MHD_NO;
	if (in->has_reply)
		reply_early(x);
	if (in->has_reply || in->is_stream)
		return discard_body(in, size);
	*size -= taken;
	if (*size) {
		in->paused = true;
		exchange_suspend(x);
	}
	return MHD_YES;
}

/* ---- the access handler ---- */

static enum MHD_Result answer_or_wait(struct exchange *x)
{
	struct exchange_internal *in = x->internal;

	if (in->cut || in->early_reply)
		return MHD_NO;
	if (in->has_reply || in->is_stream || in->is_upgrade)
		return reply_queue(x);
	exchange_suspend(x);
	return MHD_YES;
}

static bool is_body_small(const struct exchange *x)
{
	bool chunked = exchange_header(x, "Transfer-Encoding") != NULL;

	return x->content_length < 0 ? !chunked : x->content_length <= DISCARD_MAX;
}

/* Fields that must not occur twice, since a proxy may use the other one. */
static const char *const single[] = {"Authorization", "Content-Length", "Host",
				     "Transfer-Encoding"};

struct field_check {
	unsigned count[ARRAY_LEN(single)];
	const char *wrong;
};

static void judge_field(void *arg, const char *name, const char *value)
{
	struct field_check *r = arg;

	if (!http1_is_token(name) || strpbrk(value, "\r\n"))
		r->wrong = "a malformed header field";
	for (size_t i = 0; i < ARRAY_LEN(single); i++)
		if (!strcasecmp(name, single[i]) && ++r->count[i] > 1)
			r->wrong = "a header field is there twice";
}

/*
 * A head that can be read in two ways can smuggle a request past a proxy between the client and the
 * daemon; no honest client sends one. What follows it on the connection is not read.
 */
static bool is_ambiguous(struct exchange *x)
{
	const char *encoding = exchange_header(x, "Transfer-Encoding");
	struct field_check r = {0};
	struct err e = {0};

	exchange_each_header(x, judge_field, &r);
	if (encoding && x->content_length >= 0)
		r.wrong = "both Content-Length and Transfer-Encoding";
	else if (encoding && strcasecmp(encoding, "chunked") != 0)
		r.wrong = "Transfer-Encoding: only chunked is known";
	else if (exchange_header(x, "Content-Length") && x->content_length < 0)
		r.wrong = "Content-Length: not a length";
	else if (!http1_is_token(x->method))
		r.wrong = "a malformed method";
	if (!r.wrong)
		return false;
	err_set(&e, ERR_INVALID, "%s", r.wrong);
	exchange_set_header(x, "Connection", "close");
	exchange_error(x, &e);
	return true;
}

static int64_t said_length(const struct exchange *x)
{
	const char *text = exchange_header(x, "Content-Length");
	struct err e;
	uint64_t n;

	if (!text || parse_count(text, &n, &e) < 0 || n > INT64_MAX)
		return -1;
	return (int64_t)n;
}

static enum MHD_Result begin_request(struct exchange *x, struct MHD_Connection *c,
				     const char *method)
{
	struct exchange_internal *in = x->internal;

	in->begun = true;
	in->conn = c;
	snprintf(in->method, sizeof(in->method), "%s", method);
	x->method = in->method;
	x->content_length = said_length(x);
	peer_set_timer(in->peer, STALL_MS);
	if (is_ambiguous(x))
		return reply_queue(x);
	router_admit(x);
	/* The request is refused: a large body is not read, and the connection ends. */
	if (in->has_reply && exchange_header(x, "Expect"))
		return reply_queue(x);
	if (in->has_reply && !is_body_small(x))
		reply_early(x);
	return MHD_YES;
}

enum MHD_Result exchange_step(struct exchange *x, struct MHD_Connection *c, const char *method,
			      const char *data, size_t *size)
{
	struct exchange_internal *in = x->internal;

	if (!in->begun)
		return begin_request(x, c, method);
	if (in->cut)
		return MHD_NO;
	if (*size)
		return take_some(x, data, size);
	if (!in->complete) {
		in->complete = true;
		peer_set_timer(in->peer, 0);
		if (!in->called && !in->has_reply)
			router_body(x);
		else
			tell_end(x);
	}
	return answer_or_wait(x);
}
