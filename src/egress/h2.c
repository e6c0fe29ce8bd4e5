/*
 * HTTP/2 as a stage.
 *
 * Theory of operation: a stream of the client is a struct h2_stream; if its request is allowed, it has a stream of
 * the session to the server as well. Bytes of a body wait in data[side] until the flow control of that side takes
 * them; only then the window of the other side is opened again. So a connection never keeps more than its window
 * (WINDOW) for each direction. A refused request is answered here, and never reaches the server.
 */
#include "egress/h2.h"

#include "egress/h2_fields.h"
#include "egress/secrets.h"

#include <strings.h>

#define STREAMS 100
#define WINDOW (1u << 20)
#define STREAM_WINDOW (256u << 10)

struct h2_stream {
	struct h2 *h;
	struct h2_stream *next, **back;
	int32_t id[2];	 /* -1: there is none, or it is closed */
	bool has_server; /* a stream to the server was opened */
	bool is_head, is_grpc, is_refused, answered;
	bool ended[2];	       /* the side sends no more of this stream */
	struct buf data[2];    /* by the side that it is for */
	bool is_deferred[2];   /* nghttp2 waits for data[side] */
	size_t owed[2];	       /* bytes of the side that its window was not yet opened for again */
	struct h2_fields head; /* that is arriving */
	struct h2_fields trailer[2];
	struct secret_use use;
	struct redact redact;
};

struct h2 {
	struct stage stage;
	struct http_place place;
	nghttp2_session *session[2]; /* by the side that it talks to */
	struct h2_stream *streams;
	bool ended[2], has_failed;
	int status;
	char why[256];
};

static void flush(struct h2 *h);

/* ---- streams ---- */

static struct h2_stream *stream_new(struct h2 *h, int32_t id)
{
	struct h2_stream *s = must_alloc(calloc(1, sizeof(*s)));

	s->h = h;
	s->id[STAGE_CLIENT] = id;
	s->id[STAGE_SERVER] = -1;
	s->next = h->streams;
	s->back = &h->streams;
	if (s->next)
		s->next->back = &s->next;
	h->streams = s;
	return s;
}

static void stream_free(struct h2_stream *s)
{
	*s->back = s->next;
	if (s->next)
		s->next->back = s->back;
	for (int side = 0; side < 2; side++) {
		if (s->id[side] >= 0)
			nghttp2_session_set_stream_user_data(s->h->session[side], s->id[side],
							     NULL);
		buf_done(&s->data[side]);
		h2_fields_done(&s->trailer[side]);
	}
	h2_fields_done(&s->head);
	secret_use_done(&s->use);
	redact_done(&s->redact);
	free(s);
}

static void reset(struct h2_stream *s, enum stage_side side, uint32_t code)
{
	if (s->id[side] >= 0)
		nghttp2_submit_rst_stream(s->h->session[side], NGHTTP2_FLAG_NONE, s->id[side],
					  code);
}

static void resume(struct h2_stream *s, enum stage_side side)
{
	if (!s->is_deferred[side] || s->id[side] < 0)
		return;
	s->is_deferred[side] = false;
	nghttp2_session_resume_data(s->h->session[side], s->id[side]);
}

/* So many bytes of a side were passed on, or thrown away: it may send as many again. */
static void consumed(struct h2_stream *s, enum stage_side from, size_t len)
{
	len = len < s->owed[from] ? len : s->owed[from];
	s->owed[from] -= len;
	if (!len)
		return;
	if (s->id[from] >= 0)
		nghttp2_session_consume(s->h->session[from], s->id[from], len);
	else
		nghttp2_session_consume_connection(s->h->session[from], len);
}

static void submit_trailer(struct h2_stream *s, enum stage_side side)
{
	struct h2_fields *f = &s->trailer[side];
	struct http1_field list[HTTP1_FIELDS];
	nghttp2_nv nva[HTTP1_FIELDS];
	size_t count = h2_fields_list(f, list);

	for (size_t i = 0; i < count; i++)
		h2_nv(&nva[i], list[i].name, list[i].value, false);
	nghttp2_submit_trailer(s->h->session[side], s->id[side], nva, count);
}

static ssize_t read_data(nghttp2_session *session, int32_t id, uint8_t *bytes, size_t room,
			 uint32_t *flags, nghttp2_data_source *source, void *user)
{
	struct h2_stream *s = source->ptr;
	enum stage_side side = session == s->h->session[STAGE_CLIENT] ? STAGE_CLIENT : STAGE_SERVER;
	enum stage_side from = stage_other(side);
	struct buf *b = &s->data[side];
	size_t n = b->len < room ? b->len : room;

	if (!n && !s->ended[from]) {
		s->is_deferred[side] = true;
		return NGHTTP2_ERR_DEFERRED;
	}
	if (n) {
		memcpy(bytes, buf_head(b), n);
		buf_drop(b, n);
		/* Redaction changes lengths; what is held back by it is little. */
		consumed(s, from, b->len ? n : SIZE_MAX);
	}
	if (!b->len && s->ended[from]) {
		*flags |= NGHTTP2_DATA_FLAG_EOF;
		if (s->trailer[side].count) {
			*flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
			submit_trailer(s, side);
		}
	}
	return (ssize_t)n;
}

/* ---- refusals ---- */

/* The program sees why: an answer of gRPC that is nothing but a trailer. */
static void answer_grpc(struct h2_stream *s, const struct http_refusal *r, const char *text)
{
	static const struct {
		int http;
		const char *grpc;
	} codes[] = {{403, "7"}, {429, "8"}, {502, "14"}}; /* denied, exhausted, unavailable */
	auto_free char *message = http_percent_encode(text);
	const char *code = "3"; /* an invalid argument */
	nghttp2_nv nva[4];

	for (size_t i = 0; i < ARRAY_LEN(codes); i++)
		if (codes[i].http == r->status)
			code = codes[i].grpc;
	h2_nv(&nva[0], ":status", "200", false);
	h2_nv(&nva[1], "content-type", "application/grpc", false);
	h2_nv(&nva[2], "grpc-status", code, false);
	h2_nv(&nva[3], "grpc-message", message, false);
	nghttp2_submit_response(s->h->session[STAGE_CLIENT], s->id[STAGE_CLIENT], nva, 4, NULL);
}

static void answer_refusal(struct h2_stream *s, const struct http_refusal *r)
{
	nghttp2_data_provider provider = {.source.ptr = s, .read_callback = read_data};
	char text[1024], status[8], length[24];
	size_t len = http_refusal_text(r, text, sizeof(text));
	nghttp2_nv nva[3];

	if (s->answered) {
		reset(s, STAGE_CLIENT, NGHTTP2_INTERNAL_ERROR);
		return;
	}
	s->is_refused = s->answered = true;
	s->ended[STAGE_SERVER] = true;
	consumed(s, STAGE_CLIENT, SIZE_MAX);
	buf_done(&s->data[STAGE_SERVER]);
	if (s->is_grpc) {
		answer_grpc(s, r, text);
		return;
	}
	snprintf(status, sizeof(status), "%d", r->status);
	snprintf(length, sizeof(length), "%zu", len);
	h2_nv(&nva[0], ":status", status, false);
	h2_nv(&nva[1], "content-type", "text/plain; charset=utf-8", false);
	h2_nv(&nva[2], "content-length", length, false);
	if (!s->is_head)
		buf_add(&s->data[STAGE_CLIENT], text, len);
	nghttp2_submit_response(s->h->session[STAGE_CLIENT], s->id[STAGE_CLIENT], nva, 3,
				s->is_head ? NULL : &provider);
}

/* The server's fault. */
static void fail_stream(struct h2_stream *s, int status, const char *why)
{
	struct http_refusal r;

	http_refuse(&r, status, "%s", why);
	if (s->h->place.told)
		s->h->place.told(s->h->place.context, "", "", &r);
	reset(s, STAGE_SERVER, NGHTTP2_CANCEL);
	answer_refusal(s, &r);
}

/* ---- requests ---- */

static int refuse_told(struct h2_stream *s, const char *method, const struct http_refusal *r)
{
	if (s->h->place.told)
		s->h->place.told(s->h->place.context, method, "", r);
	return -1;
}

/* nghttp2 has checked which pseudo fields there are, and how often. */
static int check_request(struct h2_stream *s, struct http_refusal *r)
{
	const char *method = h2_fields_get(&s->head, ":method");
	const char *authority = h2_fields_get(&s->head, ":authority");
	const char *path = h2_fields_get(&s->head, ":path"),
		   *host = h2_fields_get(&s->head, "host");
	const char *scheme = h2_fields_get(&s->head, ":scheme");
	const char *type = h2_fields_get(&s->head, "content-type");
	struct http1_field fields[HTTP1_FIELDS];
	struct http_request q = {.method = method, .target = path, .fields = fields};

	s->is_head = method && str_equal(method, "HEAD");
	s->is_grpc = type && str_starts(type, "application/grpc");
	if (!authority)
		authority = host;
	if (!method || !path || !authority || !http1_is_token(method) || strlen(method) > 20) {
		http_refuse(r, 400, "the request has no host or path, or a malformed method");
		return refuse_told(s, "?", r);
	}
	if (!scheme || !str_equal(scheme, s->h->place.is_tls ? "https" : "http") ||
	    (host && strcasecmp(host, authority) != 0)) {
		http_refuse(r, 400, "the request names another scheme, or two hosts");
		return refuse_told(s, method, r);
	}
	q.count = h2_fields_list(&s->head, fields);
	return http_check(&s->h->place, &q, authority, r);
}

static int submit_request(struct h2_stream *s, const struct http_request *q, bool has_body)
{
	nghttp2_data_provider provider = {.source.ptr = s, .read_callback = read_data};
	nghttp2_nv nva[HTTP1_FIELDS + 4];
	const char *authority = h2_fields_get(&s->head, ":authority");
	size_t count = 0;

	if (!authority)
		authority = h2_fields_get(&s->head, "host");
	h2_nv(&nva[count++], ":method", q->method, false);
	h2_nv(&nva[count++], ":scheme", h2_fields_get(&s->head, ":scheme"), false);
	h2_nv(&nva[count++], ":authority", authority, false);
	h2_nv(&nva[count++], ":path", q->target, s->use.made_count > 0);
	for (size_t i = 0; i < q->count; i++)
		if (q->fields[i].name[0] != ':' && !str_equal(q->fields[i].name, "host"))
			h2_nv(&nva[count++], q->fields[i].name, q->fields[i].value,
			      s->use.made_count > 0);
	s->id[STAGE_SERVER] = nghttp2_submit_request(s->h->session[STAGE_SERVER], NULL, nva, count,
						     has_body ? &provider : NULL, s);
	return s->id[STAGE_SERVER] < 0 ? -1 : 0;
}

static void pass_request(struct h2_stream *s)
{
	struct http1_field fields[HTTP1_FIELDS];
	struct http_request q = {.fields = fields};
	struct http_refusal r = {0};

	if (check_request(s, &r) < 0) {
		answer_refusal(s, &r);
		return;
	}
	if (s->h->has_failed) {
		fail_stream(s, s->h->status, s->h->why);
		return;
	}
	q.method = h2_fields_get(&s->head, ":method");
	q.target = h2_fields_get(&s->head, ":path");
	q.count = h2_fields_list(&s->head, fields);
	if (secret_use_begin(&s->use, &s->h->place, &q, &r) < 0) {
		refuse_told(s, q.method, &r);
		answer_refusal(s, &r);
	} else if (submit_request(s, &q, !s->ended[STAGE_CLIENT]) < 0) {
		s->id[STAGE_SERVER] = -1;
		/* The server takes no more streams here: the client may try again on a new connection. */
		reset(s, STAGE_CLIENT, NGHTTP2_REFUSED_STREAM);
	} else {
		s->has_server = true;
	}
	h2_fields_done(&s->head);
}

/* ---- answers ---- */

/* Fields of an answer or its trailer, without values of secrets. made keeps the texts until they are submitted. */
static size_t redacted_list(struct h2_stream *s, bool has_body, struct http1_field *list,
			    char *made[HTTP1_FIELDS])
{
	size_t count = h2_fields_list(&s->head, list), kept = 0;

	for (size_t i = 0; i < count; i++) {
		auto_free char *name =
			s->redact.count ? redact_text(&s->redact, list[i].name) : NULL;

		if (name || list[i].name[0] == ':' ||
		    (s->redact.count && has_body && str_equal(list[i].name, "content-length")))
			continue;
		made[kept] = s->redact.count ? redact_text(&s->redact, list[i].value) : NULL;
		list[kept] =
			(struct http1_field){list[i].name, made[kept] ? made[kept] : list[i].value};
		kept++;
	}
	return kept;
}

static bool is_plain(const struct h2_fields *f)
{
	const char *coding = h2_fields_get(f, "content-encoding");

	return !coding || !*coding || !strcasecmp(coding, "identity");
}

static void pass_answer(struct h2_stream *s, bool is_last)
{
	nghttp2_data_provider provider = {.source.ptr = s, .read_callback = read_data};
	const char *status = h2_fields_get(&s->head, ":status");
	bool is_final = status && status[0] != '1';
	struct http1_field list[HTTP1_FIELDS];
	nghttp2_nv nva[HTTP1_FIELDS + 1];
	char *made[HTTP1_FIELDS];
	size_t count;

	if (!s->redact.count)
		secret_use_needles(&s->use, &s->redact);
	if (s->redact.count && is_final && !is_last && !s->is_head && !is_plain(&s->head)) {
		fail_stream(s, 502,
			    "the answer is compressed although that was not asked for, so it "
			    "cannot be searched for the secret");
		return;
	}
	count = redacted_list(s, !is_last && !s->is_head, list, made);
	h2_nv(&nva[0], ":status", status, false);
	for (size_t i = 0; i < count; i++)
		h2_nv(&nva[i + 1], list[i].name, list[i].value, false);
	if (is_final) {
		s->answered = true;
		nghttp2_submit_response(s->h->session[STAGE_CLIENT], s->id[STAGE_CLIENT], nva,
					count + 1, is_last ? NULL : &provider);
	} else {
		nghttp2_submit_headers(s->h->session[STAGE_CLIENT], NGHTTP2_FLAG_NONE,
				       s->id[STAGE_CLIENT], NULL, nva, count + 1, NULL);
	}
	for (size_t i = 0; i < count; i++)
		free(made[i]);
}

static void keep_trailer(struct h2_stream *s, enum stage_side from)
{
	struct h2_fields *to = &s->trailer[stage_other(from)];
	struct http1_field list[HTTP1_FIELDS];
	char *made[HTTP1_FIELDS] = {NULL};
	size_t count;

	if (from == STAGE_CLIENT) {
		count = h2_fields_list(&s->head, list);
	} else {
		count = redacted_list(s, false, list, made);
	}
	for (size_t i = 0; i < count; i++) {
		h2_fields_add(to, list[i].name, strlen(list[i].name), list[i].value,
			      strlen(list[i].value));
		free(made[i]);
	}
}

/* ---- what nghttp2 calls ---- */

static enum stage_side side_of(const struct h2 *h, const nghttp2_session *session)
{
	return session == h->session[STAGE_CLIENT] ? STAGE_CLIENT : STAGE_SERVER;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
	struct h2 *h = user;
	struct h2_stream *s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

	if (side_of(h, session) == STAGE_CLIENT && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
		s = stream_new(h, frame->hd.stream_id);
		nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, s);
	}
	if (!s)
		return 0;
	h2_fields_done(&s->head);
	return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
		     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
		     void *user)
{
	struct h2_stream *s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

	if (!s)
		return 0;
	if (h2_fields_add(&s->head, (const char *)name, name_len, (const char *)value, value_len) <
	    0)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	return 0;
}

/* The side has sent the last of its stream. */
static void end_side(struct h2_stream *s, enum stage_side from)
{
	if (s->ended[from])
		return;
	s->ended[from] = true;
	if (from == STAGE_SERVER && s->redact.count)
		redact_end(&s->redact, &s->data[STAGE_CLIENT]);
	resume(s, stage_other(from));
}

static void got_headers(struct h2 *h, struct h2_stream *s, enum stage_side side, bool is_last)
{
	if (side == STAGE_CLIENT && !s->has_server && !s->is_refused) {
		s->ended[STAGE_CLIENT] = is_last;
		pass_request(s);
	} else if (side == STAGE_SERVER && h2_fields_get(&s->head, ":status")) {
		pass_answer(s, is_last);
	} else if (!s->is_refused) {
		keep_trailer(s, side);
	}
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
	struct h2 *h = user;
	enum stage_side side = side_of(h, session);
	struct h2_stream *s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	bool is_last = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;

	if (frame->hd.type == NGHTTP2_GOAWAY && side == STAGE_SERVER)
		nghttp2_submit_goaway(
			h->session[STAGE_CLIENT], NGHTTP2_FLAG_NONE,
			nghttp2_session_get_last_proc_stream_id(h->session[STAGE_CLIENT]),
			NGHTTP2_NO_ERROR, NULL, 0);
	if (!s || (side == STAGE_SERVER && s->is_refused))
		return 0;
	if (frame->hd.type == NGHTTP2_HEADERS)
		got_headers(h, s, side, is_last);
	if (is_last && (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA))
		end_side(s, side);
	return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes,
		   size_t len, void *user)
{
	struct h2 *h = user;
	enum stage_side from = side_of(h, session), to = stage_other(from);
	struct h2_stream *s = nghttp2_session_get_stream_user_data(session, id);

	if (!s) {
		nghttp2_session_consume(session, id, len);
		return 0;
	}
	s->owed[from] += len;
	if (s->is_refused || s->id[to] < 0) {
		consumed(s, from, len); /* nobody wants it any more */
		return 0;
	}
	if (from == STAGE_CLIENT) {
		secret_use_body(&s->use, &h->place, (const char *)bytes, len);
		buf_add(&s->data[to], bytes, len);
	} else {
		redact_feed(&s->redact, (const char *)bytes, len, &s->data[to]);
		if (!s->data[to].len)
			consumed(s, from, len);
	}
	resume(s, to);
	return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *user)
{
	struct h2 *h = user;
	enum stage_side side = side_of(h, session), other = stage_other(side);
	struct h2_stream *s = nghttp2_session_get_stream_user_data(session, id);

	if (!s)
		return 0;
	s->id[side] = -1;
	if (side == STAGE_CLIENT) {
		consumed(s, side, SIZE_MAX);
		consumed(s, other, SIZE_MAX);
		reset(s, other, code ? code : NGHTTP2_CANCEL);
		stream_free(s);
		return 0;
	}
	consumed(s, other, SIZE_MAX); /* what the server did not take of the request */
	buf_done(&s->data[side]);
	if (code != NGHTTP2_NO_ERROR && !s->is_refused)
		reset(s, other, code);
	else
		end_side(s, side);
	return 0;
}

/* ---- the stage ---- */

static void close_all(struct h2 *h)
{
	h->stage.closing[STAGE_CLIENT] = h->stage.closing[STAGE_SERVER] = true;
}

/* What the sessions have to say, as far as there is room for it. */
static void flush(struct h2 *h)
{
	for (int side = 0; side < 2; side++) {
		const uint8_t *bytes;
		ssize_t n = 1;

		while (n > 0 && h->stage.out[side].len < STAGE_FULL) {
			n = nghttp2_session_mem_send(h->session[side], &bytes);
			if (n > 0)
				buf_add(&h->stage.out[side], bytes, (size_t)n);
		}
		if (n < 0 || (!nghttp2_session_want_read(h->session[side]) &&
			      !nghttp2_session_want_write(h->session[side])))
			h->stage.closing[side] = true;
	}
	if (h->stage.closing[STAGE_CLIENT])
		close_all(h);
	/* Without a server the streams that are open end, and then the connection. */
	if (h->stage.closing[STAGE_SERVER] && !h->streams && !h->has_failed)
		close_all(h);
}

static void server_is_gone(struct h2 *h, int status, const char *why)
{
	h->has_failed = true;
	h->status = status;
	snprintf(h->why, sizeof(h->why), "%s", why);
	h->stage.closing[STAGE_SERVER] = true;
	for (struct h2_stream *s = h->streams; s; s = s->next)
		if (s->has_server && !s->is_refused && !s->ended[STAGE_SERVER])
			fail_stream(s, status, why);
}

static void h2_feed(struct stage *stage, enum stage_side from, const char *bytes, size_t len)
{
	struct h2 *h = (struct h2 *)stage;
	ssize_t n = nghttp2_session_mem_recv(h->session[from], (const uint8_t *)bytes, len);

	if (n < 0 && from == STAGE_SERVER) {
		server_is_gone(h, 502, "the server does not speak HTTP/2 correctly");
	} else if (n < 0) {
		struct http_refusal r;

		http_refuse(&r, 400, "malformed HTTP/2: %s", nghttp2_strerror((int)n));
		if (h->place.told)
			h->place.told(h->place.context, "?", "", &r);
		flush(h);
		close_all(h);
		return;
	}
	flush(h);
}

static void h2_end(struct stage *stage, enum stage_side from)
{
	struct h2 *h = (struct h2 *)stage;

	if (from == STAGE_CLIENT) {
		close_all(h);
		return;
	}
	server_is_gone(h, 502, "the server has closed the connection");
	nghttp2_session_terminate_session(h->session[STAGE_CLIENT], NGHTTP2_NO_ERROR);
	flush(h);
}

static void h2_drained(struct stage *stage)
{
	flush((struct h2 *)stage);
}

static size_t h2_held(const struct stage *stage)
{
	size_t held = 0;

	for (const struct h2_stream *s = ((const struct h2 *)stage)->streams; s; s = s->next)
		held += s->data[STAGE_CLIENT].len + s->data[STAGE_SERVER].len + s->head.text.len;
	return held;
}

static void h2_fail(struct stage *stage, int status, const char *why)
{
	struct h2 *h = (struct h2 *)stage;

	server_is_gone(h, status, why);
	flush(h);
}

static void h2_free(struct stage *stage)
{
	struct h2 *h = (struct h2 *)stage;

	while (h->streams)
		stream_free(h->streams);
	for (int side = 0; side < 2; side++) {
		nghttp2_session_del(h->session[side]);
		buf_done(&stage->out[side]);
	}
	free(h);
}

static int sessions_new(struct h2 *h)
{
	nghttp2_session_callbacks *calls = NULL;
	nghttp2_option *option = NULL;
	int rc = nghttp2_session_callbacks_new(&calls) | nghttp2_option_new(&option);

	if (rc == 0) {
		nghttp2_session_callbacks_set_on_begin_headers_callback(calls, on_begin_headers);
		nghttp2_session_callbacks_set_on_header_callback(calls, on_header);
		nghttp2_session_callbacks_set_on_frame_recv_callback(calls, on_frame);
		nghttp2_session_callbacks_set_on_data_chunk_recv_callback(calls, on_data);
		nghttp2_session_callbacks_set_on_stream_close_callback(calls, on_close);
		nghttp2_option_set_no_auto_window_update(option, 1);
		rc = nghttp2_session_server_new2(&h->session[STAGE_CLIENT], calls, h, option) |
		     nghttp2_session_client_new2(&h->session[STAGE_SERVER], calls, h, option);
	}
	nghttp2_session_callbacks_del(calls);
	nghttp2_option_del(option);
	return rc == 0 ? 0 : -1;
}

static void submit_settings(struct h2 *h)
{
	static const nghttp2_settings_entry client[] = {
		{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, STREAMS},
		{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW},
		{NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HTTP1_HEAD_MAX}};
	static const nghttp2_settings_entry server[] = {
		{NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
		{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW},
		{NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HTTP1_HEAD_MAX}};

	nghttp2_submit_settings(h->session[STAGE_CLIENT], NGHTTP2_FLAG_NONE, client,
				ARRAY_LEN(client));
	nghttp2_submit_settings(h->session[STAGE_SERVER], NGHTTP2_FLAG_NONE, server,
				ARRAY_LEN(server));
	for (int side = 0; side < 2; side++)
		nghttp2_session_set_local_window_size(h->session[side], NGHTTP2_FLAG_NONE, 0,
						      WINDOW);
}

struct stage *h2_new(const struct http_place *place)
{
	static const struct stage_ops ops = {.feed = h2_feed,
					     .end = h2_end,
					     .drained = h2_drained,
					     .held = h2_held,
					     .fail = h2_fail,
					     .free = h2_free};
	struct h2 *h = must_alloc(calloc(1, sizeof(*h)));

	h->stage.ops = &ops;
	h->place = *place;
	if (sessions_new(h) < 0) {
		h2_free(&h->stage);
		return must_alloc(NULL);
	}
	submit_settings(h);
	flush(h);
	return &h->stage;
}
