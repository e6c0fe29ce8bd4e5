#include "cli/client_http.h"

#include "base/auto.h"
#include "base/buf.h"
#include "base/str.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>

#define HEAD_MAX 65536

enum framing { BODY_NONE, BODY_LENGTH, BODY_CHUNKED, BODY_TO_END };

struct http {
	struct http_target target;
	int fd;
	bool sending_chunks;
	bool refused; /* the other side stopped reading what we send */
	struct buf in;
	enum framing framing;
	uint64_t left; /* of the body, or of the chunk */
	bool first_chunk, body_done;
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

struct http *http_open(const struct http_target *t, struct err *e)
{
	int fd = *t->unix_path ? connect_unix(t->unix_path, e) : connect_tcp(t, e);
	struct http *h;

	if (fd < 0)
		return NULL;
	h = must_alloc(calloc(1, sizeof(*h)));
	h->target = *t;
	h->fd = fd;
	return h;
}

void http_close(struct http *h)
{
	if (!h)
		return;
	close_fd(&h->fd);
	buf_done(&h->in);
	free(h);
}

int http_fd(const struct http *h)
{
	return h->fd;
}

/* ---- sending ---- */

static int send_all(struct http *h, const void *bytes, size_t len, struct err *e)
{
	size_t done = 0;

	while (done < len && !h->refused) {
		ssize_t n = send(h->fd, (const char *)bytes + done, len - done, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		/* It may have answered before it hung up. */
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

static void add_head(struct http *h, struct buf *b, const struct http_request *r)
{
	const struct http_target *t = &h->target;
	const char *l = strchr(t->host, ':') ? "[" : "", *close = *l ? "]" : "";
	auto_free char *line = str_format("%s %s HTTP/1.1\r\n", r->method, r->path);
	auto_free char *host = *t->unix_path ? str_copy("localhost")
					     : str_format("%s%s%s:%s", l, t->host, close, t->port);
	auto_free char *bearer = *t->token ? str_format("Bearer %s", t->token) : NULL;
	char length[24];

	buf_add(b, line, strlen(line));
	add_header(b, "Host", host);
	add_header(b, "Authorization", bearer);
	add_header(b, "Accept", r->accept);
	add_header(b, "Content-Type", r->content_type);
	add_header(b, "Range", r->range);
	if (h->sending_chunks) {
		add_header(b, "Transfer-Encoding", "chunked");
	} else if (r->body || r->stream_len > 0 || !str_equal(r->method, "GET")) {
		snprintf(length, sizeof(length), "%llu",
			 (unsigned long long)(r->body		  ? r->body_len
					      : r->stream_len > 0 ? (uint64_t)r->stream_len
								  : 0));
		add_header(b, "Content-Length", length);
	}
	buf_add(b, "\r\n", 2);
}

int http_send(struct http *h, const struct http_request *r, struct err *e)
{
	struct buf b = {0};
	int rc;

	h->sending_chunks = !r->body && r->stream_len == HTTP_CHUNKED;
	h->refused = false;
	add_head(h, &b, r);
	if (r->body)
		buf_add(&b, r->body, r->body_len);
	rc = send_all(h, buf_head(&b), b.len, e);
	buf_done(&b);
	return rc < 0 ? -1 : 0;
}

int http_write(struct http *h, const void *bytes, size_t len, struct err *e)
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

int http_write_end(struct http *h, struct err *e)
{
	return h->sending_chunks && send_all(h, "0\r\n\r\n", 5, e) < 0 ? -1 : 0;
}

/* ---- receiving ---- */

/* More bytes into h->in. 0: the other side closed. */
static ssize_t fill(struct http *h, struct err *e)
{
	ssize_t n;

	do
		n = recv(h->fd, buf_reserve(&h->in, 65536), 65536, 0);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == ECONNRESET)
		n = 0;
	if (n < 0)
		err_sys(e, "cannot hear from the daemon");
	else
		buf_added(&h->in, (size_t)n);
	return n;
}

static int lost(struct err *e)
{
	return err_set(e, ERR_SYSTEM, "the daemon closed the connection");
}

/* One line without its end, at most room - 1 bytes. 0: the other side closed before any byte of it. */
static int read_line(struct http *h, char *line, size_t room, struct err *e)
{
	for (;;) {
		char *end = h->in.len ? memchr(buf_head(&h->in), '\n', h->in.len) : NULL;
		size_t len = end ? (size_t)(end - buf_head(&h->in)) : 0;
		ssize_t n;

		if (end && len < room) {
			memcpy(line, buf_head(&h->in), len);
			line[len > 0 && line[len - 1] == '\r' ? len - 1 : len] = '\0';
			buf_drop(&h->in, len + 1);
			return 1;
		}
		if (end || h->in.len > HEAD_MAX)
			return err_set(e, ERR_SYSTEM, "the daemon sent a line that is too long");
		n = fill(h, e);
		if (n <= 0)
			return n < 0 ? -1 : lost(e);
	}
}

static void take_header(struct http *h, struct http_response *r, const char *line)
{
	const char *colon = strchr(line, ':'), *value;
	size_t n = colon ? (size_t)(colon - line) : 0;

	if (!colon)
		return;
	value = colon + 1 + strspn(colon + 1, " \t");
	if (n == 14 && strncasecmp(line, "Content-Length", n) == 0) {
		r->length = (int64_t)strtoll(value, NULL, 10);
		h->framing = BODY_LENGTH;
	} else if (n == 17 && strncasecmp(line, "Transfer-Encoding", n) == 0) {
		h->framing = BODY_CHUNKED;
	} else if (n == 12 && strncasecmp(line, "Content-Type", n) == 0) {
		snprintf(r->type, sizeof(r->type), "%.*s", (int)strcspn(value, ";"), value);
	}
}

int http_receive(struct http *h, struct http_response *ret, struct err *e)
{
	struct http_response r;
	char line[8192];

	do {
		r = (struct http_response){.length = -1};
		h->framing = BODY_TO_END;
		if (read_line(h, line, sizeof(line), e) < 0)
			return -1;
		if (sscanf(line, "HTTP/1.%*1[01] %3d", &r.status) != 1)
			return err_set(e, ERR_SYSTEM, "what answers is not a daemon of ours");
		for (;;) {
			if (read_line(h, line, sizeof(line), e) < 0)
				return -1;
			if (!*line)
				break;
			take_header(h, &r, line);
		}
	} while (r.status >= 100 && r.status < 200);
	if (r.status == 204 || r.status == 304)
		h->framing = BODY_NONE;
	h->left = h->framing == BODY_LENGTH && r.length > 0 ? (uint64_t)r.length : 0;
	h->first_chunk = true;
	h->body_done = h->framing == BODY_NONE || (h->framing == BODY_LENGTH && h->left == 0);
	*ret = r;
	return 0;
}

static int next_chunk(struct http *h, struct err *e)
{
	char line[8192], *end;

	if (!h->first_chunk && read_line(h, line, sizeof(line), e) < 0)
		return -1;
	h->first_chunk = false;
	if (read_line(h, line, sizeof(line), e) < 0)
		return -1;
	errno = 0;
	h->left = strtoull(line, &end, 16);
	if (end == line || errno)
		return err_set(e, ERR_SYSTEM, "the daemon sent a chunk without a size");
	if (h->left > 0)
		return 0;
	h->body_done = true;
	do
		if (read_line(h, line, sizeof(line), e) < 0)
			return -1;
	while (*line);
	return 0;
}

/* Between two chunks: is the next one's size there, behind the end of the last one? */
static bool has_chunk_head(const struct http *h)
{
	const char *p = buf_head(&h->in), *end = p + h->in.len;

	for (int lines = h->first_chunk ? 1 : 2; lines > 0; lines--) {
		p = p < end ? memchr(p, '\n', (size_t)(end - p)) : NULL;
		if (!p)
			return false;
		p++;
	}
	return true;
}

bool http_has_data(const struct http *h)
{
	if (h->body_done || h->in.len == 0)
		return h->body_done;
	return h->framing != BODY_CHUNKED || h->left > 0 || has_chunk_head(h);
}

ssize_t http_read(struct http *h, void *bytes, size_t len, struct err *e)
{
	ssize_t n;

	if (!h->body_done && h->framing == BODY_CHUNKED && h->left == 0 && next_chunk(h, e) < 0)
		return -1;
	if (h->body_done)
		return 0;
	if (h->in.len == 0) {
		n = fill(h, e);
		if (n < 0)
			return -1;
		if (n == 0 && h->framing != BODY_TO_END)
			return lost(e);
		h->body_done = n == 0;
		if (n == 0)
			return 0;
	}
	if (len > h->in.len)
		len = h->in.len;
	if (h->framing != BODY_TO_END && len > h->left)
		len = (size_t)h->left;
	memcpy(bytes, buf_head(&h->in), len);
	buf_drop(&h->in, len);
	if (h->framing != BODY_TO_END) {
		h->left -= len;
		h->body_done = h->framing == BODY_LENGTH && h->left == 0;
	}
	return (ssize_t)len;
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
