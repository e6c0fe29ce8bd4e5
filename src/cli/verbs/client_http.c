/* Requests to the daemon over one blocking connection; answers are read by wire/http1. */
#include "cli/verbs/client_http.h"

#include "wire/http1.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

struct http_client {
	struct http_target target;
	int fd;
	bool sending_chunks;
	bool refused; /* the other side stopped reading what we send */
	struct http1_answer answer;
	struct buf body; /* received and not read yet */
	bool complete;
	int idle_ms; /* 0: idle is not called */
	void (*idle)(void *arg);
	void *idle_arg;
};

int http_target_parse(const char *url, struct http_target *ret, struct err *e)
{
	struct http_target t = {0};
	const char *host = url + 7, *colon, *end;
	bool six;

	if (str_starts(url, "unix:")) {
		if (url[5] != '/' || strlen(url + 5) >= sizeof(t.unix_path))
			return err_set(e, ERR_INVALID, "'%s' is not unix:/PATH", url);
		strcpy(t.unix_path, url + 5);
		*ret = t;
		return 0;
	}
	if (str_starts(url, "https://"))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: TLS is not built; use http to loopback, or a tunnel", url);
	if (!str_starts(url, "http://"))
		return err_set(e, ERR_INVALID, "'%s' is neither http://HOST:PORT nor unix:/PATH",
			       url);
	end = host + strcspn(host, "/?#");
	six = *host == '[';
	colon = six ? memchr(host, ']', (size_t)(end - host)) : host - 1;
	colon = colon ? memchr(colon + 1, ':', (size_t)(end - colon - 1)) : NULL;
	if (six && !memchr(host, ']', (size_t)(end - host)))
		return err_set(e, ERR_INVALID, "'%s': the address is not closed by ']'", url);
	snprintf(t.port, sizeof(t.port), "%.*s", colon ? (int)(end - colon - 1) : 2,
		 colon ? colon + 1 : "80");
	if (!colon)
		colon = end;
	snprintf(t.host, sizeof(t.host), "%.*s", (int)(colon - host) - 2 * six, host + six);
	if (*end && !str_equal(end, "/"))
		return err_set(e, ERR_INVALID, "'%s': only HOST:PORT, no path", url);
	*ret = t;
	return 0;
}

static int connect_unix(const char *path, struct err *e)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
		return take_fd(&fd);
	err_sys(e, "cannot reach the daemon at unix:%s", path);
	if (e->errnum == ENOENT || e->errnum == ECONNREFUSED)
		err_set(e, ERR_NOT_FOUND,
			"no daemon answers at unix:%s; start one with `cloche serve`, or set "
			"CLOCHE_URL",
			path);
	return -1;
}

static int connect_tcp(const struct http_target *t, struct err *e)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all = NULL;
	auto_close int fd = -1;
	int rc = getaddrinfo(t->host, t->port, &hints, &all);

	if (rc != 0)
		return err_set(e, ERR_NOT_FOUND, "%s: %s", t->host, gai_strerror(rc));
	for (struct addrinfo *a = all; a; a = a->ai_next) {
		close_fd(&fd);
		fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
		if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0) {
			freeaddrinfo(all);
			return take_fd(&fd);
		}
	}
	err_sys(e, "cannot reach the daemon at http://%s:%s", t->host, t->port);
	freeaddrinfo(all);
	return -1;
}

struct http_client *http_open(const struct http_target *t, struct err *e)
{
	int fd = *t->unix_path ? connect_unix(t->unix_path, e) : connect_tcp(t, e);
	struct http_client *h;

	if (fd < 0)
		return NULL;
	h = must_alloc(calloc(1, sizeof(*h)));
	h->target = *t;
	h->fd = fd;
	return h;
}

void http_close(struct http_client *h)
{
	if (!h)
		return;
	close_fd(&h->fd);
	http1_answer_done(&h->answer);
	buf_done(&h->body);
	free(h);
}

int http_fd(const struct http_client *h)
{
	return h->fd;
}

/* ---- sending ---- */

static int send_all(struct http_client *h, const void *bytes, size_t len, struct err *e)
{
	size_t done = 0;

	while (done < len && !h->refused) {
		ssize_t n = send(h->fd, (const char *)bytes + done, len - done, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		/* The daemon may have answered before it hung up. */
		if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) {
			h->refused = true;
			break;
		}
		if (n < 0)
			return err_sys(e, "cannot send to the daemon");
		done += (size_t)n;
	}
	return h->refused ? 1 : 0;
}

static void add_header(struct buf *b, const char *name, const char *value)
{
	if (!value)
		return;
	buf_add(b, name, strlen(name));
	buf_add(b, ": ", 2);
	buf_add(b, value, strlen(value));
	buf_add(b, "\r\n", 2);
}

void http_format(struct buf *b, const struct http_target *t, const struct http_request *r)
{
	const char *l = strchr(t->host, ':') ? "[" : "", *close = *l ? "]" : "";
	auto_free char *line = str_format("%s %s HTTP/1.1\r\n", r->method, r->path);
	auto_free char *host = *t->unix_path ? str_copy("localhost")
					     : str_format("%s%s%s:%s", l, t->host, close, t->port);
	auto_free char *bearer = *t->token ? str_format("Bearer %s", t->token) : NULL;
	size_t streamed = r->stream_len > 0 ? (size_t)r->stream_len : 0;
	char length[24];

	buf_add(b, line, strlen(line));
	add_header(b, "Host", host);
	add_header(b, "Authorization", bearer);
	add_header(b, "Accept", r->accept);
	add_header(b, "Content-Type", r->content_type);
	for (size_t i = 0; r->extra && r->extra[i][0]; i++)
		add_header(b, r->extra[i][0], r->extra[i][1]);
	snprintf(length, sizeof(length), "%zu", r->body ? r->body_len : streamed);
	if (!r->body && r->stream_len == HTTP_CHUNKED)
		add_header(b, "Transfer-Encoding", "chunked");
	else if (r->body || streamed || !str_equal(r->method, "GET"))
		add_header(b, "Content-Length", length);
	buf_add(b, "\r\n", 2);
	if (r->body)
		buf_add(b, r->body, r->body_len);
}

int http_send(struct http_client *h, const struct http_request *r, struct err *e)
{
	struct buf b = {0};
	int rc;

	h->sending_chunks = !r->body && r->stream_len == HTTP_CHUNKED;
	h->refused = false;
	http_format(&b, &h->target, r);
	rc = send_all(h, buf_head(&b), b.len, e);
	buf_done(&b);
	return rc < 0 ? -1 : 0;
}

int http_write(struct http_client *h, const void *bytes, size_t len, struct err *e)
{
	char size[24];
	int n = snprintf(size, sizeof(size), "%zx\r\n", len), rc;

	if (!h->sending_chunks)
		return send_all(h, bytes, len, e);
	if (len == 0)
		return 0;
	rc = send_all(h, size, (size_t)n, e);
	if (rc == 0)
		rc = send_all(h, bytes, len, e);
	return rc ? rc : send_all(h, "\r\n", 2, e);
}

int http_write_end(struct http_client *h, struct err *e)
{
	return h->sending_chunks && send_all(h, "0\r\n\r\n", 5, e) < 0 ? -1 : 0;
}

/* ---- receiving ---- */

void http_on_idle(struct http_client *h, int ms, void (*call)(void *arg), void *arg)
{
	h->idle_ms = ms;
	h->idle = call;
	h->idle_arg = arg;
}

static void wait_for_more(const struct http_client *h)
{
	struct pollfd p = {.fd = h->fd, .events = POLLIN};

	while (h->idle_ms && poll(&p, 1, h->idle_ms) == 0)
		h->idle(h->idle_arg);
}

/* Waits for more of the answer. */
static int receive_more(struct http_client *h, struct err *e)
{
	char bytes[65536];
	ssize_t n;
	int rc;

	wait_for_more(h);
	do
		n = recv(h->fd, bytes, sizeof(bytes), 0);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno != ECONNRESET)
		return err_sys(e, "cannot hear from the daemon");
	rc = n > 0 ? http1_answer_feed(&h->answer, bytes, (size_t)n, &h->body)
		   : http1_answer_end(&h->answer);
	h->complete = rc > 0;
	if (rc < 0)
		return err_set(e, ERR_SYSTEM, "%s",
			       n > 0 ? "what answers is not a daemon of ours"
				     : "the daemon closed the connection");
	return 0;
}

int http_receive(struct http_client *h, struct http_response *ret, struct err *e)
{
	http1_answer_done(&h->answer);
	h->answer = (struct http1_answer){0};
	buf_drop(&h->body, h->body.len);
	h->complete = false;
	while (!h->answer.has_head)
		if (receive_more(h, e) < 0)
			return -1;
	*ret = (struct http_response){.status = h->answer.head.status,
				      .length = h->answer.head.length};
	return 0;
}

ssize_t http_read(struct http_client *h, void *bytes, size_t len, struct err *e)
{
	while (!h->body.len && !h->complete)
		if (receive_more(h, e) < 0)
			return -1;
	len = len < h->body.len ? len : h->body.len;
	if (len)
		memcpy(bytes, buf_head(&h->body), len);
	buf_drop(&h->body, len);
	return (ssize_t)len;
}

struct buf *http_rest(struct http_client *h)
{
	return &h->body;
}

const char *http_header(const struct http_client *h, const char *name)
{
	return http1_field(&h->answer.head, name);
}

void http_encode(char *dst, size_t size, const char *text, bool keep_slash)
{
	static const char plain[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
	size_t at = 0;

	for (; *text && at + 4 < size; text++) {
		if (strchr(plain, *text) || (keep_slash && *text == '/'))
			dst[at++] = *text;
		else
			at += (size_t)snprintf(dst + at, size - at, "%%%02X", (unsigned char)*text);
	}
	dst[at] = '\0';
}
