/*
 * The explicit proxy of a sandbox, on every port of the gateway's address: HTTP with CONNECT and absolute URLs, and
 * SOCKS5, told apart by the first byte. It ends where a transparent connection begins: in conn_dial, and then
 * in conn_first_bytes, which checks what is spoken.
 */
#include "egress/http_check.h"
#include "egress/http_conn.h"
#include "egress/socks.h"

#include <strings.h>

#define REQUEST_MS 30000

enum step { READING, SOCKS_GREETED, DIALLING };

struct proxy {
	enum step step;
	bool is_socks, is_connect;
};

/* A name that the rules allow counts like one that is looked up: NULL, or the budget that is used up. */
static const char *count_name(struct conn *c, const char *name, uint16_t port)
{
	struct net_question q = {.name = name, .port = port};
	struct net_answer answer;

	uplink_decide(c->uplink, &q, &answer);
	return !answer.allowed || dns_name_index(c->uplink, name, answer.rule) ? NULL : "names";
}

/* Dials what a client of the proxy names. -1: it cannot be a destination. */
static int dial_host(struct conn *c, const char *host, size_t len, uint16_t port)
{
	struct uplink *s = c->uplink;
	struct network address;
	char name[NET_NAME];
	struct err e = {0};
	int kind = net_host(host, len, name, &address, &e);
	const char *known;
	uint32_t index;

	if (kind == NET_IS_NAME && conn_is_host(name))
		snprintf(name, sizeof(name), "localhost");
	if (kind < 0 || (kind == NET_IS_NAME && count_name(c, name, port)))
		return -1;
	if (kind == NET_IS_NAME) {
		conn_dial(c, name, NULL, port);
		return 0;
	}
	known = uplink_name_of(s, address.address, &index);
	if (!known || index == NET_GATEWAY_INDEX)
		return -1;
	conn_dial(c, known, known[0] ? NULL : address.address, port);
	return 0;
}

/* ---- answers of the proxy ---- */

static void refuse_http(struct conn *c, int status, const char *why, const char *remedy)
{
	struct http_refusal r;

	http_refuse(&r, status, "%s", why);
	snprintf(r.remedy, sizeof(r.remedy), "%s", remedy);
	http_refusal_write(&c->client.out, &r, false);
}

/* A request that is no destination: recorded here. */
static void deny(struct conn *c, const char *why)
{
	struct proxy *x = c->state;

	if (x->is_socks)
		socks_answer(&c->client.out, SOCKS_FAILURE);
	else
		refuse_http(c, 400, why, "");
	conn_deny(c, why, NULL);
}

/* The destination was refused or is not there; recorded already. */
static void tell_no_server(struct conn *c)
{
	struct proxy *x = c->state;
	bool refused = c->upstream == UPSTREAM_REFUSED;

	if (x->is_socks)
		socks_answer(&c->client.out, refused ? SOCKS_NOT_ALLOWED : SOCKS_UNREACHABLE);
	else if (refused)
		refuse_http(c, 403, c->answer.why, c->answer.remedy);
	else
		refuse_http(c, 502, "the server cannot be reached", "");
	conn_close(c);
}

static void tell_server(struct conn *c)
{
	static const char established[] = "HTTP/1.1 200 Connection established\r\n\r\n";
	struct proxy *x = c->state;

	if (x->is_socks)
		socks_answer(&c->client.out, SOCKS_DONE);
	else if (x->is_connect)
		buf_add(&c->client.out, established, sizeof(established) - 1);
	conn_hand_over(c, x->is_socks || x->is_connect ? &conn_first_bytes : &conn_http_once);
}

/* ---- HTTP ---- */

static void dial_connect(struct conn *c, const struct http1_head *h, size_t len)
{
	struct proxy *x = c->state;
	uint16_t port = 0;
	ssize_t host = http_authority(h->target, strlen(h->target), &port);
	auto_free char *copy = NULL;

	if (host < 0 || !port || h->chunked || h->length > 0) {
		deny(c, "CONNECT needs host:port, and has no body");
		return;
	}
	copy = must_alloc(strndup(h->target, (size_t)host));
	x->is_connect = true;
	x->step = DIALLING;
	buf_drop(&c->client.in, len);
	if (dial_host(c, copy, (size_t)host, port) < 0)
		deny(c, "CONNECT to what is no host, or to one name too many");
}

/* The request stays in client.in, for conn_http_once. */
static void dial_absolute(struct conn *c, const struct http1_head *h)
{
	struct proxy *x = c->state;
	uint16_t port = 80;
	const char *at = h->target;
	ssize_t host;

	if (strncasecmp(at, "http://", 7) != 0) {
		deny(c, "this is the sandbox's proxy: it serves CONNECT, http:// and SOCKS5");
		return;
	}
	at += 7;
	host = http_authority(at, strcspn(at, "/?#"), &port);
	x->step = DIALLING;
	if (host < 0 || dial_host(c, at, (size_t)host, port) < 0)
		deny(c, "the request's target is no host, or one name too many");
}

static void read_http(struct conn *c)
{
	struct buf *in = &c->client.in;
	auto_free char *copy = NULL;
	struct http1_head h;
	struct err e = {0};
	size_t scanned = 0;
	ssize_t len = http1_request_length(buf_head(in), in->len, &scanned);

	if (len == 0 && in->len <= CONN_BUFFER / 2)
		return;
	if (len <= 0) {
		deny(c, "the proxy was sent neither HTTP nor SOCKS5");
		return;
	}
	copy = must_alloc(malloc((size_t)len));
	memcpy(copy, buf_head(in), (size_t)len);
	if (http1_request_read(copy, (size_t)len, &h, &e) < 0)
		deny(c, e.msg);
	else if (str_equal(h.method, "CONNECT"))
		dial_connect(c, &h, (size_t)len);
	else
		dial_absolute(c, &h);
}

/* ---- SOCKS5 ---- */

static void read_greeting(struct conn *c)
{
	struct proxy *x = c->state;
	ssize_t len =
		socks_greeting((const unsigned char *)buf_head(&c->client.in), c->client.in.len);

	if (len < 0) {
		buf_add(&c->client.out, "\x05\xff", 2);
		conn_deny(c, "SOCKS5 is served without authentication only", NULL);
	} else if (len > 0) {
		buf_drop(&c->client.in, (size_t)len);
		buf_add(&c->client.out, "\x05", 2);
		x->step = SOCKS_GREETED;
	}
}

static void read_socks(struct conn *c)
{
	struct proxy *x = c->state;
	enum socks_reply reply = SOCKS_FAILURE;
	struct socks_request q;
	ssize_t len;
	int rc = 0;

	if (x->step == READING)
		read_greeting(c);
	if (c->dead || c->closing || x->step != SOCKS_GREETED || !c->client.in.len)
		return;
	len = socks_request((const unsigned char *)buf_head(&c->client.in), c->client.in.len, &q,
			    &reply);
	if (len < 0) {
		socks_answer(&c->client.out, reply);
		conn_deny(c,
			  reply == SOCKS_NO_COMMAND ? "SOCKS5 is served for CONNECT only"
						    : "a malformed SOCKS5 request",
			  NULL);
	} else if (len > 0) {
		buf_drop(&c->client.in, (size_t)len);
		x->step = DIALLING;
		if (q.host[0]) {
			rc = dial_host(c, q.host, strlen(q.host), q.port);
		} else {
			char digits[NET_ADDRESS_TEXT];

			net_address_text(q.address, false, digits);
			rc = dial_host(c, digits, strlen(digits), q.port);
		}
		if (rc < 0)
			deny(c,
			     "the SOCKS5 request is for what is no host, or for one name too many");
	}
}

/* ---- the handler ---- */

static void proxy_step(struct conn *c)
{
	struct proxy *x = c->state;

	if (!x) {
		x = c->state = must_alloc(calloc(1, sizeof(*x)));
		conn_hold(c, REQUEST_MS, "no request to the proxy in time");
	}
	if (c->closing || c->dead)
		return;
	if (x->step != DIALLING && c->client.in.len) {
		x->is_socks = *buf_head(&c->client.in) == 5 || x->step == SOCKS_GREETED;
		if (x->is_socks)
			read_socks(c);
		else
			read_http(c);
	}
	if (c->dead || c->closing)
		return;
	if (x->step == DIALLING)
		conn_hold(c, 0, NULL);
	if (x->step == DIALLING && c->upstream == UPSTREAM_OPEN)
		tell_server(c);
	else if (x->step == DIALLING &&
		 (c->upstream == UPSTREAM_REFUSED || c->upstream == UPSTREAM_FAILED))
		tell_no_server(c);
	else if (x->step != DIALLING && c->client.ended)
		conn_close(c);
}

static void proxy_done(struct conn *c)
{
	free(c->state);
	c->state = NULL;
}

const struct handler conn_proxy = {.name = "proxy", .step = proxy_step, .done = proxy_done};
