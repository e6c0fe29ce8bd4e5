/* One connection: reads heads and bodies, sends answers, keeps deadlines and rates, and ends in order. */
#include "api/http/http_internal.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#define STRANGER_LINGER_BYTES (1u << 20)
#define EVENTS ((uint32_t)(EPOLLIN | EPOLLRDHUP | EPOLLET))

static struct loop *loop_of(const struct peer *p)
{
	return p->server->api->loop;
}

/* ---- the end ---- */

void peer_close(struct peer *p)
{
	struct exchange *x = take_ptr(p->now);
	struct server *s = p->server;

	p->broken = true;
	if (!s) {
		close(p->watch.fd);
		free(p);
		return;
	}
	if (x) {
		exchange_hold(x);
		exchange_completed(x, false);
		exchange_release(x);
	}
	lanes_line(p, false);
	loop_unwatch(loop_of(p), &p->watch);
	loop_timer_stop(loop_of(p), &p->timer);
	server_uncount_peer(p);
	TAILQ_REMOVE(&s->peers, p, all);
	s->peer_count--;
	buf_done(&p->in);
	close(p->watch.fd);
	free(p);
}

/* Closing at once would lose the answer: a reset overtakes data that was not read. */
static void begin_linger(struct peer *p)
{
	shutdown(p->watch.fd, SHUT_WR);
	p->state = PEER_LINGER;
	p->moved = 0;
	lanes_line(p, true);
	loop_timer_set(loop_of(p), &p->timer, p->is_known ? REQUEST_MS : LINGER_MS);
}

/* ---- deadlines ---- */

void peer_admit(struct peer *p)
{
	p->is_known = true;
	lanes_line(p, false);
	p->moved = 0;
	loop_timer_set(loop_of(p), &p->timer, WINDOW_MS);
}

static void begin_idle(struct peer *p)
{
	p->state = PEER_HEAD;
	p->timed = false;
	p->waits_since_ns = 0;
	lanes_line(p, true);
	loop_timer_set(loop_of(p), &p->timer, p->is_known ? IDLE_MS : REQUEST_MS);
}

/* The connection waits for the client to send or to read, and the client is too slow. */
static bool is_too_slow(const struct peer *p)
{
	return p->waits_since_ns && p->moved < WINDOW_BYTES &&
	       now_ns() - p->waits_since_ns >= (int64_t)WINDOW_MS * 1000000;
}

/*
 * Ends the request with an error of our own, unless an answer has begun: a handler that was called already
 * is told that the client has gone.
 */
static void refuse_request(struct peer *p, int status, const char *message)
{
	struct exchange *old = take_ptr(p->now), *x;
	struct err e = {0};

	if (old && reply_is_begun(old)) {
		p->now = old;
		p->broken = true;
		return;
	}
	x = p->now = exchange_new(p);
	if (old) {
		x->door = old->door;
		exchange_completed(old, false);
	}
	p->state = PEER_REQUEST;
	p->last = x->internal->complete = true;
	p->left = 0;
	loop_timer_set(loop_of(p), &p->timer, LINGER_MS);
	err_set(&e, status == 408 || status == 431 ? ERR_LIMIT : ERR_INVALID, "%s", message);
	x->internal->quiet = true;
	exchange_error_as(x, status, &e);
}

static void on_timer(void *arg)
{
	struct peer *p = arg;

	if (p->state == PEER_LINGER || (p->state == PEER_HEAD && !p->in.len)) {
		peer_close(p);
		return;
	}
	if (p->state == PEER_HEAD || !p->now->internal->admitted || is_too_slow(p)) {
		refuse_request(p, 408, "the request took too long");
		peer_kick(p);
		return;
	}
	p->moved = 0;
	loop_timer_set(loop_of(p), &p->timer, WINDOW_MS);
}

/* ---- requests ---- */

static void use_bytes(struct peer *p, size_t n)
{
	p->at += n;
	p->left -= n;
}

static void send_continue(struct peer *p)
{
	static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";

	if (send(p->watch.fd, text, sizeof(text) - 1, MSG_NOSIGNAL | MSG_DONTWAIT) !=
	    sizeof(text) - 1)
		p->broken = true;
}

static void expect_body(struct peer *p)
{
	const char *expect = exchange_header(p->now, "Expect");

	if (!expect || p->body.done || p->left || p->now->internal->head.is_old ||
	    reply_is_begun(p->now))
		return;
	send_continue(p);
}

/* False: there is no whole head yet. */
static bool begin_request(struct peer *p)
{
	struct err e = {0};
	ssize_t len;

	/* An empty line before a request is allowed (RFC 9112, 2.2). */
	while (!p->scanned && p->left >= 2 && p->at[0] == '\r' && p->at[1] == '\n')
		use_bytes(p, 2);
	if (!p->left)
		return false;
	if (!p->timed)
		loop_timer_set(loop_of(p), &p->timer, REQUEST_MS);
	p->timed = true;
	len = http1_request_length(p->at, p->left < HEAD_MAX ? p->left : HEAD_MAX, &p->scanned);
	if (len == 0 && p->left < HEAD_MAX)
		return false;
	p->scanned = 0;
	if (len <= 0) {
		refuse_request(p, len ? 400 : 431,
			       len ? "the head has a zero byte or a bare line break"
				   : "the request's head is too large");
		return true;
	}
	p->state = PEER_REQUEST;
	p->last = false;
	p->now = exchange_new(p);
	if (p->is_known)
		lanes_line(p, false);
	if (exchange_read_head(p->now, p->at, (size_t)len, &e) < 0) {
		refuse_request(p, 400, e.msg);
		return true;
	}
	use_bytes(p, (size_t)len);
	http1_body_begin_request(&p->body, &p->now->internal->head);
	router_admit(p->now);
	expect_body(p);
	return true;
}

/* JSON is built as it arrives, at up to 40 ns a byte: it is taken in pieces, and the rest in later turns. */
static void feed_body(struct peer *p)
{
	int64_t end = now_ns() + TURN_NS;
	struct exchange *x = p->now;
	bool in_pieces = exchange_takes_json(x);

	while (!p->body.done && p->left) {
		ssize_t framing = http1_body_framing(&p->body, p->at, p->left);
		size_t content, taken;

		if (framing < 0) {
			refuse_request(p, 400, "a malformed chunk in the body");
			return;
		}
		use_bytes(p, (size_t)framing);
		content = http1_body_content(&p->body, p->left);
		if (in_pieces && content > JSON_PIECE)
			content = JSON_PIECE;
		taken = content ? exchange_feed(x, p->at, content) : 0;
		http1_body_took(&p->body, taken);
		use_bytes(p, taken);
		if (taken < content || p->broken)
			return;
		if (in_pieces && p->left && now_ns() > end) {
			p->has_more = true;
			return;
		}
	}
	if (p->body.done) {
		p->complete_ns = now_ns();
		exchange_complete(x);
	}
}

/* True: the answer is sent, and something else comes next. */
static bool run_request(struct peer *p)
{
	struct exchange *x = p->now;
	bool done;

	exchange_hold(x);
	if (!x->internal->complete)
		feed_body(p);
	if (p->now == x) {
		exchange_call_back(x);
		reply_flush(x);
	}
	done = p->now == x && reply_is_sent(x) && !p->broken &&
	       (x->internal->complete || p->last || x->internal->is_upgrade);
	if (done && x->internal->is_upgrade)
		upgrade_open(x);
	if (done) {
		exchange_completed(x, true);
		p->now = NULL;
	}
	/* A request that was refused meanwhile has another exchange, to be answered now. */
	done = done || p->now != x;
	exchange_release(x);
	if (!done || p->now || p->state == PEER_UPGRADED)
		return done;
	if (p->last)
		begin_linger(p);
	else
		begin_idle(p);
	return true;
}

/* ---- turns ---- */

/* Can the work go on only with more bytes of the client? */
static bool wants_bytes(const struct peer *p)
{
	if (p->state == PEER_REQUEST)
		return !p->now->internal->complete && !p->left;
	return p->state != PEER_UPGRADED;
}

/* Bytes that were not used wait in `in`. */
static void keep_rest(struct peer *p)
{
	struct buf rest = {0};

	if (p->in.len && p->left == p->in.len)
		return;
	buf_add(&rest, p->at, p->left);
	buf_done(&p->in);
	p->in = rest;
}

/*
 * Works on the bytes that are there. False: the connection is closed or handed over. *ret_more: another
 * request may be there.
 */
static bool peer_step(struct peer *p, bool *ret_more)
{
	bool served = true;

	if (p->state == PEER_HEAD && !p->broken)
		served = begin_request(p);
	while (served && p->state == PEER_REQUEST && !p->broken)
		served = run_request(p);
	if (p->state == PEER_UPGRADED && !p->broken)
		return false;
	if (p->state == PEER_LINGER)
		p->left = 0;
	if (p->broken) {
		peer_close(p);
		return false;
	}
	keep_rest(p);
	*ret_more = served && p->state == PEER_HEAD && p->left;
	return true;
}

/* Reads once. */
static size_t read_some(struct peer *p)
{
	char *scratch = p->server->scratch;
	ssize_t n = recv(p->watch.fd, scratch, sizeof(p->server->scratch), MSG_DONTWAIT);

	p->can_read = n > 0 || (n < 0 && errno == EINTR);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		p->eof = true;
	if (n <= 0) {
		p->at = buf_head(&p->in);
		return 0;
	}
	/* A short read has emptied the socket; there will be an event for more. */
	if ((size_t)n < sizeof(p->server->scratch) && !p->hung_up)
		p->can_read = false;
	p->moved += (size_t)n;
	if (p->in.len) {
		buf_add(&p->in, scratch, (size_t)n);
		p->at = buf_head(&p->in);
		p->left = p->in.len;
	} else {
		p->at = scratch;
		p->left = (size_t)n;
	}
	return (size_t)n;
}

/* A client that has closed answers anything with a reset; one that has half-closed skips this. */
static void probe_client(struct peer *p)
{
	if (!p->now->internal->head.is_old && !reply_is_begun(p->now))
		send_continue(p);
}

/*
 * The client sends no more. Clients that close look the same over TCP until something is sent to them. Those
 * that half-close do it with their request; a later end while nothing is sent is taken for a hang-up, so
 * that a run does not go on for nobody.
 */
static bool has_gone(struct peer *p)
{
	bool late = now_ns() - p->complete_ns > (int64_t)HALF_CLOSED_MS * 1000000;

	if (p->dead)
		return !wants_bytes(p);
	if (!p->hung_up || p->state != PEER_REQUEST || !p->now->internal->complete)
		return false;
	p->hung_up = false;
	if (p->is_unix || reply_waits(p->now))
		return false;
	if (!late)
		probe_client(p);
	return late;
}

static bool has_ended(const struct peer *p)
{
	if (p->state == PEER_LINGER &&
	    p->moved > (p->is_known ? LINGER_BYTES : STRANGER_LINGER_BYTES))
		return true;
	return p->eof && wants_bytes(p);
}

/* Since when the connection waits for its client. */
static void note_waiting(struct peer *p)
{
	bool writes = p->state == PEER_REQUEST && reply_waits(p->now);

	if (p->state != PEER_REQUEST || (!writes && !wants_bytes(p)))
		p->waits_since_ns = 0;
	else if (!p->waits_since_ns)
		p->waits_since_ns = now_ns();
	if (writes && p->can_write)
		peer_kick(p);
	/* Asked for only then: a Unix socket tells of room after each answer. */
	if (p->state != PEER_UPGRADED)
		loop_change(loop_of(p), &p->watch,
			    EVENTS | (writes && !p->can_write ? EPOLLOUT : 0));
}

void peer_run(struct peer *p)
{
	int64_t end = now_ns() + TURN_NS;
	bool more = false;
	size_t read = 0;

	/* Whoever has the socket closes it. */
	if (p->state == PEER_UPGRADED)
		return;
	if (has_gone(p)) {
		peer_close(p);
		return;
	}
	p->at = buf_head(&p->in);
	p->left = p->in.len;
	p->has_more = false;
	for (;;) {
		if (!peer_step(p, &more))
			return;
		if (more || !wants_bytes(p))
			break;
		if (has_ended(p)) {
			peer_close(p);
			return;
		}
		if (!p->can_read || read > TURN_BYTES || (read && now_ns() > end))
			break;
		read += read_some(p);
	}
	note_waiting(p);
	/* Its end may have come with the request, and no other event will tell. */
	if ((p->dead || p->hung_up) && p->state == PEER_REQUEST && p->now->internal->complete)
		peer_kick(p);
	if (more || p->has_more || (wants_bytes(p) && (p->can_read || p->eof)))
		peer_kick(p);
}

/* The socket's events are edges: each is noted until it was used. */
static void on_ready(void *arg, uint32_t events)
{
	struct peer *p = arg;

	p->can_read = p->can_read || events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR);
	p->can_write = p->can_write || events & EPOLLOUT;
	p->hung_up = p->hung_up || events & EPOLLRDHUP;
	p->dead = p->dead || events & (EPOLLHUP | EPOLLERR);
	peer_kick(p);
}

void peer_begin(struct peer *p)
{
	static const int on = 1;

	if (!p->is_unix) {
		setsockopt(p->watch.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		setsockopt(p->watch.fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	}
	p->watch.events = EVENTS;
	p->watch.call = on_ready;
	p->watch.arg = p;
	p->timer = (struct loop_timer){.call = on_timer, .arg = p};
	p->is_known = p->is_operator;
	p->can_write = true;
	begin_idle(p);
	p->timed = true;
	loop_timer_set(loop_of(p), &p->timer, REQUEST_MS);
	if (loop_watch(loop_of(p), &p->watch) < 0)
		peer_close(p);
}
