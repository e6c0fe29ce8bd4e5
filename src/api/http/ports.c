/*
 * Passes a request on to a port inside a sandbox and its answer back: HTTP/1.1 over a guest stream,
 * and a tunnel after an upgrade.
 */
#include "api/http/http_internal.h"

#include "base/log.h"
#include "wire/http1.h"

#include <strings.h>

#define BAD_GATEWAY 502
#define PIECE (32u << 10) /* of a chunked body */

/* Lives until the answer is complete, or the tunnel that it becomes has ended. */
struct proxy {
	struct exchange *x; /* NULL: answered */
	struct loop *loop;
	struct call *call;
	struct tunnel *tunnel;
	struct buf out, in; /* the request's head; the answer's, until it is complete */
	struct buf hop;	    /* what the client's Connection fields name, with commas and an end */
	bool chunked, upgrading, own_host, no_body, streaming, opening;
	struct http1_body body;
	struct pump pump;
};

static void proxy_free(struct proxy *p)
{
	call_drop(p->call);
	buf_done(&p->out);
	buf_done(&p->in);
	buf_done(&p->hop);
	free(p);
}

static void fail_proxy(struct proxy *p, const struct err *e)
{
	struct exchange *x = take_ptr(p->x);

	if (x && p->streaming)
		exchange_abort(x);
	else if (x)
		exchange_error_as(x, BAD_GATEWAY, e);
	proxy_free(p);
}

static void fail_because(struct proxy *p, const char *why)
{
	struct err e = {0};

	err_set(&e, ERR_SYSTEM, "%s", why);
	fail_proxy(p, &e);
}

/* ---- the request's head ---- */

/* Credentials for the daemon, and cookies of its origin, are not sent into a sandbox. */
static bool is_ours(const struct proxy *p, const char *name)
{
	static const char *const names[] = {"Authorization", "X-API-Key", "X-Access-Token",
					    "Host",	     "Expect",	  "Forwarded"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (!strcasecmp(name, names[i]))
			return true;
	return !strncasecmp(name, "e2b-", 4) || !strncasecmp(name, "X-Forwarded-", 12) ||
	       (!p->own_host && !strcasecmp(name, "Cookie"));
}

/* Fields that Connection names are for this hop only (RFC 9110). There may be several Connection fields. */
static void add_connection(struct buf *hop, const char *value)
{
	buf_add(hop, value, strlen(value));
	buf_add(hop, ",", 1);
}

static void read_connection(void *arg, const char *name, const char *value)
{
	struct proxy *p = arg;

	if (!strcasecmp(name, "Connection"))
		add_connection(&p->hop, value);
}

static void add_header(void *arg, const char *name, const char *value)
{
	struct proxy *p = arg;

	if (!http1_is_hop_header(name) && !is_ours(p, name) &&
	    !http1_list_has(buf_head(&p->hop), name))
		http1_add_field(&p->out, name, value);
}

static void add_framing(struct proxy *p)
{
	char length[32];

	if (p->upgrading) {
		http1_add_field(&p->out, "Connection", "Upgrade");
		http1_add_field(&p->out, "Upgrade", exchange_header(p->x, "Upgrade"));
	} else {
		http1_add_field(&p->out, "Connection", "close");
	}
	p->chunked = p->x->content_length < 0 && exchange_header(p->x, "Transfer-Encoding");
	snprintf(length, sizeof(length), "%" PRId64, p->x->content_length);
	if (p->chunked)
		http1_add_field(&p->out, "Transfer-Encoding", "chunked");
	else if (p->x->content_length >= 0)
		http1_add_field(&p->out, "Content-Length", length);
}

static void make_head(struct proxy *p, const struct ports_target *t)
{
	const char *upgrade = exchange_header(p->x, "Upgrade");
	const char *host = exchange_header(p->x, "Host");
	auto_free char *first = str_format("%s %s%s%s HTTP/1.1\r\n", p->x->method, t->path,
					   p->x->query[0] ? "?" : "", p->x->query);
	const struct peer *peer = p->x->internal->peer;
	bool is_tls = peer && peer->is_tls;
	char text[64];

	exchange_each_header(p->x, read_connection, p);
	buf_add(&p->hop, "", 1);
	p->upgrading = upgrade && http1_list_has(buf_head(&p->hop), "Upgrade");
	buf_add(&p->out, first, strlen(first));
	snprintf(text, sizeof(text), "localhost:%u", t->port);
	http1_add_field(&p->out, "Host", t->host ? t->host : text);
	exchange_each_header(p->x, add_header, p);
	add_framing(p);
	if (host)
		http1_add_field(&p->out, "X-Forwarded-Host", host);
	if (t->prefix[0])
		http1_add_field(&p->out, "X-Forwarded-Prefix", t->prefix);
	http1_add_field(&p->out, "X-Forwarded-Proto", is_tls ? "https" : "http");
	buf_add(&p->out, "\r\n", 2);
}

/* ---- the request's body ---- */

/* Sends one chunk; 0: there is no room. The spare bytes are for its framing, and for the last chunk. */
static size_t body_chunk(struct proxy *p, const char *bytes, size_t len)
{
	size_t room = call_room(p->call), spare = 32, n;
	struct buf b = {0};
	char size[32];

	if (room <= spare)
		return 0;
	n = len < room - spare ? len : room - spare;
	n = n < PIECE ? n : PIECE;
	buf_add(&b, size, (size_t)snprintf(size, sizeof(size), "%zx\r\n", n));
	buf_add(&b, bytes, n);
	buf_add(&b, "\r\n", 2);
	if (!call_send(p->call, buf_head(&b), b.len))
		n = 0;
	buf_done(&b);
	return n;
}

/* Sends until the window is full: on_room is called only after that. */
static size_t body_take(void *arg, const char *bytes, size_t len)
{
	struct proxy *p = arg;
	size_t taken = 0, n;

	if (!p->chunked)
		return call_push(p->call, bytes, len);
	while (taken < len && (n = body_chunk(p, bytes + taken, len - taken)))
		taken += n;
	return taken;
}

static void body_end(void *arg)
{
	struct proxy *p = arg;

	if (p->chunked)
		call_send(p->call, "0\r\n\r\n", 5);
}

/* ---- the answer ---- */

static void on_tunnel_done(void *arg)
{
	struct proxy *p = arg;

	p->call = NULL; /* the tunnel has dropped it */
	proxy_free(p);
}

static void on_tunnel_open(void *arg, struct upgraded *u, const char *bytes, size_t len)
{
	struct proxy *p = arg;

	p->opening = false;
	if (!u || !p->call) {
		if (u)
			upgraded_close(u);
		proxy_free(p);
		return;
	}
	p->tunnel = tunnel_new(p->loop, u, p->call, &p->pump, on_tunnel_done, p);
	pump_resume(&p->pump);
	if (p->in.len && !tunnel_to_client(p->tunnel, buf_head(&p->in), p->in.len))
		return;
	if (len)
		tunnel_to_guest(p->tunnel, bytes, len);
}

static bool may_pass(const struct proxy *p, const char *name, const char *hop, bool upgraded)
{
	if (upgraded && !strcasecmp(name, "Upgrade"))
		return true;
	/* Date and X-Content-Type-Options are added to every answer. */
	return !http1_is_hop_header(name) && !http1_list_has(hop, name) &&
	       strcasecmp(name, "Date") != 0 && strcasecmp(name, "X-Content-Type-Options") != 0 &&
	       (p->own_host || strcasecmp(name, "Set-Cookie") != 0);
}

static void pass_headers(struct proxy *p, const struct http1_head *h)
{
	struct buf hop = {0};

	for (size_t i = 0; i < h->count; i++)
		if (!strcasecmp(h->fields[i].name, "Connection"))
			add_connection(&hop, h->fields[i].value);
	buf_add(&hop, "", 1);
	for (size_t i = 0; i < h->count; i++)
		if (may_pass(p, h->fields[i].name, buf_head(&hop), h->status == 101))
			exchange_add_header(p->x, h->fields[i].name, h->fields[i].value);
	buf_done(&hop);
	/* Without this, a page below a path of the daemon would have the origin of the daemon. */
	if (!p->own_host)
		exchange_set_header(p->x, "Content-Security-Policy",
				    "sandbox allow-scripts allow-forms allow-popups allow-modals");
}

static void finish_proxy(struct proxy *p)
{
	exchange_finish(take_ptr(p->x));
	proxy_free(p);
}

/* False: p is gone. */
static bool feed_answer(struct proxy *p, const char *bytes, size_t len)
{
	struct buf content = {0};
	int rc = http1_body_feed(&p->body, bytes, len, &content);

	exchange_write(p->x, content.len ? buf_head(&content) : "", content.len);
	buf_done(&content);
	if (rc < 0) {
		fail_because(p, "the answer from inside is malformed");
		return false;
	}
	if (p->body.done) {
		finish_proxy(p);
		return false;
	}
	return true;
}

/* The head is complete. False: p is gone, or has become a tunnel. */
static bool begin_answer(struct proxy *p, const struct http1_head *h, const char *rest, size_t len)
{
	if (h->status == 101) {
		struct exchange *x = p->x;
		struct buf more = {0};

		pass_headers(p, h);
		buf_add(&more, rest, len);
		buf_done(&p->in);
		p->in = more;
		p->opening = true;
		p->x = NULL;
		exchange_upgrade(x, on_tunnel_open, p);
		return false;
	}
	http1_body_begin(&p->body, h, p->no_body);
	pass_headers(p, h);
	p->streaming = true;
	exchange_stream(p->x, h->status, NULL,
			p->body.kind == HTTP1_LENGTH || p->no_body ? h->length
			: p->body.kind == HTTP1_NONE		   ? 0
								   : EXCHANGE_UNKNOWN_LENGTH);
	if (p->body.done) {
		finish_proxy(p);
		return false;
	}
	return !len || feed_answer(p, rest, len);
}

static void read_head(struct proxy *p, const char *bytes, size_t len)
{
	struct http1_head *h = must_alloc(malloc(sizeof(*h)));
	struct err e = {0};
	size_t head;

	buf_add(&p->in, bytes, len);
	while ((head = http1_head_length(buf_head(&p->in), p->in.len))) {
		if (http1_head_read(buf_head(&p->in), head, h, &e) < 0)
			break;
		if (h->status == 101 && !p->upgrading) {
			err_set(&e, ERR_INVALID, "an upgrade that nobody asked for");
			break;
		}
		if (h->status >= 200 || h->status == 101) {
			begin_answer(p, h, buf_head(&p->in) + head, p->in.len - head);
			free(h);
			return;
		}
		buf_drop(&p->in, head); /* 100 Continue and the like */
	}
	if (!e.kind && p->in.len > HTTP1_HEAD_MAX)
		err_set(&e, ERR_INVALID, "its head is too large");
	free(h);
	if (e.kind) {
		err_wrap(&e, "the answer from inside");
		fail_proxy(p, &e);
	}
}

static void on_guest_bytes(void *arg, const void *bytes, size_t len)
{
	struct proxy *p = arg;

	if (p->tunnel)
		tunnel_to_client(p->tunnel, bytes, len);
	else if (p->opening)
		buf_add(&p->in, bytes, len); /* bounded by the window: see answer_room */
	else if (p->streaming)
		feed_answer(p, bytes, len);
	else
		read_head(p, bytes, len);
}

/* While the head is read, nothing waits for the client. */
static size_t answer_room(void *arg)
{
	const struct proxy *p = arg;

	return p->tunnel      ? tunnel_room(p->tunnel)
	       : p->opening   ? 0
	       : p->streaming ? exchange_room(p->x)
			      : 1;
}

static void inner_eof(struct proxy *p)
{
	if (p->x && p->streaming && http1_body_end(&p->body))
		finish_proxy(p);
	else if (p->x)
		fail_because(p, "the program inside hung up before its answer was complete");
}

static void on_connected(void *arg, const struct file_info *info)
{
	static const struct body_ops body = {body_take, body_end};
	struct proxy *p = arg;

	call_send(p->call, buf_head(&p->out), p->out.len);
	exchange_take_body(p->x, &body, p);
}

static void on_guest_closed(void *arg)
{
	struct proxy *p = arg;

	if (p->tunnel)
		tunnel_guest_closed(p->tunnel);
	else
		inner_eof(p);
}

static void on_guest_end(void *arg, const struct answer *a, const struct err *e)
{
	struct proxy *p = arg;

	p->call = NULL;
	if (p->tunnel)
		tunnel_guest_ended(p->tunnel);
	else if (p->x && e)
		fail_proxy(p, e);
	else
		inner_eof(p);
}

static void on_guest_room(void *arg)
{
	struct proxy *p = arg;

	if (p->tunnel)
		tunnel_guest_room(p->tunnel);
	else if (p->x)
		exchange_more(p->x);
}

static void on_client_gone(void *arg)
{
	fail_because(arg, "the client has gone");
}

void ports_proxy(struct exchange *x, struct sandbox *s, const struct ports_target *target)
{
	struct proxy *p = must_alloc(calloc(1, sizeof(*p)));
	const struct receiver r = {.begin = on_connected,
				   .bytes = on_guest_bytes,
				   .closed = on_guest_closed,
				   .room = on_guest_room,
				   .done = on_guest_end,
				   .arg = p,
				   .pump = &p->pump};

	*p = (struct proxy){.x = x, .loop = x->api->loop, .own_host = target->own_host};
	p->no_body = str_equal(x->method, "HEAD");
	p->pump = (struct pump){.room = answer_room, .to = p};
	make_head(p, target);
	if (p->out.len > HTTP1_HEAD_MAX) {
		exchange_fail(take_ptr(p->x), ERR_CONFLICT, "the request's head is too large");
		proxy_free(p);
		return;
	}
	exchange_on_gone(x, on_client_gone, p);
	exchange_on_room(x, pump_resume, &p->pump);
	p->call = call_connect(s, target->port, &r);
}
