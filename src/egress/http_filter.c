/*
 * HTTP/1.1 as a stage.
 *
 * Theory of operation: requests that were passed on and not yet answered are exchanges, in order. The client's
 * side is read up to the end of a request; the next request is read as soon as fewer than EXCHANGES are open and
 * none of them may become a tunnel. The server's side is read as the answer to the oldest exchange. A refusal is
 * sent once the exchanges before it are answered, and ends the connection.
 */
#include "egress/http_filter.h"

#include "egress/secrets.h"

#include <strings.h>

#define EXCHANGES 8

enum state { AT_HEAD, IN_BODY, TUNNEL, STOPPED };

struct exchange {
	bool is_head, upgrades, is_old;
	struct secret_use use;
};

struct http_filter {
	struct stage stage;
	struct http_place place;
	struct buf in[2];
	enum state state[2];
	bool ended[2];
	struct http1_body body[2];
	size_t scanned; /* of the request's head */
	struct exchange exchanges[EXCHANGES];
	size_t first, count;
	struct http_refusal refusal;
	bool is_refused, answer_begun, refused_head;
	struct http_refusal
		fault; /* of the server, if status is set: the answer to the next request */
	bool is_early; /* the oldest exchange is answered, but its request is not complete */
	/* of the answer that is being passed on */
	struct redact redact;
	bool rechunks; /* its length may change */
};

static struct exchange *exchange_at(struct http_filter *f, size_t i)
{
	return &f->exchanges[(f->first + i) % EXCHANGES];
}

static void drop_last(struct http_filter *f)
{
	secret_use_done(&exchange_at(f, f->count - 1)->use);
	f->count--;
}

static void drop_first(struct http_filter *f)
{
	secret_use_done(&f->exchanges[f->first].use);
	f->first = (f->first + 1) % EXCHANGES;
	f->count--;
}

static void stop(struct http_filter *f)
{
	for (int side = 0; side < 2; side++) {
		f->state[side] = STOPPED;
		f->stage.closing[side] = true;
		buf_done(&f->in[side]);
	}
}

/* A refusal waits for the answers before it. */
static void send_refusal(struct http_filter *f)
{
	if (!f->is_refused || f->count || f->state[STAGE_SERVER] == STOPPED)
		return;
	http_refusal_write(&f->stage.out[STAGE_CLIENT], &f->refusal, f->refused_head);
	stop(f);
}

static void refuse(struct http_filter *f, const struct http_refusal *r)
{
	if (f->is_refused)
		return;
	f->is_refused = true;
	f->refusal = *r;
	f->state[STAGE_CLIENT] = STOPPED;
	buf_done(&f->in[STAGE_CLIENT]);
	send_refusal(f);
}

static int tell(const struct http_filter *f, const struct http1_head *h,
		const struct http_refusal *r)
{
	char path[256];

	str_sanitise(path, sizeof(path), h->target, strcspn(h->target, "?"));
	if (f->place.told)
		f->place.told(f->place.context, h->method, path, r);
	return -1;
}

/* A request cannot be read; nothing of it was passed on. */
static void refuse_malformed(struct http_filter *f, int status, const char *why)
{
	struct http_refusal r;

	http_refuse(&r, status, "the request cannot be read safely: %s", why);
	if (f->place.told)
		f->place.told(f->place.context, "?", "", &r);
	refuse(f, &r);
}

/* The middle of a request cannot be read. Its answer, if there is one, is the server's opinion of half a request. */
static void refuse_body(struct http_filter *f)
{
	bool begun = f->count == 1 && (f->answer_begun || f->is_early);

	drop_last(f);
	if (begun)
		stop(f);
	else
		refuse_malformed(f, 400, "a malformed chunk");
}

/* The server's answer cannot be passed on. */
static void fail(struct http_filter *f, int status, const char *why)
{
	struct http_refusal r;

	if (f->state[STAGE_SERVER] == STOPPED)
		return;
	http_refuse(&r, status, "%s", why);
	if (f->place.told)
		f->place.told(f->place.context, "", "", &r);
	if (!f->answer_begun && !f->is_early)
		http_refusal_write(&f->stage.out[STAGE_CLIENT], &r,
				   f->count && f->exchanges[f->first].is_head);
	stop(f);
}

/* ---- requests ---- */

static bool is_websocket(const struct http1_head *h)
{
	const char *upgrade = http1_field(h, "Upgrade"), *list = http1_field(h, "Connection");

	return upgrade && list && !strcasecmp(upgrade, "websocket") &&
	       http1_list_has(list, "upgrade") && str_equal(h->method, "GET") && !h->chunked &&
	       h->length <= 0;
}

/*
 * "http://host/path" to "/path"; its host must be that of Host, which is what a server may look at instead.
 * NULL: it is not.
 */
static const char *origin_form(const struct http_filter *f, const struct http1_head *h,
			       const char *host, struct http_refusal *r)
{
	const char *scheme = f->place.is_tls ? "https://" : "http://";
	const char *at = h->target, *end;
	auto_free char *authority = NULL;

	if (*at == '/' || (str_equal(at, "*") && str_equal(h->method, "OPTIONS")))
		return at;
	if (strncasecmp(at, scheme, strlen(scheme)) != 0) {
		http_refuse(r, 400, "the request's target is neither a path nor %s", scheme);
		return NULL;
	}
	at += strlen(scheme);
	end = at + strcspn(at, "/?#");
	authority = must_alloc(strndup(at, (size_t)(end - at)));
	if (strcasecmp(authority, host) != 0) {
		http_refuse(r, 400, "the request's target and its Host are different hosts");
		return NULL;
	}
	if (*end == '\0')
		return "/";
	if (*end != '/')
		http_refuse(r, 400, "the request's target has no path");
	return *end == '/' ? end : NULL;
}

/* Fields that concern one hop, and offers to speak something that is not checked. */
static size_t drop_hop_fields(struct http_filter *f, const struct http1_head *h, bool upgrades,
			      struct http1_field *fields)
{
	static const char *const names[] = {"Connection", "Keep-Alive", "Proxy-Connection",
					    "HTTP2-Settings", "Proxy-Authorization"};
	size_t count = 0;

	for (size_t i = 0; i < h->count; i++) {
		bool drop = !upgrades && !strcasecmp(h->fields[i].name, "Upgrade");

		for (size_t j = 0; j < ARRAY_LEN(names); j++)
			drop |= !strcasecmp(h->fields[i].name, names[j]);
		if (!drop)
			fields[count++] = h->fields[i];
	}
	return count;
}

static const char *connection_of(const struct http_filter *f, const struct http1_head *h,
				 bool upgrades)
{
	const char *list = http1_field(h, "Connection");

	if (upgrades)
		return "Upgrade";
	if (f->place.is_once || (list && http1_list_has(list, "close")))
		return "close";
	return list && http1_list_has(list, "keep-alive") ? "keep-alive" : NULL;
}

static void write_request(struct http_filter *f, const struct http1_head *h,
			  const struct http_request *q, bool upgrades)
{
	struct buf *out = &f->stage.out[STAGE_SERVER];
	const char *connection = connection_of(f, h, upgrades);

	buf_add(out, q->method, strlen(q->method));
	buf_add(out, " ", 1);
	buf_add(out, q->target, strlen(q->target));
	buf_add(out, h->is_old ? " HTTP/1.0\r\n" : " HTTP/1.1\r\n", 11);
	for (size_t i = 0; i < q->count; i++)
		http1_add_field(out, q->fields[i].name, q->fields[i].value);
	if (connection)
		http1_add_field(out, "Connection", connection);
	buf_add(out, "\r\n", 2);
}

/* Checks a request and passes its head on; -1 with the refusal. */
static int pass_request(struct http_filter *f, struct http1_head *h, struct http_refusal *r)
{
	const char *host = http1_field(h, "Host"), *target;
	bool upgrades = is_websocket(h);
	struct http1_field fields[HTTP1_FIELDS];
	struct exchange *x = exchange_at(f, f->count);
	struct http_request q = {.method = h->method, .fields = fields};

	f->refused_head = str_equal(h->method, "HEAD");
	if (!host)
		http_refuse(r, 400, "the request has no Host");
	target = host ? origin_form(f, h, host, r) : NULL;
	if (!target)
		return tell(f, h, r);
	q.target = target;
	q.count = drop_hop_fields(f, h, upgrades, fields);
	if (http_check(&f->place, &q, host, r) < 0)
		return -1;
	*x = (struct exchange){
		.is_head = f->refused_head, .upgrades = upgrades, .is_old = h->is_old};
	f->count++;
	if (secret_use_begin(&x->use, &f->place, &q, r) < 0) {
		drop_last(f);
		return tell(f, h, r);
	}
	write_request(f, h, &q, upgrades);
	http1_body_begin_request(&f->body[STAGE_CLIENT], h);
	f->state[STAGE_CLIENT] = IN_BODY;
	return 0;
}

/* False: nothing more can be done with what there is. */
static bool read_request_head(struct http_filter *f)
{
	struct buf *in = &f->in[STAGE_CLIENT];
	struct http_refusal r = {0};
	struct http1_head h;
	struct err e = {0};
	ssize_t len;

	if (f->count == EXCHANGES || (f->count && exchange_at(f, f->count - 1)->upgrades) ||
	    (f->count && f->place.is_once))
		return false;
	while (!f->scanned && in->len >= 2 && !memcmp(buf_head(in), "\r\n", 2))
		buf_drop(in, 2); /* an empty line in front of a request is not passed on */
	if (in->len == 1 && *buf_head(in) == '\r')
		return false;
	len = in->len ? http1_request_length(buf_head(in), in->len, &f->scanned) : 0;
	if (len < 0) {
		refuse_malformed(f, 400, "a bare line break or a zero byte");
	} else if (len > HTTP1_HEAD_MAX || (len == 0 && in->len > HTTP1_HEAD_MAX)) {
		refuse_malformed(f, 431, "its head is longer than 64 kB");
	} else if (len > 0) {
		auto_free char *copy = must_alloc(malloc((size_t)len));

		memcpy(copy, buf_head(in), (size_t)len);
		buf_drop(in, (size_t)len);
		f->scanned = 0;
		if (http1_request_read(copy, (size_t)len, &h, &e) < 0)
			refuse_malformed(f, 400, e.msg);
		else if (pass_request(f, &h, &r) < 0)
			refuse(f, &r);
	}
	return len > 0 && f->state[STAGE_CLIENT] != STOPPED;
}

static bool read_request_body(struct http_filter *f)
{
	struct buf *in = &f->in[STAGE_CLIENT], *out = &f->stage.out[STAGE_SERVER];
	struct http1_body *b = &f->body[STAGE_CLIENT];
	struct exchange *x = exchange_at(f, f->count - 1);

	while (!b->done && in->len) {
		ssize_t framing = http1_body_framing(b, buf_head(in), in->len);
		size_t content;

		if (framing < 0) {
			refuse_body(f);
			return false;
		}
		content = http1_body_content(b, in->len - (size_t)framing);
		secret_use_body(&x->use, &f->place, buf_head(in) + framing, content);
		buf_add(out, buf_head(in), (size_t)framing + content);
		http1_body_took(b, content);
		buf_drop(in, (size_t)framing + content);
	}
	if (!b->done)
		return false;
	f->state[STAGE_CLIENT] = AT_HEAD;
	if (f->is_early)
		drop_first(f);
	f->is_early = false;
	return true;
}

static void read_client(struct http_filter *f)
{
	bool more = true;

	while (more) {
		switch (f->state[STAGE_CLIENT]) {
		case AT_HEAD:
			more = read_request_head(f);
			break;
		case IN_BODY:
			more = read_request_body(f);
			break;
		case TUNNEL:
			if (f->in[STAGE_CLIENT].len)
				buf_add(&f->stage.out[STAGE_SERVER], buf_head(&f->in[STAGE_CLIENT]),
					f->in[STAGE_CLIENT].len);
			/* fall through */
		default:
			buf_done(&f->in[STAGE_CLIENT]);
			more = false;
		}
	}
	if (f->fault.status && f->count)
		fail(f, f->fault.status, f->fault.why);
	if (f->ended[STAGE_CLIENT] &&
	    (f->state[STAGE_CLIENT] == TUNNEL || !f->in[STAGE_CLIENT].len))
		f->stage.closing[STAGE_SERVER] = true;
}

/* ---- answers ---- */

/* Fields that would contradict the new framing, or whose very name is a secret's value. */
static bool drops_field(const struct http_filter *f, const struct http1_head *h, const char *name)
{
	auto_free char *clean = f->redact.count ? redact_text(&f->redact, name) : NULL;

	if (f->rechunks && (!strcasecmp(name, "Content-Length") ||
			    !strcasecmp(name, "Transfer-Encoding") || !strcasecmp(name, "Trailer")))
		return true;
	return clean || (f->place.is_once && h->status >= 200 && !strcasecmp(name, "Connection"));
}

static void add_redacted(struct http_filter *f, const char *text)
{
	auto_free char *clean = f->redact.count ? redact_text(&f->redact, text) : NULL;
	struct buf *out = &f->stage.out[STAGE_CLIENT];

	if (clean)
		text = clean;
	buf_add(out, text, strlen(text));
	buf_add(out, "\r\n", 2);
}

static void write_answer_head(struct http_filter *f, const char *line, size_t line_len,
			      const struct http1_head *h)
{
	struct buf *out = &f->stage.out[STAGE_CLIENT];
	auto_free char *first = must_alloc(strndup(line, line_len));

	add_redacted(f, first);
	for (size_t i = 0; i < h->count; i++) {
		if (drops_field(f, h, h->fields[i].name))
			continue;
		buf_add(out, h->fields[i].name, strlen(h->fields[i].name));
		buf_add(out, ": ", 2);
		add_redacted(f, h->fields[i].value);
	}
	if (f->rechunks && !f->exchanges[f->first].is_old)
		http1_add_field(out, "Transfer-Encoding", "chunked");
	if ((f->place.is_once && h->status >= 200) ||
	    (f->rechunks && f->exchanges[f->first].is_old))
		http1_add_field(out, "Connection", "close");
	buf_add(out, "\r\n", 2);
}

static void begin_tunnel(struct http_filter *f)
{
	f->state[STAGE_CLIENT] = f->state[STAGE_SERVER] = TUNNEL;
	f->redact.keeps_length = true; /* frames have their length in front */
}

/* The answer can be searched for values: it is not compressed. */
static bool is_plain(const struct http1_head *h)
{
	const char *coding = http1_field(h, "Content-Encoding");

	return !coding || !*coding || !strcasecmp(coding, "identity");
}

/* 0, or -1: it cannot be passed on. */
static int pass_answer(struct http_filter *f, const char *line, size_t line_len,
		       struct http1_head *h)
{
	struct exchange *x = &f->exchanges[f->first];
	struct http1_body *b = &f->body[STAGE_SERVER];

	if (h->status == 101 && !x->upgrades) {
		fail(f, 502, "the server switches to a protocol that was not asked for");
		return -1;
	}
	http1_body_begin(b, h, x->is_head);
	secret_use_needles(&x->use, &f->redact);
	if (f->redact.count && !b->done && !is_plain(h)) {
		fail(f, 502,
		     "the answer is compressed although that was not asked for, so it cannot be "
		     "searched for the secret");
		return -1;
	}
	f->rechunks = f->redact.count && !b->done;
	write_answer_head(f, line, line_len, h);
	if (h->status == 101) {
		begin_tunnel(f);
		return 0;
	}
	if (h->status < 200) {
		redact_done(&f->redact);
		return 0;
	}
	f->answer_begun = true;
	f->state[STAGE_SERVER] = IN_BODY;
	return 0;
}

static bool read_answer_head(struct http_filter *f)
{
	struct buf *in = &f->in[STAGE_SERVER];
	size_t len = in->len ? http1_head_length(buf_head(in), in->len) : 0, line;
	auto_free char *copy = NULL;
	struct http1_head h;
	struct err e = {0};

	if (in->len && (!f->count || f->is_early)) {
		stop(f); /* such as 408 to an idle connection: the client would take it for its next answer */
		return false;
	}
	if (len > HTTP1_HEAD_MAX || (!len && in->len > HTTP1_HEAD_MAX)) {
		fail(f, 502, "the head of the server's answer is longer than 64 kB");
		return false;
	}
	if (!len)
		return false;
	copy = must_alloc(malloc(len));
	memcpy(copy, buf_head(in), len);
	line = (size_t)((char *)memmem(buf_head(in), len, "\r\n", 2) - buf_head(in));
	if (http1_head_read(copy, len, &h, &e) < 0) {
		char why[200];

		snprintf(why, sizeof(why), "the server's answer cannot be read safely: %.120s",
			 e.msg);
		fail(f, 502, why);
		return false;
	}
	if (pass_answer(f, buf_head(in), line, &h) < 0)
		return false;
	buf_drop(in, len);
	return true;
}

/* Content for the client, in a chunk if the answer is framed anew. */
static void write_content(struct http_filter *f, const char *bytes, size_t len, bool is_last)
{
	struct buf *out = &f->stage.out[STAGE_CLIENT];
	auto_buf struct buf clean = {0};
	bool is_old = f->exchanges[f->first].is_old;
	char head[24];

	redact_feed(&f->redact, bytes, len, &clean);
	if (is_last)
		redact_end(&f->redact, &clean);
	if (clean.len && !is_old)
		buf_add(out, head, (size_t)sprintf(head, "%zx\r\n", clean.len));
	if (clean.len)
		buf_add(out, buf_head(&clean), clean.len);
	if (clean.len && !is_old)
		buf_add(out, "\r\n", 2);
	if (is_last && !is_old)
		buf_add(out, "0\r\n\r\n", 5);
}

static void end_answer(struct http_filter *f)
{
	bool is_over = f->place.is_once || f->body[STAGE_SERVER].kind == HTTP1_TO_END;

	if (f->rechunks) {
		write_content(f, "", 0, true);
		is_over |= f->exchanges[f->first].is_old;
	}
	redact_done(&f->redact);
	f->rechunks = f->answer_begun = false;
	f->state[STAGE_SERVER] = AT_HEAD;
	f->is_early = f->count == 1 && f->state[STAGE_CLIENT] == IN_BODY;
	if (!f->is_early)
		drop_first(f);
	if (is_over)
		stop(f);
	else
		send_refusal(f);
}

static bool read_answer_body(struct http_filter *f)
{
	struct buf *in = &f->in[STAGE_SERVER];
	struct http1_body *b = &f->body[STAGE_SERVER];

	while (!b->done && in->len) {
		ssize_t framing = http1_body_framing(b, buf_head(in), in->len);
		size_t content;

		if (framing < 0) {
			fail(f, 502, "a malformed chunk in the server's answer");
			return false;
		}
		content = http1_body_content(b, in->len - (size_t)framing);
		if (f->rechunks)
			write_content(f, buf_head(in) + framing, content, false);
		else
			buf_add(&f->stage.out[STAGE_CLIENT], buf_head(in),
				(size_t)framing + content);
		http1_body_took(b, content);
		buf_drop(in, (size_t)framing + content);
	}
	if (!b->done)
		return false;
	end_answer(f);
	return f->state[STAGE_SERVER] != STOPPED;
}

static void read_server_end(struct http_filter *f)
{
	if (f->state[STAGE_SERVER] == TUNNEL) {
		redact_end(&f->redact, &f->stage.out[STAGE_CLIENT]);
		f->stage.closing[STAGE_CLIENT] = true;
	} else if (f->state[STAGE_SERVER] == IN_BODY && http1_body_end(&f->body[STAGE_SERVER])) {
		end_answer(f);
	} else if (f->count && !f->answer_begun && !f->is_early) {
		fail(f, 502, "the server has closed the connection without an answer");
	} else {
		stop(f);
	}
}

static void read_server(struct http_filter *f)
{
	bool more = true;

	while (more) {
		struct buf *in = &f->in[STAGE_SERVER];

		switch (f->state[STAGE_SERVER]) {
		case AT_HEAD:
			more = read_answer_head(f);
			break;
		case IN_BODY:
			more = read_answer_body(f);
			break;
		case TUNNEL:
			if (in->len)
				redact_feed(&f->redact, buf_head(in), in->len,
					    &f->stage.out[STAGE_CLIENT]);
			/* fall through */
		default:
			buf_done(in);
			more = false;
		}
	}
	if (f->ended[STAGE_SERVER] && f->state[STAGE_SERVER] != STOPPED)
		read_server_end(f);
}

/* ---- the stage ---- */

/* An answer that is complete lets the next request be read, and the other way round. */
static void read_both(struct http_filter *f)
{
	read_server(f);
	read_client(f);
}

static void filter_feed(struct stage *s, enum stage_side from, const char *bytes, size_t len)
{
	struct http_filter *f = (struct http_filter *)s;

	if (f->state[from] == STOPPED)
		return;
	buf_add(&f->in[from], bytes, len);
	read_both(f);
}

static void filter_end(struct stage *s, enum stage_side from)
{
	struct http_filter *f = (struct http_filter *)s;

	f->ended[from] = true;
	read_both(f);
	/* A client that leaves within a request leaves nothing to wait for. */
	if (from == STAGE_CLIENT && f->state[from] == IN_BODY)
		stop(f);
	else if (from == STAGE_CLIENT && f->state[STAGE_SERVER] == AT_HEAD && !f->count)
		stop(f);
}

static bool filter_wants(const struct stage *s, enum stage_side from)
{
	const struct http_filter *f = (const struct http_filter *)s;

	return f->in[from].len <= HTTP1_HEAD_MAX;
}

static size_t filter_held(const struct stage *s)
{
	const struct http_filter *f = (const struct http_filter *)s;

	return f->in[STAGE_CLIENT].len + f->in[STAGE_SERVER].len;
}

static void filter_fail(struct stage *s, int status, const char *why)
{
	struct http_filter *f = (struct http_filter *)s;

	if (!f->fault.status)
		http_refuse(&f->fault, status, "%s", why);
	read_both(f);
}

static void filter_free(struct stage *s)
{
	struct http_filter *f = (struct http_filter *)s;

	while (f->count)
		drop_first(f);
	for (int side = 0; side < 2; side++) {
		buf_done(&f->in[side]);
		buf_done(&s->out[side]);
	}
	redact_done(&f->redact);
	free(f);
}

struct stage *http_filter_new(const struct http_place *place)
{
	static const struct stage_ops ops = {.feed = filter_feed,
					     .end = filter_end,
					     .wants = filter_wants,
					     .held = filter_held,
					     .fail = filter_fail,
					     .free = filter_free};
	struct http_filter *f = must_alloc(calloc(1, sizeof(*f)));

	f->stage.ops = &ops;
	f->place = *place;
	return &f->stage;
}
