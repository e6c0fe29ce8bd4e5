/* Answers: whole ones, errors, streams, server-sent events, and how libmicrohttpd gets them. */
#include "api/http/http_internal.h"

#include "audit/audit.h"
#include "base/base64.h"
#include "base/log.h"
#include "wire/http1.h"

#include <stdarg.h>
#include <strings.h>
#include <sys/socket.h>

#define BLOCK (128u << 10)
#define PING_MS 15000

/* ---- headers ---- */

void exchange_set_header(struct exchange *x, const char *name, const char *value)
{
	if (strpbrk(name, "\r\n:") || strpbrk(value, "\r\n"))
		return;
	for (size_t i = 0; i < x->internal->names.count; i++)
		if (strcasecmp(x->internal->names.items[i], name) == 0) {
			free(x->internal->values.items[i]);
			x->internal->values.items[i] = str_copy(value);
			return;
		}
	list_add(&x->internal->names, name);
	list_add(&x->internal->values, value);
}

struct MHD_Response *reply_add_headers(struct exchange *x, struct MHD_Response *r)
{
	struct exchange_internal *in = x->internal;

	if (!r)
		return NULL;
	for (size_t i = 0; i < in->names.count; i++)
		MHD_add_response_header(r, in->names.items[i], in->values.items[i]);
	if (in->reply_type)
		MHD_add_response_header(r, "Content-Type", in->reply_type);
	/* Bytes from sandboxes are data: browsers must not guess a type. */
	MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
	if (in->server->draining && !in->is_upgrade)
		MHD_add_response_header(r, "Connection", "close");
	return r;
}

/* ---- whole answers ---- */

/* The answer is known: it is queued now, later, or never if the client has gone. */
static void answered(struct exchange *x)
{
	struct exchange_internal *in = x->internal;

	exchange_hold(x);
	if (in->called || in->begun)
		metrics_answer(x->api->metrics, x, in->status);
	if (in->peer && !x->gone && in->begun && !in->complete && !in->in_mhd && in->has_reply)
		reply_early(x);
	else
		exchange_resume(x);
	exchange_release(x);
}

void exchange_reply_take(struct exchange *x, int status, const char *type, char *bytes, size_t len)
{
	struct exchange_internal *in = x->internal;

	if (in->has_reply || in->is_stream || in->is_upgrade) {
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
	char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(12));

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

/* The kind by the status where that says more than the error. */
static const char *name_of(int status, const struct err *e)
{
	static const struct {
		int status;
		const char *kind;
	} names[] = {
		{401, "unauthenticated"}, {405, "method_not_allowed"}, {408, "timeout"},
		{413, "too_large"},	  {502, "bad_gateway"},	       {503, "busy"},
	};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (names[i].status == status)
			return names[i].kind;
	return err_kind_name(e->kind);
}

json_t *exchange_error_body(int status, const struct err *e)
{
	json_t *inner = json_pack("{s:s, s:o}", "kind", name_of(status, e), "message",
				  text_json_of(e->msg));

	json_object_set_new(inner, "field", e->field[0] ? text_json_of(e->field) : json_null());
	return json_pack("{s:o}", "error", inner);
}

static void audit_refusal(struct exchange *x, const struct err *e)
{
	struct audit_entry entry = {0};

	if (!x->api->audit || (e->kind != ERR_DENIED && e->kind != ERR_LIMIT))
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

/* ---- handing it to libmicrohttpd ---- */

/*
 * libmicrohttpd 0.9.75 marks a connection as closed when its reader fails, but cleans up only after all
 * connections that were idle for longer, which may take minutes. Connections with a time-out of their
 * own are cleaned up at once.
 */
static ssize_t break_connection(struct exchange *x)
{
	MHD_set_connection_option(x->internal->conn, MHD_CONNECTION_OPTION_TIMEOUT, 1u);
	return MHD_CONTENT_READER_END_WITH_ERROR;
}

/*
 * Long bodies are written directly from the guest's frame to the socket: libmicrohttpd would copy every
 * byte once more and run its loop for each block. libmicrohttpd sends the head, of an answer of unknown
 * length, to which we add Content-Length. While we write, the connection is suspended.
 */
static void flush_direct(struct exchange *x)
{
	struct exchange_internal *in = x->internal;

	while (in->out.len) {
		ssize_t n = send(in->peer->fd, buf_head(&in->out), in->out.len,
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n <= 0)
			break;
		buf_drop(&in->out, (size_t)n);
	}
	exchange_count(x);
	if (in->suspended)
		loop_change(x->api->loop, &in->hup, EPOLLRDHUP | (in->out.len ? EPOLLOUT : 0));
	if (!in->out.len && in->finished)
		exchange_resume(x);
}

void reply_write_direct(struct exchange *x)
{
	struct exchange_internal *in = x->internal;

	flush_direct(x);
	if (!in->finished) {
		in->want_room = true;
		loop_task_add(x->api->loop, &in->task);
	}
}

static void write_direct(struct exchange *x, const char *bytes, size_t len)
{
	struct exchange_internal *in = x->internal;

	while (!in->out.len && len) {
		ssize_t n = send(in->peer->fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n <= 0)
			break;
		bytes += n;
		len -= (size_t)n;
	}
	buf_add(&in->out, bytes, len);
	exchange_count(x);
	if (len && in->suspended)
		loop_change(x->api->loop, &in->hup, EPOLLRDHUP | EPOLLOUT);
}

static ssize_t read_stream(void *cls, uint64_t pos, char *buf, size_t max)
{
	struct exchange *x = cls;
	struct exchange_internal *in = x->internal;
	size_t n = in->out.len < max ? in->out.len : max;

	if (in->cut || in->aborted)
		return break_connection(x);
	if (in->is_direct && !in->out.len && in->finished)
		return MHD_CONTENT_READER_END_OF_STREAM;
	if (in->is_direct) {
		/* The head is sent: from here on the body is written by us. */
		in->head_sent = true;
		exchange_suspend(x);
		/* If the socket takes everything at once, no event follows: ask for more here. */
		reply_write_direct(x);
		return 0;
	}
	if (n) {
		memcpy(buf, buf_head(&in->out), n);
		buf_drop(&in->out, n);
		exchange_count(x);
		in->want_room = true;
		loop_task_add(x->api->loop, &in->task);
		return (ssize_t)n;
	}
	if (in->finished)
		return MHD_CONTENT_READER_END_OF_STREAM;
	exchange_suspend(x);
	return 0;
}

enum MHD_Result reply_queue(struct exchange *x)
{
	struct exchange_internal *in = x->internal;
	uint64_t length = in->length < 0 ? MHD_SIZE_UNKNOWN : (uint64_t)in->length;
	struct MHD_Response *r;
	enum MHD_Result result;

	if (in->queued)
		return MHD_YES;
	if (in->is_upgrade)
		return upgrade_queue(x);
	in->is_direct = in->is_stream && in->length >= DIRECT_MIN;
	if (in->is_direct) {
		char text[32];

		r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, read_stream, x,
						      NULL);
		snprintf(text, sizeof(text), "%" PRId64, in->length);
		MHD_set_response_options(
			r,
			(enum MHD_ResponseFlags)(MHD_RF_HTTP_1_0_COMPATIBLE_STRICT |
						 MHD_RF_INSANITY_HEADER_CONTENT_LENGTH),
			MHD_RO_END);
		MHD_add_response_header(r, "Content-Length", text);
	} else if (in->is_stream)
		r = MHD_create_response_from_callback(length, BLOCK, read_stream, x, NULL);
	else
		r = MHD_create_response_from_buffer(in->reply_len, take_ptr(in->reply),
						    MHD_RESPMEM_MUST_FREE);
	if (!reply_add_headers(x, r))
		return MHD_NO;
	in->queued = true;
	peer_set_timer(in->peer, 0);
	result = MHD_queue_response(in->conn, (unsigned)in->status, r);
	MHD_destroy_response(r);
	return result;
}

/*
 * libmicrohttpd takes an answer before the body or after it, not in between. A client that uploads
 * should learn at once that its request is refused: so we write the answer to the socket ourselves,
 * close our half, and discard what still arrives for a moment. Closing at once would lose the answer
 * (a reset overtakes data that was not read).
 */
void reply_early(struct exchange *x)
{
	struct exchange_internal *in = x->internal;
	struct buf b = {0};
	char head[128];

	in->discarding = true;
	if (x->content_length >= 0 && x->content_length - (int64_t)in->received <= DISCARD_MAX) {
		exchange_resume(x);
		return;
	}
	in->early_reply = true;
	snprintf(head, sizeof(head),
		 "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Length: %zu\r\n", in->status,
		 MHD_get_reason_phrase_for((unsigned)in->status), in->reply_len);
	buf_add(&b, head, strlen(head));
	for (size_t i = 0; i < in->names.count; i++)
		http1_add_field(&b, in->names.items[i], in->values.items[i]);
	http1_add_field(&b, "Content-Type", in->reply_type ? in->reply_type : "text/plain");
	buf_add(&b, "\r\n", 2);
	buf_add(&b, in->reply, in->reply_len);
	if (send(in->peer->fd, buf_head(&b), b.len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		log_debug("answer lost", "path", x->path);
	buf_done(&b);
	shutdown(in->peer->fd, SHUT_WR);
	peer_set_timer(in->peer, ENDING_MS);
	exchange_resume(x);
}

/* ---- streams ---- */

void exchange_stream(struct exchange *x, int status, const char *type, int64_t length)
{
	struct exchange_internal *in = x->internal;

	if (in->has_reply || in->is_stream || in->is_upgrade)
		return;
	in->is_stream = true;
	in->status = status;
	in->length = length;
	in->reply_type = type ? str_copy(type) : NULL;
	if (in->complete || x->gone)
		exchange_resume(x);
	else
		in->discarding = true;
}

void exchange_write(struct exchange *x, const void *bytes, size_t len)
{
	struct exchange_internal *in = x->internal;

	if (x->gone || !in->peer || !len || in->finished)
		return;
	if (in->head_sent) {
		write_direct(x, bytes, len);
		return;
	}
	buf_add(&in->out, bytes, len);
	exchange_count(x);
	if (in->queued)
		exchange_resume(x);
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
	exchange_hold(x);
	in->finished = in->answered = true;
	metrics_answer(x->api->metrics, x, in->aborted ? 599 : in->status);
	/* Bytes that still wait to be written go first, unless the answer is aborted. */
	if (in->queued && !(in->head_sent && in->out.len && !in->aborted))
		exchange_resume(x);
	exchange_release(x);
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
