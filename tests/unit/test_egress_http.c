/* egress: requests that are read in one way only, and refused otherwise; secrets and their way back. */
#include "egress/http_filter.h"
#include "egress/secrets.h"
#include "egress/socks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- a connection to allowed.test:80, or :443 with secrets ---- */

struct world {
	struct http_place place;
	struct secrets *secrets;
	struct stage *stage;
	char noted[1024], told[1024];
	unsigned asked;
};

/* DELETE is refused; of the paths only those below /ok, and /, are allowed. */
static void decide(void *context, unsigned method, const char *path, struct net_answer *ret)
{
	*ret = (struct net_answer){.http = true,
				   .allowed = method != NET_DELETE &&
					      (str_equal(path, "/") || str_starts(path, "/ok"))};
	if (!ret->allowed) {
		snprintf(ret->why, sizeof(ret->why), "no rule for %s", path);
		snprintf(ret->remedy, sizeof(ret->remedy), "--allow remedy");
	}
}

static bool may_call_it(void *context, const char *host, size_t len)
{
	struct world *w = context;
	struct network address;
	struct err e = {0};
	char name[NET_NAME];

	return net_host(host, len, name, &address, &e) == NET_IS_NAME &&
	       str_equal(name, w->place.name);
}

static const char *count(void *context)
{
	((struct world *)context)->asked++;
	return NULL;
}

static void told(void *context, const char *method, const char *path, const struct http_refusal *r)
{
	struct world *w = context;

	str_append(w->told, sizeof(w->told), "; ", "%s %s %s", method, path,
		   r ? r->why : "allowed");
}

static void noted(void *context, const char *what)
{
	struct world *w = context;

	str_append(w->noted, sizeof(w->noted), "; ", "denial: %s", what);
}

static void used(void *context, const char *secret)
{
	struct world *w = context;

	str_append(w->noted, sizeof(w->noted), "; ", "%s was used", secret);
}

static struct secrets *secrets_of(void *context)
{
	return ((struct world *)context)->secrets;
}

static void world_init(struct world *w, bool tls)
{
	*w = (struct world){.place = {.name = "allowed.test",
				      .port = tls ? 443 : 80,
				      .is_tls = tls,
				      .may_call_it = may_call_it,
				      .count = count,
				      .decide = decide,
				      .told = told,
				      .noted = noted,
				      .used = used,
				      .secrets = secrets_of}};
	w->place.context = w;
	w->stage = http_filter_new(&w->place);
}

static void world_done(struct world *w)
{
	stage_free(w->stage);
	secrets_unref(w->secrets);
}

static void feed(struct world *w, enum stage_side from, const char *bytes, size_t len, size_t step)
{
	for (size_t at = 0; at < len; at += step)
		stage_feed(w->stage, from, bytes + at, len - at < step ? len - at : step);
}

static void feed_text(struct world *w, enum stage_side from, const char *text)
{
	feed(w, from, text, strlen(text), strlen(text));
}

/* What went to a side since the last call. */
static const char *sent(struct world *w, enum stage_side side)
{
	static char text[2][1 << 18];
	struct buf *b = &w->stage->out[side];

	assert_true(b->len < sizeof(text[0]));
	memcpy(text[side], b->len ? buf_head(b) : "", b->len);
	text[side][b->len] = '\0';
	buf_drop(b, b->len);
	return text[side];
}

static void assert_has(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("no \"%s\" in \"%s\"", part, text);
}

static void assert_lacks(const char *text, const char *part)
{
	if (strstr(text, part))
		fail_msg("\"%s\" in \"%s\"", part, text);
}

/* ---- requests ---- */

#define HOST "Host: allowed.test\r\n"

static const struct {
	int status; /* 0: passed on */
	const char *request;
} request_rows[] = {
	{0, "GET / HTTP/1.1\r\n" HOST "\r\n"},
	{0, "GET / HTTP/1.0\r\n" HOST "\r\n"},
	{0, "GET /ok/a?b=/../c HTTP/1.1\r\nHost: ALLOWED.test.:80\r\n\r\n"},
	{0, "GET http://allowed.test/ok HTTP/1.1\r\n" HOST "\r\n"},
	{0, "GET HTTP://allowed.test HTTP/1.1\r\n" HOST "\r\n"},
	{0, "\r\nGET / HTTP/1.1\r\n" HOST "\r\n"},
	{0, "POST / HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc"},
	{0, "POST / HTTP/1.1\r\n" HOST
	    "Transfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\n"},
	{0, "GET / HTTP/1.1\r\n" HOST "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: "
	    "h2c\r\nHTTP2-Settings: AA\r\n\r\n"},
	{0, "GET / HTTP/1.1\r\n" HOST "X-HTTP-Method-Overrides: PUT\r\n\r\n"},
	/* another method or path, to some servers */
	{403, "POST / HTTP/1.1\r\n" HOST "x-http-method-override: DELETE\r\n\r\n"},
	{403, "GET / HTTP/1.1\r\n" HOST "X_HTTP-Method: DELETE\r\n\r\n"},
	{403, "GET / HTTP/1.1\r\n" HOST "X-Original-URL: /forbidden\r\n\r\n"},
	{403, "GET / HTTP/1.1\r\n" HOST "X-Rewrite-Url: /forbidden\r\n\r\n"},
	/* another host */
	{400, "GET / HTTP/1.1\r\n\r\n"},
	{403, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"},
	{403, "GET / HTTP/1.1\r\nHost: allowed.test:8080\r\n\r\n"},
	{403, "GET / HTTP/1.1\r\nHost: allowed.test.evil.test\r\n\r\n"},
	{403, "GET / HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n"},
	{403, "GET / HTTP/1.1\r\nHost: allowed.test@evil.test\r\n\r\n"},
	{403, "GET / HTTP/1.1\r\nHost: evil.test#allowed.test\r\n\r\n"},
	{403, "GET / HTTP/1.1\r\nHost: allowed.test, evil.test\r\n\r\n"},
	{403, "GET / HTTP/1.1\r\nHost: allowed.test:\r\n\r\n"},
	{403, "GET / HTTP/1.1\r\nHost: allowed.test:99999\r\n\r\n"},
	{403, "GET / HTTP/1.1\r\nHost:\r\n\r\n"},
	{400, "GET / HTTP/1.1\r\n" HOST "Host: evil.test\r\n\r\n"},
	{400, "GET / HTTP/1.1\r\n" HOST HOST "\r\n"},
	{400, "GET http://evil.test/ HTTP/1.1\r\n" HOST "\r\n"},
	{400, "GET * HTTP/1.1\r\n" HOST "\r\n"},
	{400, "GET https://allowed.test/ HTTP/1.1\r\n" HOST "\r\n"},
	{400, "GET http://allowed.test@evil.test/ HTTP/1.1\r\n" HOST "\r\n"},
	{403, "GET //evil.test HTTP/1.1\r\nHost: \r\n\r\n"},
	{400, "CONNECT evil.test:443 HTTP/1.1\r\n" HOST "\r\n"},
	{403, "CONNECT / HTTP/1.1\r\n" HOST "\r\n"},
	/* bytes that two parties read differently */
	{400, "POST / HTTP/1.1\r\n" HOST
	      "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	{400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc"},
	{400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc"},
	{400, "POST / HTTP/1.1\r\n" HOST "Content-Length: +3\r\n\r\nabc"},
	{400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 3, 3\r\n\r\nabc"},
	{400, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: xchunked\r\n\r\n"},
	{400, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked, identity\r\n\r\n"},
	{400,
	 "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n"},
	{400, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"},
	{400, "POST / HTTP/1.1\r\n" HOST "X: a\r\n Transfer-Encoding: chunked\r\n\r\n"},
	{400, "POST / HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	{400, "GET / HTTP/1.1\r\n" HOST "X: a\nY: b\r\n\r\n"},
	{400, "GET / HTTP/1.1\r\n" HOST "X: a\rY: b\r\n\r\n"},
	{400, "GET / HTTP/1.1\n" HOST "\n"},
	{400, "GET  / HTTP/1.1\r\n" HOST "\r\n"},
	{400, "GET /\t HTTP/1.1\r\n" HOST "\r\n"},
	{400, "GET / HTTP/1.1 \r\n" HOST "\r\n"},
	{400, "GET / HTTP/2.0\r\n" HOST "\r\n"},
	{400, "GET /#x HTTP/1.1\r\n" HOST "\r\n"},
	{400, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
	{400, "GET / HTTP/1.1\r\n" HOST ": x\r\n\r\n"},
	{400, "GET / HTTP/1.1\r\n" HOST "X\r\n\r\n"},
	/* methods and paths */
	{403, "DELETE / HTTP/1.1\r\n" HOST "\r\n"},
	{403, "GET /no HTTP/1.1\r\n" HOST "\r\n"},
	{403, "GET /ok/../no HTTP/1.1\r\n" HOST "\r\n"},
	{403, "GET /ok/%2e%2e/no HTTP/1.1\r\n" HOST "\r\n"},
	{403, "GET /ok/%2E./no HTTP/1.1\r\n" HOST "\r\n"},
	{403, "GET /ok%2f..%2fno HTTP/1.1\r\n" HOST "\r\n"},
	{403, "GET /ok/..%2fno HTTP/1.1\r\n" HOST "\r\n"},
	{403, "GET /ok/..\\no HTTP/1.1\r\n" HOST "\r\n"},
	{403, "GET /ok/..%5cno HTTP/1.1\r\n" HOST "\r\n"},
	{403, "GET /ok/..;x=y/no HTTP/1.1\r\n" HOST "\r\n"},
	{403, "GET /ok/%252e%252e/no HTTP/1.1\r\n" HOST "\r\n"},
	{403, "GET //no HTTP/1.1\r\n" HOST "\r\n"},
	{403, "GET /no/../ok HTTP/1.1\r\n" HOST "\r\n"},
	{403, "OPTIONS * HTTP/1.1\r\n" HOST "\r\n"},
	{400, "GET /ok%00 HTTP/1.1\r\n" HOST "\r\n"},
	{400, "GET /ok%0d%0a HTTP/1.1\r\n" HOST "\r\n"},
	{400, "GET /ok%zz HTTP/1.1\r\n" HOST "\r\n"},
};

static void test_requests(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(request_rows) * 2; i++) {
		const char *text = request_rows[i / 2].request, *answer;
		char status[32];
		struct world w;

		world_init(&w, false);
		feed(&w, STAGE_CLIENT, text, strlen(text), i % 2 ? 1 : strlen(text));
		answer = sent(&w, STAGE_CLIENT);
		snprintf(status, sizeof(status), "HTTP/1.1 %d ", request_rows[i / 2].status);
		if (request_rows[i / 2].status ? !str_starts(answer, status) : *answer != '\0')
			fail_msg("%s: \"%s\"", text, answer);
		assert_int_equal(*sent(&w, STAGE_SERVER) == '\0', request_rows[i / 2].status != 0);
		assert_int_equal(w.stage->closing[STAGE_CLIENT], request_rows[i / 2].status != 0);
		if (request_rows[i / 2].status == 403 && !strstr(text, "Host: a"))
			assert_has(answer, "its connection is to allowed.test:80");
		assert_true(*w.told);
		world_done(&w);
	}
}

static void test_refusal_says_the_remedy(void **state)
{
	struct world w;
	const char *answer;

	world_init(&w, false);
	feed_text(&w, STAGE_CLIENT, "GET /no?key=hidden HTTP/1.1\r\n" HOST "\r\n");
	answer = sent(&w, STAGE_CLIENT);
	assert_has(answer, "HTTP/1.1 403 Forbidden\r\n");
	assert_has(answer, "Connection: close\r\n");
	assert_has(answer, "no rule for /no\n");
	assert_has(answer, "--allow remedy");
	assert_string_equal(w.told, "GET /no no rule for /no");
	world_done(&w);
}

static void test_head_limit(void **state)
{
	char *text = malloc(80 << 10);
	struct world w;
	size_t n = (size_t)sprintf(text, "GET / HTTP/1.1\r\n" HOST "X: ");

	memset(text + n, 'x', 70 << 10);
	world_init(&w, false);
	feed(&w, STAGE_CLIENT, text, n + (70 << 10), 1000);
	assert_has(sent(&w, STAGE_CLIENT), "HTTP/1.1 431 ");
	assert_string_equal(sent(&w, STAGE_SERVER), "");
	world_done(&w);
	free(text);
}

static void test_rewritten_request(void **state)
{
	struct world w;

	world_init(&w, false);
	feed_text(&w, STAGE_CLIENT,
		  "GET http://allowed.test/ok?a HTTP/1.1\r\n" HOST
		  "X:  y \r\nConnection: keep-alive, Upgrade, X\r\nUpgrade: h2c\r\n"
		  "HTTP2-Settings: AA\r\nProxy-Authorization: Basic eA==\r\n\r\n");
	assert_string_equal(sent(&w, STAGE_SERVER),
			    "GET /ok?a HTTP/1.1\r\n" HOST "X: y\r\nConnection: keep-alive\r\n\r\n");
	world_done(&w);
}

/* ---- several requests on one connection ---- */

static void test_second_request_is_checked(void **state)
{
	struct world w;

	world_init(&w, false);
	feed_text(&w, STAGE_CLIENT,
		  "POST / HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc"
		  "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n");
	assert_lacks(sent(&w, STAGE_SERVER), "evil");
	assert_string_equal(sent(&w, STAGE_CLIENT), ""); /* the first answer comes first */
	feed_text(&w, STAGE_SERVER, "HTTP/1.1 200 Fine\r\nContent-Length: 2\r\n\r\nhi");
	assert_true(str_starts(sent(&w, STAGE_CLIENT),
			       "HTTP/1.1 200 Fine\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 403 "));
	assert_true(stage_is_over(w.stage));
	world_done(&w);
}

static void test_pipeline_stays_in_step(void **state)
{
	static const char answers[] = "HTTP/1.1 100 Continue\r\n\r\n"
				      "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" /* of HEAD */
				      "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n"
				      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
				      "3\r\nabc\r\n0\r\nX: y\r\n\r\n"
				      "HTTP/1.1 200 OK\r\n\r\nto the end";
	struct world w;

	for (size_t step = 1; step < 60; step += 7) {
		world_init(&w, false);
		feed_text(&w, STAGE_CLIENT,
			  "HEAD / HTTP/1.1\r\n" HOST "\r\nGET / HTTP/1.1\r\n" HOST
			  "\r\nGET / HTTP/1.1\r\n" HOST "\r\nGET / HTTP/1.1\r\n" HOST "\r\n");
		feed(&w, STAGE_SERVER, answers, sizeof(answers) - 1, step);
		assert_false(w.stage->closing[STAGE_CLIENT]);
		stage_end(w.stage, STAGE_SERVER);
		assert_string_equal(sent(&w, STAGE_CLIENT), answers);
		sent(&w, STAGE_SERVER);
		assert_true(stage_is_over(w.stage));
		world_done(&w);
	}
}

static void test_many_requests_wait(void **state)
{
	struct world w;
	unsigned count = 0;

	world_init(&w, false);
	for (size_t i = 0; i < 100; i++)
		feed_text(&w, STAGE_CLIENT, "GET / HTTP/1.1\r\n" HOST "\r\n");
	assert_true(w.asked < 20);
	for (size_t i = 0; i < 100; i++)
		feed_text(&w, STAGE_SERVER, "HTTP/1.1 204 No Content\r\n\r\n");
	for (const char *at = sent(&w, STAGE_CLIENT); (at = strstr(at, "204")); at++)
		count++;
	assert_int_equal(count, 100);
	assert_int_equal(w.asked, 100);
	world_done(&w);
}

static void test_answers(void **state)
{
	static const char *const refused[] = {
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
		"HTTP/2 200\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX\r\n\r\n",
		"SSH-2.0-x\r\n\r\n",
	};
	struct world w;

	for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
		world_init(&w, false);
		feed_text(&w, STAGE_CLIENT, "GET / HTTP/1.1\r\n" HOST "\r\n");
		feed_text(&w, STAGE_SERVER, refused[i]);
		assert_has(sent(&w, STAGE_CLIENT), "HTTP/1.1 502 ");
		assert_true(w.stage->closing[STAGE_SERVER]);
		world_done(&w);
	}
	/* An answer that nobody asked for is never the answer to the next request. */
	world_init(&w, false);
	feed_text(&w, STAGE_SERVER, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
	assert_string_equal(sent(&w, STAGE_CLIENT), "");
	assert_true(w.stage->closing[STAGE_CLIENT]);
	world_done(&w);
}

static void test_early_answer(void **state)
{
	struct world w;

	world_init(&w, false);
	feed_text(&w, STAGE_CLIENT, "POST / HTTP/1.1\r\n" HOST "Content-Length: 6\r\n\r\nabc");
	feed_text(&w, STAGE_SERVER, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
	assert_has(sent(&w, STAGE_CLIENT), "200 OK");
	feed_text(&w, STAGE_CLIENT, "defGET / HTTP/1.1\r\n" HOST "\r\n");
	assert_has(sent(&w, STAGE_SERVER), "abcdefGET / HTTP/1.1");
	feed_text(&w, STAGE_SERVER, "HTTP/1.1 204 No Content\r\n\r\n");
	assert_has(sent(&w, STAGE_CLIENT), "204 No Content");
	world_done(&w);
}

static void test_websocket(void **state)
{
	struct world w;

	world_init(&w, false);
	feed_text(&w, STAGE_CLIENT,
		  "GET / HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
		  "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n");
	assert_has(sent(&w, STAGE_SERVER), "Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
	feed_text(&w, STAGE_SERVER,
		  "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n\x81\x02hi");
	assert_has(sent(&w, STAGE_CLIENT), "\r\n\r\n\x81\x02hi");
	assert_has(sent(&w, STAGE_SERVER),
		   "GET / HTTP/1.1\r\nHost: evil.test"); /* the tunnel's bytes */
	world_done(&w);
	/* Refused by the server: the bytes behind are a request, and are checked. */
	world_init(&w, false);
	feed_text(&w, STAGE_CLIENT,
		  "GET / HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
		  "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n");
	feed_text(&w, STAGE_SERVER, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
	assert_lacks(sent(&w, STAGE_SERVER), "evil");
	assert_has(sent(&w, STAGE_CLIENT), "HTTP/1.1 403 ");
	world_done(&w);
}

static void test_bad_chunk(void **state)
{
	struct world w;

	world_init(&w, false);
	feed_text(&w, STAGE_CLIENT,
		  "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n");
	assert_has(sent(&w, STAGE_CLIENT), "HTTP/1.1 400 ");
	assert_true(w.stage->closing[STAGE_SERVER]);
	world_done(&w);
}

static void test_proxy_clients_ask_once(void **state)
{
	struct world w;

	world_init(&w, false);
	stage_free(w.stage);
	w.place.is_once = true;
	w.stage = http_filter_new(&w.place);
	feed_text(&w, STAGE_CLIENT, "GET http://allowed.test/ HTTP/1.1\r\n" HOST "\r\n");
	assert_has(sent(&w, STAGE_SERVER), "GET / HTTP/1.1\r\n" HOST "Connection: close\r\n");
	feed_text(&w, STAGE_SERVER,
		  "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx");
	assert_string_equal(sent(&w, STAGE_CLIENT),
			    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx");
	assert_true(stage_is_over(w.stage));
	world_done(&w);
}

/* ---- secrets ---- */

#define MARK "cloche-placeholder-1234"
#define VALUE "sk-the-real-value"

static void give_secret(struct world *w, const char *header, uint64_t uses_max)
{
	static struct egress_secret row;
	struct err e = {0};
	struct secrets *old = w->secrets;

	row = (struct egress_secret){.name = "KEY", .placeholder = MARK, .uses_max = uses_max};
	snprintf(row.hosts[0], sizeof(row.hosts[0]), "allowed.test");
	/* Even a port that is named gets a value over TLS only. */
	snprintf(row.hosts[1], sizeof(row.hosts[1]), "allowed.test:80");
	snprintf(row.header, sizeof(row.header), "%s", header);
	row.value_len = (uint32_t)sprintf(row.value, VALUE);
	w->secrets = secrets_new(&row, sizeof(row), old, &e);
	assert_non_null(w->secrets);
	secrets_unref(old);
}

static void test_secret_goes_in(void **state)
{
	static const struct {
		const char *header, *request, *has, *lacks;
	} rows[] = {
		{"Authorization: Bearer {}",
		 "GET / HTTP/1.1\r\n" HOST "authorization: bearer " MARK "\r\n\r\n",
		 "authorization: Bearer " VALUE "\r\n", MARK},
		{"X-Api-Key: {}", "GET / HTTP/1.1\r\n" HOST "x-api-key: " MARK "\r\n\r\n",
		 "x-api-key: " VALUE "\r\n", MARK},
		{"basic",
		 /* base64 of "user:" MARK, and of "user:" VALUE */
		 "GET / HTTP/1.1\r\n" HOST
		 "Authorization: Basic dXNlcjpjbG9jaGUtcGxhY2Vob2xkZXItMTIzNA==\r\n\r\n",
		 "Basic dXNlcjpzay10aGUtcmVhbC12YWx1ZQ==\r\n", MARK},
		{"query:key", "GET /?a=b&key=" MARK "&c HTTP/1.1\r\n" HOST "\r\n",
		 "GET /?a=b&key=" VALUE "&c HTTP/1.1\r\n", MARK},
		/* anywhere else it stays what it is */
		{"Authorization: Bearer {}", "GET / HTTP/1.1\r\n" HOST "X-Other: " MARK "\r\n\r\n",
		 "X-Other: " MARK, VALUE},
		{"Authorization: Bearer {}",
		 "GET / HTTP/1.1\r\n" HOST "Authorization: Bearer x" MARK "\r\n\r\n", MARK, VALUE},
		{"Authorization: Bearer {}",
		 "GET / HTTP/1.1\r\n" HOST "Authorization: " MARK "\r\n\r\n", MARK, VALUE},
		{"Authorization: Bearer {}", "GET /ok/" MARK " HTTP/1.1\r\n" HOST "\r\n", MARK,
		 VALUE},
		{"query:key", "GET /?other=" MARK " HTTP/1.1\r\n" HOST "\r\n", MARK, VALUE},
		{"query:key", "GET /?xkey=" MARK " HTTP/1.1\r\n" HOST "\r\n", MARK, VALUE},
		{"X-Api-Key: {}", "POST / HTTP/1.1\r\n" HOST "Content-Length: 23\r\n\r\n" MARK,
		 MARK, VALUE},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows) * 2; i++) {
		const char *text = rows[i / 2].request, *out;
		struct world w;

		world_init(&w, true);
		give_secret(&w, rows[i / 2].header, 0);
		feed(&w, STAGE_CLIENT, text, strlen(text), i % 2 ? 1 : strlen(text));
		out = sent(&w, STAGE_SERVER);
		assert_has(out, rows[i / 2].has);
		assert_lacks(out, rows[i / 2].lacks);
		if (i / 2 < 4)
			assert_string_equal(w.noted, "KEY was used");
		else
			assert_has(w.noted, "denial: the placeholder of secret KEY");
		assert_lacks(w.noted, VALUE);
		assert_lacks(w.told, MARK "x");
		world_done(&w);
	}
}

static void test_secret_stays_out(void **state)
{
	static const char request[] =
		"GET / HTTP/1.1\r\n" HOST "Authorization: Bearer " MARK "\r\n\r\n";
	struct world w;

	for (int i = 0; i < 4; i++) {
		world_init(&w, i != 0); /* 0: no TLS */
		stage_free(w.stage);
		if (i == 1)
			w.place.port = 8443;
		if (i == 2)
			w.place.name = "allowed.test2";
		if (i == 3)
			w.place.name = "";
		w.stage = http_filter_new(&w.place);
		give_secret(&w, "Authorization: Bearer {}", 0);
		feed_text(&w, STAGE_CLIENT, request);
		assert_lacks(sent(&w, STAGE_SERVER), VALUE);
		world_done(&w);
	}
}

static void set_row(struct world *w, const char *name, const char *header, const char *value)
{
	static struct egress_secret row;
	struct err e = {0};

	row = (struct egress_secret){.value_len = (uint32_t)strlen(value)};
	snprintf(row.name, sizeof(row.name), "%s", name);
	snprintf(row.hosts[0], sizeof(row.hosts[0]), "allowed.test");
	snprintf(row.header, sizeof(row.header), "%s", header);
	snprintf(row.value, sizeof(row.value), "%s", value);
	w->secrets = secrets_new(&row, sizeof(row), NULL, &e);
}

/* Without a placeholder: in every request, in place of what the program sends. */
static void test_header_is_set(void **state)
{
	static const char request[] =
		"GET / HTTP/1.1\r\n" HOST "authorization: Bearer own\r\nX-Other: a\r\n\r\n";
	struct world w;

	world_init(&w, true);
	set_row(&w, "KEY", "Authorization: Bearer {}!", VALUE);
	feed_text(&w, STAGE_CLIENT, request);
	assert_has(sent(&w, STAGE_SERVER), "authorization: Bearer " VALUE "!\r\n");
	assert_string_equal(w.noted, "KEY was used");
	feed_text(&w, STAGE_SERVER, "HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n" VALUE);
	assert_lacks(sent(&w, STAGE_CLIENT), VALUE);
	world_done(&w);

	world_init(&w, true);
	set_row(&w, "", "X-Plain: text", "");
	feed_text(&w, STAGE_CLIENT, request);
	assert_has(sent(&w, STAGE_SERVER), "x-plain: text\r\n");
	assert_string_equal(w.noted, "");
	world_done(&w);

	/* Not over cleartext. A secret needs its value. */
	world_init(&w, false);
	set_row(&w, "KEY", "Authorization: Bearer {}", VALUE);
	feed_text(&w, STAGE_CLIENT, request);
	assert_has(sent(&w, STAGE_SERVER), "Bearer own");
	secrets_unref(w.secrets);
	set_row(&w, "KEY", "Authorization: Bearer {}", "");
	assert_null(w.secrets);
	world_done(&w);
}

static void test_secret_uses(void **state)
{
	static const char request[] =
		"GET / HTTP/1.1\r\n" HOST "Authorization: Bearer " MARK "\r\n\r\n";
	struct world w;

	world_init(&w, true);
	give_secret(&w, "Authorization: Bearer {}", 2);
	for (int i = 0; i < 2; i++) {
		feed_text(&w, STAGE_CLIENT, request);
		assert_has(sent(&w, STAGE_SERVER), VALUE);
		feed_text(&w, STAGE_SERVER, "HTTP/1.1 204 No Content\r\n\r\n");
		give_secret(&w, "Authorization: Bearer {}", 2); /* replaced: counts on */
	}
	feed_text(&w, STAGE_CLIENT, request);
	assert_string_equal(sent(&w, STAGE_SERVER), "");
	assert_has(sent(&w, STAGE_CLIENT), "secret KEY was used 2 times");
	world_done(&w);
}

static void test_secret_is_redacted(void **state)
{
	static const char *const answers[] = {
		"HTTP/1.1 200 OK\r\nX-Echo: a " VALUE
		" b\r\nContent-Length: 26\r\n\r\n{\"k\": \"" VALUE "\"}",
		"HTTP/1.1 200 OK\r\nX-Echo: a " VALUE " b\r\nTransfer-Encoding: chunked\r\n\r\n"
		"a\r\n{\"k\": \"sk-\r\nf\r\nthe-real-value\"\r\n1\r\n}\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX-Echo: a " VALUE " b\r\n\r\n{\"k\": \"" VALUE "\"}",
	};
	struct world w;

	for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
		for (size_t step = 1; step < 80; step += 13) {
			struct http1_answer a = {0};
			struct buf body = {0};
			const char *out;

			world_init(&w, true);
			give_secret(&w, "Authorization: Bearer {}", 0);
			feed_text(&w, STAGE_CLIENT,
				  "GET / HTTP/1.1\r\n" HOST
				  "Accept-Encoding: gzip\r\nRange: bytes=0-3\r\n\r\n");
			out = sent(&w, STAGE_SERVER);
			assert_lacks(out, "Accept-Encoding");
			assert_lacks(out, "Range");
			feed(&w, STAGE_SERVER, answers[i], strlen(answers[i]), step);
			stage_end(w.stage, STAGE_SERVER);
			out = sent(&w, STAGE_CLIENT);
			assert_lacks(out, VALUE);
			assert_has(out, "X-Echo: a " MARK " b\r\n");
			assert_int_equal(http1_answer_feed(&a, out, strlen(out), &body), 1);
			buf_add(&body, "", 1);
			assert_string_equal(buf_head(&body), "{\"k\": \"" MARK "\"}");
			buf_done(&body);
			http1_answer_done(&a);
			world_done(&w);
		}
	}
}

static void test_basic_is_redacted(void **state)
{
	struct world w;

	world_init(&w, true);
	give_secret(&w, "basic", 0);
	feed_text(&w, STAGE_CLIENT,
		  "GET / HTTP/1.1\r\n" HOST
		  "Authorization: Basic dXNlcjpjbG9jaGUtcGxhY2Vob2xkZXItMTIzNA==\r\n\r\n");
	feed_text(&w, STAGE_SERVER,
		  "HTTP/1.1 200 OK\r\nContent-Length: 32\r\n\r\ndXNlcjpzay10aGUtcmVhbC12YWx1ZQ==");
	assert_has(sent(&w, STAGE_CLIENT), "dXNlcjpjbG9jaGUtcGxhY2Vob2xkZXItMTIzNA==");
	feed_text(&w, STAGE_CLIENT, "GET / HTTP/1.1\r\n" HOST "\r\n");
	feed_text(&w, STAGE_SERVER,
		  "HTTP/1.1 200 is " VALUE "\r\nX-" VALUE ": x\r\nContent-Length: 0\r\n\r\n");
	assert_string_equal(sent(&w, STAGE_CLIENT),
			    "HTTP/1.1 200 is " MARK "\r\nContent-Length: 0\r\n\r\n");
	world_done(&w);
}

static void test_compressed_answer_is_refused(void **state)
{
	struct world w;

	world_init(&w, true);
	give_secret(&w, "basic", 0);
	feed_text(&w, STAGE_CLIENT, "GET / HTTP/1.1\r\n" HOST "\r\n");
	feed_text(&w, STAGE_SERVER,
		  "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc");
	assert_has(sent(&w, STAGE_CLIENT), "HTTP/1.1 502 ");
	world_done(&w);
}

static void test_tunnel_is_redacted(void **state)
{
	struct world w;
	const char *out;

	world_init(&w, true);
	give_secret(&w, "Authorization: Bearer {}", 0);
	feed_text(&w, STAGE_CLIENT,
		  "GET / HTTP/1.1\r\n" HOST
		  "Connection: Upgrade\r\nUpgrade: websocket\r\nAuthorization: Bearer " MARK
		  "\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n");
	out = sent(&w, STAGE_SERVER);
	assert_has(out, VALUE);
	assert_lacks(out, "permessage-deflate");
	feed_text(&w, STAGE_SERVER,
		  "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n\x81\x11" VALUE);
	out = sent(&w, STAGE_CLIENT);
	assert_lacks(out, VALUE);
	assert_has(out, "\r\n\r\n\x81\x11"
			"cloche-placeholde");
	world_done(&w);
}

static void test_bad_secrets(void **state)
{
	struct egress_secret row = {
		.name = "KEY", .placeholder = MARK, .header = "basic", .value_len = 3};
	struct err e = {0};

	memcpy(row.value, "a\nb", 3);
	assert_null(secrets_new(&row, sizeof(row), NULL, &e));
	assert_has(e.msg, "control character");
	assert_null(secrets_new(&row, sizeof(row) - 1, NULL, &e));
	row.value_len = sizeof(row.value);
	assert_null(secrets_new(&row, sizeof(row), NULL, &e));
}

/* ---- SOCKS5 ---- */

static void test_socks(void **state)
{
	static const struct {
		const char *bytes;
		size_t size;
		ssize_t len;
		enum socks_reply reply;
	} rows[] = {
		{"\5\1\0\3\6a.test\1\273", 13, 13, SOCKS_DONE},
		{"\5\1\0\3\6a.test\1\273rest", 17, 13, SOCKS_DONE},
		{"\5\1\0\1\12\0\0\1\0\120", 10, 10, SOCKS_DONE},
		{"\5\1\0\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\120", 22, 22, SOCKS_DONE},
		{"\5\1\0\3\6a.tes", 10, 0, SOCKS_DONE},
		{"\5\2\0\3\6a.test\1\273", 13, -1, SOCKS_NO_COMMAND}, /* BIND */
		{"\5\3\0\3\6a.test\1\273", 13, -1, SOCKS_NO_COMMAND}, /* UDP ASSOCIATE */
		{"\5\1\0\2\6a.test\1\273", 13, -1, SOCKS_NO_ADDRESS_TYPE},
		{"\5\1\1\3\6a.test\1\273", 13, -1, SOCKS_FAILURE},
		{"\4\1\0\3\6a.test\1\273", 13, -1, SOCKS_FAILURE},
		{"\5\1\0\3\6a\0test\1\273", 13, -1, SOCKS_FAILURE},
		{"\5\1\0\3\0\1\273", 7, -1, SOCKS_FAILURE},
		{"\5\1\0\3\6a.test\0\0", 13, -1, SOCKS_FAILURE},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		enum socks_reply reply = SOCKS_DONE;
		struct socks_request q;

		assert_int_equal(socks_request((const unsigned char *)rows[i].bytes, rows[i].size,
					       &q, &reply),
				 rows[i].len);
		assert_int_equal(reply, rows[i].reply);
	}
	assert_int_equal(socks_greeting((const unsigned char *)"\5\2\2\0", 4), 4);
	assert_int_equal(socks_greeting((const unsigned char *)"\5\1\2", 3), -1);
	assert_int_equal(socks_greeting((const unsigned char *)"\5\0", 2), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_requests),
		cmocka_unit_test(test_refusal_says_the_remedy),
		cmocka_unit_test(test_head_limit),
		cmocka_unit_test(test_rewritten_request),
		cmocka_unit_test(test_second_request_is_checked),
		cmocka_unit_test(test_pipeline_stays_in_step),
		cmocka_unit_test(test_many_requests_wait),
		cmocka_unit_test(test_answers),
		cmocka_unit_test(test_early_answer),
		cmocka_unit_test(test_websocket),
		cmocka_unit_test(test_bad_chunk),
		cmocka_unit_test(test_proxy_clients_ask_once),
		cmocka_unit_test(test_secret_goes_in),
		cmocka_unit_test(test_secret_stays_out),
		cmocka_unit_test(test_header_is_set),
		cmocka_unit_test(test_secret_uses),
		cmocka_unit_test(test_secret_is_redacted),
		cmocka_unit_test(test_basic_is_redacted),
		cmocka_unit_test(test_compressed_answer_is_refused),
		cmocka_unit_test(test_tunnel_is_redacted),
		cmocka_unit_test(test_bad_secrets),
		cmocka_unit_test(test_socks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
