/* Requests of `cloche mcp` to a daemon's /mcp, inside an event loop. */
#include "cli/operator/mcp_internal.h"

#include "api/mcp/mcp.h"
#include "base/base64.h"
#include "wire/http1.h"

#include <strings.h>
#include <sys/socket.h>

#define MESSAGE_MAX ((size_t)64 << 20)

struct mcp_exchange {
	struct loop *loop;
	struct http_client *http; /* only for its connection */
	struct loop_watch watch;
	struct buf out;
	struct http1_answer answer;
	struct buf body; /* not passed on yet */
	const struct mcp_exchange_ops *ops;
	void *arg;
};

void mcp_exchange_drop(struct mcp_exchange *x)
{
	if (!x)
		return;
	loop_unwatch(x->loop, &x->watch);
	http_close(x->http);
	http1_answer_done(&x->answer);
	buf_done(&x->out);
	buf_done(&x->body);
	free(x);
}

static void end_exchange(struct mcp_exchange *x, int status, const struct err *e)
{
	const struct mcp_exchange_ops *ops = x->ops;
	const char *id = x->answer.has_head ? http1_field(&x->answer.head, "Mcp-Session-Id") : NULL;
	char session[80];
	void *arg = x->arg;

	snprintf(session, sizeof(session), "%s", id ? id : "");
	mcp_exchange_drop(x);
	if (ops->on_end)
		ops->on_end(arg, status, session, e);
}

/* Passes on the "data: ..." line of each event. The daemon's events have one line of data. */
static void pass_on_events(struct mcp_exchange *x)
{
	char *eol;

	while (x->body.len && (eol = memchr(buf_head(&x->body), '\n', x->body.len))) {
		char *line = buf_head(&x->body);
		size_t len = (size_t)(eol - line);

		if (len > 5 && memcmp(line, "data:", 5) == 0 && x->ops->on_message) {
			size_t skip = line[5] == ' ' ? 6 : 5;
			size_t cr = line[len - 1] == '\r';

			x->ops->on_message(x->arg, line + skip, len - skip - cr);
		}
		buf_drop(&x->body, len + 1);
	}
}

static bool is_events(const struct http1_answer *a)
{
	const char *type = a->has_head ? http1_field(&a->head, "Content-Type") : NULL;

	return type && strncasecmp(type, "text/event-stream", 17) == 0;
}

static void receive_answer(struct mcp_exchange *x)
{
	char bytes[65536];
	ssize_t n = recv(x->watch.fd, bytes, sizeof(bytes), MSG_DONTWAIT);
	struct err e = {0};
	int rc;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	rc = n > 0 ? http1_answer_feed(&x->answer, bytes, (size_t)n, &x->body)
		   : http1_answer_end(&x->answer);
	if (rc >= 0 && is_events(&x->answer))
		pass_on_events(x);
	if (x->body.len > MESSAGE_MAX)
		rc = -1;
	if (rc > 0) {
		if (!is_events(&x->answer) && x->body.len && x->ops->on_message)
			x->ops->on_message(x->arg, buf_head(&x->body), x->body.len);
		end_exchange(x, x->answer.head.status, NULL);
	} else if (rc < 0) {
		err_set(&e, ERR_SYSTEM, "the daemon %s",
			n > 0 ? "sent something that is no answer" : "closed the connection");
		end_exchange(x, 0, &e);
	}
}

/* A daemon may answer and hang up before it has read all: then the rest is dropped. */
static void send_exchange(struct mcp_exchange *x)
{
	ssize_t n = send(x->watch.fd, buf_head(&x->out), x->out.len, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	buf_drop(&x->out, n < 0 ? x->out.len : (size_t)n);
	if (!x->out.len)
		loop_change(x->loop, &x->watch, EPOLLIN);
}

static void on_exchange_socket(void *arg, uint32_t events)
{
	struct mcp_exchange *x = arg;

	if (x->out.len && (events & EPOLLOUT))
		send_exchange(x);
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		receive_answer(x);
}

/* A name may hold any bytes, so it is sent as base64. */
static void add_request(struct buf *b, const struct http_target *t, const struct mcp_request *r)
{
	size_t len = r->name ? strlen(r->name) : 0;
	auto_free char *coded = must_alloc(calloc(1, BASE64_ROOM(len) + 1)), *name = NULL;

	base64_encode(coded, r->name, len);
	name = r->name ? str_format("=?base64?%s?=", coded) : NULL;
	const char *const extra[][2] = {
		{"Connection", "close"},
		{"Mcp-Session-Id", r->session},
		{"MCP-Protocol-Version", r->method ? MCP_MODERN_VERSION : NULL},
		{"Mcp-Method", r->method},
		{"Mcp-Name", name},
		{NULL, NULL}};

	http_format(b, t,
		    &(struct http_request){.method = r->verb,
					   .path = "/mcp",
					   .accept = "application/json, text/event-stream",
					   .content_type = "application/json",
					   .extra = extra,
					   .body = r->body,
					   .body_len = r->body_len});
}

struct mcp_exchange *mcp_exchange_start(struct loop *l, const struct http_target *t,
					const struct mcp_request *r,
					const struct mcp_exchange_ops *ops, void *arg,
					struct err *e)
{
	struct http_client *http = http_open(t, e);
	struct mcp_exchange *x;

	if (!http)
		return NULL;
	x = must_alloc(calloc(1, sizeof(*x)));
	x->loop = l;
	x->http = http;
	x->ops = ops;
	x->arg = arg;
	add_request(&x->out, t, r);
	x->watch = (struct loop_watch){.fd = http_fd(http),
				       .events = EPOLLIN | EPOLLOUT,
				       .call = on_exchange_socket,
				       .arg = x};
	if (loop_watch(l, &x->watch) < 0) {
		err_sys(e, "cannot watch the connection to the daemon");
		mcp_exchange_drop(x);
		return NULL;
	}
	return x;
}
