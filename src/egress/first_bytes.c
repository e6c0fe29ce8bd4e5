/*
 * Chooses the handler of a connection by the first bytes of its client: TLS, HTTP, or anything else. The server's bytes
 * are relayed meanwhile, since in many protocols the server speaks first. TLS that is not opened must name the host
 * that was dialled.
 */
#include "egress/egress_internal.h"
#include "egress/secrets.h"

#include "wire/tls_hello.h"

#define FIRST_MS 10000
#define LINE_MAX_BYTES 16384
#define METHOD_MAX_BYTES 64 /* a longer word is no method to any server */
#define SERVER_HELLO_BYTES 64
#define RECORD_HEAD 5
#define HANDSHAKE 22

enum looks { LOOKS_MORE, LOOKS_HTTP, LOOKS_OTHER };

/* ---- HTTP ---- */

static bool is_token(char c)
{
	return c > ' ' && c < 127 && !strchr("\"(),/:;<=>?@[\\]{}", c);
}

/* What some servers take for a blank, in front of a request and in its first line. */
static bool is_blank(char c)
{
	return memchr(" \t\v\f\r\x1c\x1d\x1e\x1f\x85\xa0", c, 11);
}

static bool is_known_method(const char *word, size_t len)
{
	unsigned method = net_method_find(word, len);

	return (method && method != NET_OTHER_METHOD) || (len == 3 && memcmp(word, "PRI", 3) == 0);
}

/* The first line, without its end, is a word, blanks and the rest. */
static bool is_request_line(const char *line, size_t len, size_t word)
{
	size_t at = word;

	while (at < len && is_blank(line[at]))
		at++;
	/* HTTP/0.9 has no version; a target begins like this in any case. */
	if (at < len && strchr("/*hH", line[at]) && is_known_method(line, word))
		return true;
	return memmem(line + at, len - at, "HTTP/", 5) || memmem(line + at, len - at, "http/", 5);
}

/*
 * The PROXY protocol, both versions: what follows it would not be looked at, and a server that believes it would read
 * a request or hello behind it. Only proxies in front of a server speak it.
 */
static bool is_proxy_header(const char *bytes, size_t len)
{
	static const char v1[] = "PROXY ", v2[] = "\r\n\r\n\0\r\nQUIT\n";
	size_t some = len < sizeof(v2) - 1 ? len : sizeof(v2) - 1;

	/* The first five bytes of the second version are no other protocol's. */
	return (len >= sizeof(v1) - 1 && memcmp(bytes, v1, sizeof(v1) - 1) == 0) ||
	       (len >= 5 && memcmp(bytes, v2, some) == 0);
}

/* Servers skip empty lines and blanks in front of a request, and so does this. */
static enum looks looks_like_http(const char *bytes, size_t len)
{
	size_t at = 0, word;
	const char *end;

	while (at < len && (is_blank(bytes[at]) || bytes[at] == '\n'))
		at++;
	bytes += at;
	len -= at;
	for (word = 0; word < len && is_token(bytes[word]); word++)
		;
	if (word > METHOD_MAX_BYTES)
		return LOOKS_OTHER;
	if (word == len)
		return LOOKS_MORE;
	if (word == 0 || !is_blank(bytes[word]))
		return LOOKS_OTHER;
	end = memchr(bytes, '\n', len);
	if (!end)
		return LOOKS_MORE;
	return is_request_line(bytes, (size_t)(end - bytes), word) ? LOOKS_HTTP : LOOKS_OTHER;
}

/* ---- TLS ---- */

/* False: it was denied. */
static bool check_name(struct conn *c, enum tls_hello kind, const char *sni)
{
	char why[EGRESS_TEXT];

	if (kind == TLS_MALFORMED) {
		conn_deny(c, "malformed TLS hello", NULL);
		return false;
	}
	if (kind == TLS_NO_NAME) {
		/* An address has no name to ask for. */
		if (c->answer.no_sni || !c->name[0] || str_equal(c->name, "localhost"))
			return true;
		conn_deny(c, "TLS without a server name", NULL);
		return false;
	}
	if (conn_may_call_it(c, sni, strlen(sni)))
		return true;
	snprintf(why, sizeof(why), "TLS asks for %.200s instead", sni);
	conn_deny(c, why, NULL);
	return false;
}

/* ---- the first bytes ---- */

static bool is_lost(struct conn *c)
{
	if (c->upstream != UPSTREAM_REFUSED && c->upstream != UPSTREAM_FAILED)
		return false;
	conn_reset(c);
	return true;
}

static void wait_for_more(struct conn *c, const char *why)
{
	if (c->client.ended)
		conn_deny(c, why, NULL);
	else if (!c->hold.place)
		conn_hold(c, FIRST_MS, why);
}

/* Could these bytes, the beginning of a line, begin with a method that most servers know? */
static bool may_be_known_method(const char *bytes, size_t len)
{
	size_t word = 0;

	while (word < len && is_token(bytes[word]))
		word++;
	for (unsigned m = NET_GET; m <= NET_CONNECT; m *= 2) {
		const char *name = net_method_name(m);

		if (word <= strlen(name) && strncasecmp(name, bytes, word) == 0)
			return true;
	}
	return false;
}

/*
 * In some protocols a client sends a word and waits. So bytes that may still become HTTP, but with an unusual
 * method, are passed on at once. If HTTP comes of them after all, the connection ends before the server has
 * the whole line.
 */
static void begun_step(struct conn *c)
{
	struct buf *line = c->state, *in = &c->client.in;
	enum looks looks = LOOKS_MORE;

	if (is_lost(c))
		return;
	if (!line)
		line = c->state = must_alloc(calloc(1, sizeof(*line)));
	conn_pass(&c->server, &c->client);
	if (in->len) {
		buf_add(line, buf_head(in), in->len);
		looks = looks_like_http(buf_head(line), line->len);
	}
	if (is_proxy_header(buf_head(line), line->len)) {
		conn_deny(c, "the PROXY protocol", NULL);
		return;
	}
	if (looks == LOOKS_HTTP) {
		conn_deny(c, "HTTP whose first line came in parts", NULL);
		return;
	}
	if (looks == LOOKS_MORE && line->len > LINE_MAX_BYTES) {
		conn_deny(c, "the first line is too long", NULL);
		return;
	}
	conn_pass(&c->client, &c->server);
	if (looks == LOOKS_OTHER)
		conn_hand_over(c, &conn_relay);
}

static void begun_done(struct conn *c)
{
	if (c->state)
		buf_done(c->state);
	free(c->state);
}

static const struct handler conn_begun = {
	.name = "begun", .passes_server = true, .step = begun_step, .done = begun_done};

static void choose_plain(struct conn *c)
{
	const struct buf *in = &c->client.in;

	if (is_proxy_header(buf_head(in), in->len)) {
		conn_deny(c, "the PROXY protocol", NULL);
		return;
	}
	switch (looks_like_http(buf_head(in), in->len)) {
	case LOOKS_MORE:
		if (in->len > LINE_MAX_BYTES)
			conn_deny(c, "the first line is too long", NULL);
		else if (!c->answer.http && !may_be_known_method(buf_head(in), in->len))
			conn_hand_over(c, &conn_begun);
		else
			wait_for_more(c, "incomplete first line");
		return;
	case LOOKS_HTTP:
		conn_hand_over(c, &conn_http);
		return;
	case LOOKS_OTHER:
		if (c->answer.http)
			conn_deny(c, "the rules have methods or paths, but this is not HTTP", NULL);
		else
			conn_hand_over(c, &conn_relay);
	}
}

/* Only in requests that can be read is a placeholder found. */
static bool is_inspected(const struct conn *c)
{
	return c->answer.inspect || secrets_has_host(c->uplink->secrets, c->name, c->port);
}

static void choose(struct conn *c)
{
	struct tls_hello_found found = {0};
	enum tls_hello kind =
		tls_hello_read((unsigned char *)buf_head(&c->client.in), c->client.in.len, &found);

	if (kind == TLS_MORE)
		wait_for_more(c, "incomplete TLS hello");
	else if (kind == TLS_NOT)
		choose_plain(c);
	else if (check_name(c, kind, found.name))
		conn_hand_over(c, is_inspected(c) ? &conn_inspect : &conn_tls);
}

/* A rule for the address may want to read what is said. */
static bool must_wait(const struct conn *c)
{
	return c->upstream == UPSTREAM_WAITING && c->name[0] && !c->peer[0] &&
	       uplink_judges_addresses(c->uplink);
}

/*
 * A server of HTTP/2 may send its settings before it has heard anything. They belong to the stage that will stand
 * between both sides: the client gets settings of the stage instead.
 */
static bool may_be_settings(const struct buf *in)
{
	static const unsigned char head[] = {0, 0, 0, 4, 0, 0, 0, 0, 0}; /* length: 3 bytes */
	const unsigned char *bytes = (const unsigned char *)buf_head(in);

	for (size_t i = 0; i < sizeof(head) && i < in->len; i++)
		if (bytes[i] != head[i] && i != 1 && i != 2)
			return false;
	return in->len > 0;
}

static void first_bytes_step(struct conn *c)
{
	if (is_lost(c))
		return;
	if (c->client.ended || c->server.ended || !may_be_settings(&c->server.in))
		conn_pass(&c->server, &c->client);
	if (must_wait(c))
		return;
	if (c->client.in.len)
		choose(c);
	else if (c->client.ended)
		c->server.finish = true;
}

const struct handler conn_first_bytes = {.name = "first bytes", .step = first_bytes_step};

/* ---- TLS that is not opened ----
 *
 * A server may ask for a second hello, and that could bear another name. So handshake records of the client
 * wait until the server has answered the first hello: no client sends one before.
 */

struct tls_state {
	size_t left; /* of the record that is being passed on */
	unsigned char server[SERVER_HELLO_BYTES];
	size_t server_len;
	bool has_hello, retries;
};

static void tls_done(struct conn *c)
{
	free(c->state);
}

/* 1: a second hello will come; 0: none; -1: the server has not answered yet. */
static int watch_server(struct conn *c, struct tls_state *t)
{
	size_t n = sizeof(t->server) - t->server_len;
	int rc;

	if (n > c->server.in.len)
		n = c->server.in.len;
	if (n)
		memcpy(t->server + t->server_len, buf_head(&c->server.in), n);
	t->server_len += n;
	rc = tls_server_retries(t->server, t->server_len);
	return rc < 0 && (c->server.ended || t->server_len == sizeof(t->server)) ? 0 : rc;
}

static void pass_some(struct conn *c, size_t len)
{
	buf_add(&c->server.out, buf_head(&c->client.in), len);
	buf_drop(&c->client.in, len);
}

/* Judges a hello at the start of client.in. False: it is not complete, or was denied. */
static bool pass_hello(struct conn *c)
{
	struct tls_hello_found found = {0};
	enum tls_hello kind =
		tls_hello_read((unsigned char *)buf_head(&c->client.in), c->client.in.len, &found);

	if (kind == TLS_MORE)
		wait_for_more(c, "incomplete TLS hello");
	if (kind == TLS_MORE || !check_name(c, kind == TLS_NOT ? TLS_MALFORMED : kind, found.name))
		return false;
	pass_some(c, found.len);
	return true;
}

/* Passes records on up to a handshake record. */
static void pass_records(struct conn *c, struct tls_state *t)
{
	while (c->client.in.len) {
		const unsigned char *head = (unsigned char *)buf_head(&c->client.in);
		size_t n = t->left < c->client.in.len ? t->left : c->client.in.len;

		if (n) {
			pass_some(c, n);
			t->left -= n;
			continue;
		}
		if (head[0] == HANDSHAKE || c->client.in.len < RECORD_HEAD)
			return;
		t->left = RECORD_HEAD + (size_t)(head[3] << 8 | head[4]);
	}
}

static void tls_step(struct conn *c)
{
	struct tls_state *t = c->state;

	if (is_lost(c))
		return;
	if (!t)
		t = c->state = must_alloc(calloc(1, sizeof(*t)));
	if (!t->has_hello) {
		if (!pass_hello(c))
			return;
		t->has_hello = true;
	}
	if (!t->retries) {
		int rc = watch_server(c, t);

		if (rc == 0) {
			conn_hand_over(c, &conn_relay);
			return;
		}
		t->retries = rc > 0;
	}
	conn_pass(&c->server, &c->client);
	pass_records(c, t);
	if (t->retries && t->left == 0 && c->client.in.len &&
	    (unsigned char)*buf_head(&c->client.in) == HANDSHAKE && pass_hello(c))
		conn_hand_over(c, &conn_relay);
	else if (!c->dead && c->client.ended)
		c->server.finish = true;
}

const struct handler conn_tls = {.name = "tls", .step = tls_step, .done = tls_done};
