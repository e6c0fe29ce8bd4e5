/* Answers: whole ones, errors, streams, server-sent events, and how they are written to the socket. */
#include "api/http/http_internal.h"

#include "audit/audit.h"
#include "base/clean.h"
#include "auth/gate.h"
#include "base/base64.h"
#include "base/log.h"

#include <stdarg.h>
#include <strings.h>
#include <sys/socket.h>

#define DIRECT_MIN (4u << 10) /* pieces of a stream that are not copied if the socket takes them */
#define PING_MS 15000
#define REFUSALS_PER_MINUTE 120 /* in the audit log, of one token or address */
#define REFUSALS_AT_ONCE 100

/* ---- headers ---- */

void exchange_add_header(struct exchange *x, const char *name, const char *value)
{
	if (strpbrk(name, "\r\n:") || strpbrk(value, "\r\n"))
		return;
	list_add(&x->internal->names, name);
	list_add(&x->internal->values, value);
}

void exchange_set_header(struct exchange *x, const char *name, const char *value)
{
	if (strpbrk(value, "\r\n"))
		return;
	for (size_t i = 0; i < x->internal->names.count; i++)
		if (strcasecmp(x->internal->names.items[i], name) == 0) {
			free(x->internal->values.items[i]);
			x->internal->values.items[i] = str_copy(value);
			return;
		}
	exchange_add_header(x, name, value);
}

static const char *date_now(struct server *s)
{
	time_t now = time(NULL);
	struct tm tm;

	if (now != s->date_at && gmtime_r(&now, &tm)) {
		strftime(s->date, sizeof(s->date), "%a, %d %b %Y %H:%M:%S GMT", &tm);
		s->date_at = now;
	}
	return s->date;
}

/* Will another request be read after this one? A long rest of its body is not read to get there. */
static bool is_kept_alive(const struct exchange *x)
{
	const struct exchange_internal *in = x->internal;
	const char *connection = exchange_header(x, "Connection");

	if (in->peer->last || in->server->draining || in->head.is_old)
		return false;
	if (connection && http1_list_has(connection, "close"))
		return false;
	if (in->complete || in->peer->body.done)
		return true;
	return !exchange_header(x, "Expect") && x->content_length >= 0 &&
	       x->content_length - (int64_t)(in->received + in->discarded) <= DISCARD_MAX;
}

static void add_framing(struct exchange *x)
{
	struct exchange_internal *in = x->internal;
	int64_t length = in->is_stream ? in->length : (int64_t)in->reply_len;
	char text[32];

	in->no_content = str_equal(x->method, "HEAD") || in->status == 204 || in->status == 304;
	if (in->is_upgrade) {
		http1_add_field(&in->pre, "Connection", in->status == 101 ? "Upgrade" : "close");
		return;
	}
	in->chunked = length < 0 && !in->head.is_old && !in->no_content;
	snprintf(text, sizeof(text), "%" PRId64, length);
	if (in->chunked)
		http1_add_field(&in->pre, "Transfer-Encoding", "chunked");
	else if (length >= 0 && in->status != 204 && !(in->status == 304 && !length))
		http1_add_field(&in->pre, "Content-Length", text);
	else if (length < 0 && !in->no_content)
		in->peer->last = true; /* its end is the end of the connection */
	if (!is_kept_alive(x)) {
		in->peer->last = true;
		http1_add_field(&in->pre, "Connection", "close");
	}
}

static void make_head(struct exchange *x)
{
	struct exchange_internal *in = x->internal;
	char line[64];

	in->head_made = true;
	snprintf(line, sizeof(line), "HTTP/1.1 %d %s\r\n", in->status, http1_reason(in->status));
	buf_add(&in->pre, line, strlen(line));
	http1_add_field(&in->pre, "Date", date_now(in->server));
	for (size_t i = 0; i < in->names.count; i++)
		http1_add_field(&in->pre, in->names.items[i], in->values.items[i]);
	if (in->reply_type)
		http1_add_field(&in->pre, "Content-Type", in->reply_type);
	/* Bytes from sandboxes are data: browsers must not guess a type. */
	http1_add_field(&in->pre, "X-Content-Type-Options", "nosniff");
	add_framing(x);
	buf_add(&in->pre, "\r\n", 2);
	if (in->no_content) {
		in->reply_at = in->reply_len;
		buf_done(&in->out);
	}
}

/* ---- whole answers ---- */

/* The answer is known. It is written now as far as possible; what follows from it is done later. */
static void answered(struct exchange *x)
{
	struct exchange_internal *in = x->internal;

	exchange_hold(x);
	idempotency_end(x);
	metrics_answer(x->api->metrics, x, in->aborted ? 599 : in->status);
	if (in->peer && !x->gone) {
		reply_flush(x);
		peer_kick(in->peer);
	}
	exchange_release(x);
}

void exchange_reply_take(struct exchange *x, int status, const char *type, char *bytes, size_t len)
{
	struct exchange_internal *in = x->internal;

	if (reply_is_begun(x)) {
		log_error("a request was answered twice", "path", x->path);
		free(bytes);
		return;
	}
	in->has_reply = in->answered = true;
	in->status = status;
	in->reply = bytes;
	in->reply_len = len;
	in->reply_type = type ? str_copy(type) : NULL;
	exchange_count(x);
	answered(x);
}

void exchange_reply(struct exchange *x, int status, const char *type, const void *bytes, size_t len)
{
	char *copy = must_alloc(malloc(len + 1));

	memcpy(copy, len ? bytes : "", len);
	exchange_reply_take(x, status, type, copy, len);
}

void exchange_json(struct exchange *x, int status, json_t *value)
{
	char *text;

	if (!reply_is_begun(x) && long_json_reply(x, status, value))
		return;
	text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(12));
	json_decref(value);
	if (!text) {
		log_error("an answer cannot be written as JSON", "path", x->path);
		text = str_copy("{\"error\":{\"kind\":\"system\",\"message\":\"no answer\"}}");
		status = 500;
	}
	exchange_reply_take(x, status, "application/json", text, strlen(text));
}

/* ---- errors ---- */

int exchange_status_of(const struct err *e)
{
	static const int statuses[] = {
		[ERR_INVALID] = 400,  [ERR_DENIED] = 403, [ERR_NOT_FOUND] = 404,
		[ERR_CONFLICT] = 409, [ERR_LIMIT] = 429,  [ERR_UNSUPPORTED] = 501,
		[ERR_KIND_COUNT] = 0,
	};

	if (e->kind == ERR_LIMIT && (e->errnum == EFBIG || e->errnum == E2BIG))
		return 413;
	if (e->kind < ERR_KIND_COUNT && statuses[e->kind])
		return statuses[e->kind];
	return e->errnum == EBUSY || e->errnum == EAGAIN ? 503 : 500;
}

/*
 * What a client is told of an error beside its message: may the same request succeed later, and whose fault
 * is it? By the status where that says more than the error's kind.
 */
static const struct kind_row {
	int status; /* 0: by the kind */
	enum err_kind kind;
	const char *name;
	bool retryable;
	const char *fault;
} kinds[] = {
	{401, 0, "unauthenticated", false, "caller"},
	{405, 0, "method_not_allowed", false, "caller"},
	{408, 0, "timeout", true, "caller"},
	{413, 0, "too_large", false, "caller"},
	{431, 0, "too_large", false, "caller"},
	{502, 0, "bad_gateway", true, "program"},
	{503, 0, "busy", true, "cloche"},
	{0, ERR_INVALID, NULL, false, "caller"},
	{0, ERR_DENIED, NULL, false, "caller"},
	{0, ERR_NOT_FOUND, NULL, false, "caller"},
	{0, ERR_CONFLICT, NULL, false, "caller"},
	{0, ERR_LIMIT, NULL, true, "caller"},
	{0, ERR_UNSUPPORTED, NULL, false, "caller"},
	{0, ERR_SYSTEM, NULL, false, "cloche"}, /* the last: for whatever is not there */
};

static const struct kind_row *row_of(int status, const struct err *e)
{
	size_t i = 0;

	while (i < ARRAY_LEN(kinds) - 1 &&
	       (kinds[i].status ? kinds[i].status != status : kinds[i].kind != e->kind))
		i++;
	return &kinds[i];
}

static const char *name_of(int status, const struct err *e)
{
	const char *name = row_of(status, e)->name;

	return name ? name : err_kind_name(e->kind);
}

json_t *exchange_error_body(int status, const struct err *e)
{
	const struct kind_row *row = row_of(status, e);
	json_t *inner = json_pack("{s:s, s:o}", "kind", name_of(status, e), "message",
				  text_json_of(e->msg));

	json_object_set_new(inner, "field", e->field[0] ? text_json_of(e->field) : json_null());
	json_object_set_new(inner, "retryable", json_boolean(row->retryable));
	json_object_set_new(inner, "fault", json_string(row->fault));
	return json_pack("{s:o}", "error", inner);
}

static void audit_refusal(struct exchange *x, const struct err *e)
{
	struct audit_entry entry = {0};
	char address[64];

	gate_neighbours(x->caller.address, address, sizeof(address));
	if (!x->api->audit || (e->kind != ERR_DENIED && e->kind != ERR_LIMIT))
		return;
	/* Who is refused again and again must not fill the audit log, nor the way to it. */
	if (buckets_take(x->internal->server->refusals,
			 x->caller.token[0] ? caller_id(&x->caller) : address, REFUSALS_PER_MINUTE,
			 REFUSALS_AT_ONCE, now_ns(), NULL))
		return;
	exchange_audit_entry(x, &entry, "deny", e->msg);
	audit_write(x->api->audit, &entry, NULL, NULL);
}

void exchange_error_as(struct exchange *x, int status, const struct err *e)
{
	metrics_error(x->api->metrics, name_of(status, e));
	if (!x->internal->quiet)
		audit_refusal(x, e);
	if (status == 401)
		exchange_set_header(x, "WWW-Authenticate", "Bearer realm=\"cloche\"");
	if ((status == 429 || status == 503) && !x->internal->retry_set)
		exchange_set_header(x, "Retry-After", "1");
	if (x->door && x->door->error)
		x->door->error(x, status, e);
	else
		exchange_json(x, status, exchange_error_body(status, e));
}

void exchange_error(struct exchange *x, const struct err *e)
{
	exchange_error_as(x, exchange_status_of(e), e);
}

void exchange_fail(struct exchange *x, enum err_kind kind, const char *fmt, ...)
{
	struct err e = {.kind = kind};
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(e.msg, sizeof(e.msg), fmt, ap);
	va_end(ap);
	exchange_error(x, &e);
}

void exchange_refuse(struct exchange *x, const char *field, const char *fmt, ...)
{
	struct err e = {.kind = ERR_INVALID};
	va_list ap;
	int n;

	n = snprintf(e.msg, sizeof(e.msg), "%s: ", field);
	va_start(ap, fmt);
	vsnprintf(e.msg + n, sizeof(e.msg) - (size_t)n, fmt, ap);
	va_end(ap);
	snprintf(e.field, sizeof(e.field), "%s", field);
	exchange_error(x, &e);
}

/* ---- to the socket ---- */

bool reply_is_begun(const struct exchange *x)
{
	const struct exchange_internal *in = x->internal;

	return in->has_reply || in->is_stream || in->is_upgrade;
}

static bool has_content(const struct exchange_internal *in)
{
	return in->out.len || in->reply_at < in->reply_len;
}

bool reply_waits(const struct exchange *x)
{
	const struct exchange_internal *in = x->internal;

	return in->pre.len || in->post || has_content(in);
}

bool reply_is_sent(const struct exchange *x)
{
	const struct exchange_internal *in = x->internal;

	if (!in->head_made || reply_waits(x))
		return false;
	if (!in->is_stream || in->no_content)
		return true;
	return in->finished && (in->ended || !in->chunked);
}

/* What was sent of it, in this order: pre, content, post. */
static void drop_sent(struct exchange_internal *in, size_t n, const char **content, size_t *len)
{
	size_t part = n < in->pre.len ? n : in->pre.len;

	buf_drop(&in->pre, part);
	n -= part;
	part = n < *len ? n : *len;
	*content += part;
	*len -= part;
	n -= part;
	if (in->post && !*len) {
		in->post += n;
		if (!*in->post)
			in->post = NULL;
	}
}

/* Sends once. Returns how much of the content was sent; *ret_full: the socket takes no more. */
static size_t send_once(struct exchange *x, const char *content, size_t len, bool *ret_full)
{
	struct exchange_internal *in = x->internal;
	size_t before = len, all;
	struct iovec parts[3] = {
		{in->pre.len ? buf_head(&in->pre) : NULL, in->pre.len},
		{(char *)content, len},
		{(char *)in->post, in->post ? strlen(in->post) : 0},
	};
	const struct msghdr m = {.msg_iov = parts, .msg_iovlen = 3};
	ssize_t n;

	all = parts[0].iov_len + parts[1].iov_len + parts[2].iov_len;
	n = sendmsg(in->peer->watch.fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	*ret_full = n < (ssize_t)all;
	in->peer->can_write = !*ret_full;
	if (n < 0 && errno != EAGAIN && errno != EINTR)
		in->peer->broken = true;
	if (n <= 0)
		return 0;
	in->peer->moved += (size_t)n;
	drop_sent(in, (size_t)n, &content, &len);
	return before - len;
}

/* A chunk begins with its size and ends with a line's end; the last one has no content. */
static void begin_chunk(struct exchange_internal *in, size_t len)
{
	char size[24];

	if (in->ended || (!len && !in->finished))
		return;
	in->ended = in->finished && !in->aborted;
	if (!len) {
		buf_add(&in->pre, "0\r\n\r\n", 5);
		return;
	}
	buf_add(&in->pre, size, (size_t)snprintf(size, sizeof(size), "%zx\r\n", len));
	in->chunk_left = len;
	in->post = in->ended ? "\r\n0\r\n\r\n" : "\r\n";
}

static size_t flush_once(struct exchange *x, bool *ret_full)
{
	struct exchange_internal *in = x->internal;
	const char *content = in->out.len ? buf_head(&in->out) : NULL;
	size_t len = in->out.len, sent;

	if (in->chunked && !in->chunk_left && !in->post)
		begin_chunk(in, len);
	if (in->chunked)
		len = in->chunk_left;
	if (!in->is_stream) {
		content = in->reply ? in->reply + in->reply_at : NULL;
		len = in->reply_len - in->reply_at;
	}
	len = len < TURN_BYTES ? len : TURN_BYTES;
	/* What follows the content must not overtake the rest of it. */
	if (in->chunked && len < in->chunk_left) {
		const char *post = take_ptr(in->post);

		sent = send_once(x, content, len, ret_full);
		in->post = post;
	} else {
		sent = send_once(x, content, len, ret_full);
	}
	if (!in->is_stream) {
		in->reply_at += sent;
		return sent;
	}
	buf_drop(&in->out, sent);
	in->chunk_left -= in->chunked ? sent : 0;
	in->want_room = in->want_room || sent;
	return sent;
}

void reply_flush(struct exchange *x)
{
	struct exchange_internal *in = x->internal;
	size_t sent = 0;
	bool full = false;

	if (!in->peer || in->peer->broken || x->gone || !reply_is_begun(x))
		return;
	if (!in->head_made)
		make_head(x);
	full = !in->peer->can_write;
	while (!full && !in->peer->broken && sent < TURN_BYTES &&
	       (reply_waits(x) || (in->chunked && in->finished && !in->ended && !in->aborted)))
		sent += flush_once(x, &full);
	/* The client has the beginning, and sees that the rest is missing. */
	if (in->aborted)
		in->peer->broken = true;
	if (in->is_stream)
		exchange_count(x);
	if (in->want_room && in->on_room && !in->finished)
		peer_kick(in->peer);
}

/* A long piece is written from where it is. Returns how much of it was sent or is announced as a chunk. */
static size_t write_direct(struct exchange *x, const char *bytes, size_t len)
{
	struct exchange_internal *in = x->internal;
	size_t sent;
	bool full;

	if (!in->head_made)
		make_head(x);
	if (in->no_content)
		return len;
	if (in->chunked)
		begin_chunk(in, len);
	sent = send_once(x, bytes, len, &full);
	if (in->chunked)
		in->chunk_left = len - sent;
	return sent;
}

/* ---- streams ---- */

void exchange_stream(struct exchange *x, int status, const char *type, int64_t length)
{
	struct exchange_internal *in = x->internal;

	if (reply_is_begun(x))
		return;
	in->is_stream = true;
	in->status = status;
	in->length = length;
	in->reply_type = type ? str_copy(type) : NULL;
	if (in->peer)
		peer_kick(in->peer);
}

void exchange_write(struct exchange *x, const void *bytes, size_t len)
{
	struct exchange_internal *in = x->internal;
	size_t sent = 0;

	if (x->gone || !in->peer || in->peer->broken || in->finished || in->no_content)
		return;
	/* More than was announced would be taken for the next answer. */
	if (in->length >= 0 && (int64_t)len > in->length - in->written)
		len = (size_t)(in->length - in->written);
	if (!len)
		return;
	in->written += (int64_t)len;
	if (len >= DIRECT_MIN && !has_content(in) && !in->post && in->peer->can_write)
		sent = write_direct(x, bytes, len);
	buf_add(&in->out, (const char *)bytes + sent, len - sent);
	exchange_count(x);
	peer_kick(in->peer);
}

size_t exchange_room(const struct exchange *x)
{
	size_t used = x->internal->out.len;

	if (x->gone)
		return EXCHANGE_WINDOW;
	return used < EXCHANGE_WINDOW ? EXCHANGE_WINDOW - used : 0;
}

void exchange_on_room(struct exchange *x, void (*call)(void *arg), void *arg)
{
	x->internal->on_room = call;
	x->internal->room_arg = arg;
}

static size_t pump_room(void *x)
{
	return exchange_room(x);
}

void exchange_pump(struct exchange *x, struct pump *p)
{
	p->room = pump_room;
	p->to = x;
	exchange_on_room(x, pump_resume, p);
}

void exchange_event(struct exchange *x, const char *name, const char *text, size_t len)
{
	exchange_write(x, "event: ", 7);
	exchange_write(x, name, strlen(name));
	exchange_write(x, "\ndata: ", 7);
	exchange_write(x, text, len);
	exchange_write(x, "\n\n", 2);
}

void exchange_finish(struct exchange *x)
{
	struct exchange_internal *in = x->internal;

	if (in->answered)
		return;
	in->finished = in->answered = true;
	/* Less than was announced: the connection is cut, so that the client notices. */
	if (in->length >= 0 && in->written < in->length && !str_equal(x->method, "HEAD"))
		in->aborted = true;
	answered(x);
}

void exchange_answer_gone(void *exchange)
{
	struct exchange *x = exchange;

	if (x->internal->is_stream)
		exchange_finish(x);
	else
		exchange_fail(x, ERR_SYSTEM, "the client has gone");
}

void exchange_abort(struct exchange *x)
{
	x->internal->aborted = true;
	if (!x->internal->is_stream) {
		exchange_fail(x, ERR_SYSTEM, "the answer was lost");
		return;
	}
	exchange_finish(x);
}

/* ---- server-sent events ---- */

static void send_ping(void *arg)
{
	struct sse *s = arg;

	exchange_write(s->x, ": \n\n", 4);
	loop_timer_set(s->x->api->loop, &s->ping, PING_MS);
}

void sse_open(struct sse *s, struct exchange *x)
{
	s->x = x;
	s->ping = (struct loop_timer){.call = send_ping, .arg = s};
	exchange_set_header(x, "Cache-Control", "no-cache");
	exchange_set_header(x, "X-Accel-Buffering", "no");
	exchange_stream(x, 200, "text/event-stream", EXCHANGE_UNKNOWN_LENGTH);
	loop_timer_set(x->api->loop, &s->ping, PING_MS);
}

void sse_send(struct sse *s, const char *event, json_t *value)
{
	char *text = json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(12));

	json_decref(value);
	if (text)
		exchange_event(s->x, event, text, strlen(text));
	free(text);
}

void sse_close(struct sse *s)
{
	if (s->x)
		loop_timer_stop(s->x->api->loop, &s->ping);
}

/* ---- bytes as JSON ---- */

json_t *text_json(const char *bytes, size_t len)
{
	json_t *whole = json_stringn(bytes, len);
	struct buf b = {0};

	if (whole)
		return whole;
	for (size_t i = 0; i < len;) {
		size_t n = utf8_sequence(bytes + i, len - i);

		buf_add(&b, n ? bytes + i : "\xef\xbf\xbd", n ? n : 3);
		i += n ? n : 1;
	}
	whole = must_alloc(json_stringn_nocheck(b.len ? buf_head(&b) : "", b.len));
	buf_done(&b);
	return whole;
}

json_t *text_json_of(const char *text)
{
	return text_json(text, strlen(text));
}

json_t *text_json_base64(const void *bytes, size_t len)
{
	char *text = must_alloc(malloc(BASE64_ROOM(len) + 1));
	size_t n = base64_encode(text, bytes, len);
	json_t *value = must_alloc(json_stringn_nocheck(text, n));

	free(text);
	return value;
}

void text_add_cleaned(json_t *to, const struct cleaned *n)
{
	if (cleaned_any(n))
		json_object_set_new(
			to, "cleaned",
			json_pack("{s:I, s:I, s:I, s:I}", "invalid", (json_int_t)n->invalid,
				  "control", (json_int_t)n->control, "invisible",
				  (json_int_t)n->invisible, "secrets", (json_int_t)n->secrets));
}
