/*
 * A connection that a client took over for a stream: bytes of a terminal, or frames that say which of two outputs they
 * are of. Memory is bounded: whoever writes asks for room, and the client's input is read only as fast as it is taken.
 * A client that half-closes goes on reading; the stream ends when we close it.
 */
#include "api/docker/docker_internal.h"

#include "wire/http1.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define PIECE (32u << 10)
#define OUT_MAX (256u << 10)
#define LINGER_MS 2000 /* for the client to hang up once it has everything */
#define UNREAD_MS 1    /* between looks whether the client has read the head; so often at most: */
#define UNREAD_LOOKS 200
#define FLUSH_MS 30000 /* for a client that reads nothing of the end */

struct raw {
	struct loop *loop;
	const struct raw_ops *ops; /* NULL: its owner has left */
	void *arg;
	struct upgraded *u; /* NULL: not open yet */
	struct loop_watch watch;
	struct loop_timer timer; /* once the owner has left */
	struct loop_timer unread;
	unsigned looks;
	struct buf out, in;
	bool tty, client_eof, told_eof;
	bool is_shut;	 /* everything is sent, and our half is closed */
	bool is_ending;	 /* the timer has fired once */
	bool is_opening; /* raw_open is still to return */
	bool has_answer; /* on_open was called */
};

const char *raw_type(bool tty)
{
	return tty ? "application/vnd.docker.raw-stream"
		   : "application/vnd.docker.multiplexed-stream";
}

void raw_frame(char ret[RAW_FRAME], int kind, size_t len)
{
	const char head[RAW_FRAME] = {
		(char)kind,	  0,	    0, 0, (char)(len >> 24), (char)(len >> 16),
		(char)(len >> 8), (char)len};

	memcpy(ret, head, RAW_FRAME);
}

static void raw_free(struct raw *r)
{
	const struct raw_ops *ops = take_ptr(r->ops);
	void *arg = r->arg;

	loop_timer_stop(r->loop, &r->timer);
	loop_timer_stop(r->loop, &r->unread);
	if (r->u) {
		loop_unwatch(r->loop, &r->watch);
		upgraded_close(r->u);
	}
	buf_done(&r->out);
	buf_done(&r->in);
	free(r);
	if (ops)
		ops->closed(arg);
}

/* A callback may finish r, but nothing frees it within. */
static void give_input(struct raw *r)
{
	if (r->ops && r->in.len)
		buf_drop(&r->in, r->ops->take(r->arg, buf_head(&r->in), r->in.len));
	if (r->ops && !r->in.len && r->client_eof && !r->told_eof) {
		r->told_eof = true;
		r->ops->eof(r->arg);
	}
}

/*
 * Some clients (Python's) read the head through a buffer and the stream behind it without: what comes together with
 * the head would be lost to them. So nothing is sent while the head waits in the client's socket.
 */
static bool is_head_unread(struct raw *r)
{
	int waiting = 0;

	if (r->looks >= UNREAD_LOOKS)
		return false;
	if (ioctl(r->watch.fd, SIOCOUTQ, &waiting) < 0 || !waiting) {
		r->looks = UNREAD_LOOKS;
		return false;
	}
	return true;
}

static void watch_more(struct raw *r)
{
	bool reads = !r->client_eof && !r->in.len;
	bool writes = r->out.len && !r->unread.place;

	loop_change(r->loop, &r->watch, (reads ? EPOLLIN : 0) | (writes ? EPOLLOUT : 0));
}

/* Returns how much was sent. */
static size_t send_output(struct raw *r, bool *ret_broken)
{
	*ret_broken = false;
	if (r->out.len && is_head_unread(r)) {
		r->looks++;
		loop_timer_set(r->loop, &r->unread, UNREAD_MS);
		return 0;
	}
	loop_timer_stop(r->loop, &r->unread);
	return buf_write(&r->out, r->watch.fd, ret_broken);
}

/* Moves what can be moved and polls for the rest. r may be freed afterwards. */
static void raw_update(struct raw *r)
{
	size_t sent;
	bool is_broken;

	if (!r->u)
		return;
	give_input(r);
	sent = send_output(r, &is_broken);
	if (is_broken) {
		raw_free(r);
		return;
	}
	if (sent && r->ops)
		r->ops->room(r->arg);
	else if (sent && r->is_ending)
		loop_timer_set(r->loop, &r->timer, FLUSH_MS);
	if (!r->ops && !r->out.len && !r->is_shut) {
		r->is_shut = r->is_ending = true;
		buf_done(&r->in);
		shutdown(r->watch.fd, SHUT_WR);
		loop_timer_set(r->loop, &r->timer, LINGER_MS);
	}
	/* Closing with unread bytes would reset the connection, and the client would lose the last output. */
	if (r->is_shut && r->client_eof)
		raw_free(r);
	else
		watch_more(r);
}

static void on_unread(void *arg)
{
	raw_update(arg);
}

static void on_socket(void *arg, uint32_t events)
{
	struct raw *r = arg;
	char bytes[PIECE];
	ssize_t n;

	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR) && !r->client_eof && !r->in.len) {
		n = recv(r->watch.fd, bytes, sizeof(bytes), MSG_DONTWAIT);
		if (n < 0 && errno != EAGAIN && errno != EINTR) {
			raw_free(r);
			return;
		}
		if (n > 0 && !r->is_shut)
			buf_add(&r->in, bytes, (size_t)n);
		r->client_eof = r->client_eof || n == 0;
	} else if (events & (EPOLLHUP | EPOLLERR)) {
		raw_free(r);
		return;
	}
	raw_update(r);
}

/* The owner has left: what is written is sent, then the client has a while to hang up. */
static void on_timer(void *arg)
{
	struct raw *r = arg;

	if (r->is_ending || !r->u) {
		raw_free(r);
		return;
	}
	r->is_ending = true;
	loop_timer_set(r->loop, &r->timer, FLUSH_MS);
	raw_update(r);
}

static void on_open(void *arg, struct upgraded *u, const char *bytes, size_t len)
{
	struct raw *r = arg;

	/* From the loop, if this is called from within raw_open. */
	r->has_answer = true;
	if (!u && r->is_opening) {
		loop_timer_set(r->loop, &r->timer, 0);
		return;
	}
	if (!u) {
		raw_free(r);
		return;
	}
	r->u = u;
	r->watch = (struct loop_watch){
		.fd = upgraded_fd(u), .events = EPOLLIN, .call = on_socket, .arg = r};
	loop_watch(r->loop, &r->watch);
	buf_add(&r->in, bytes, len);
	raw_update(r);
}

struct raw *raw_open(struct exchange *x, bool tty, const struct raw_ops *ops, void *arg)
{
	struct raw *r = must_alloc(calloc(1, sizeof(*r)));
	const char *connection = exchange_header(x, "Connection");

	*r = (struct raw){.loop = x->api->loop, .ops = ops, .arg = arg, .tty = tty};
	r->timer = (struct loop_timer){.call = on_timer, .arg = r};
	r->unread = (struct loop_timer){.call = on_unread, .arg = r};
	r->is_opening = true;
	exchange_set_header(x, "Content-Type", raw_type(tty));
	if (connection && http1_list_has(connection, "Upgrade")) {
		exchange_set_header(x, "Upgrade", "tcp");
		exchange_upgrade(x, on_open, r);
	} else {
		exchange_take_over(x, on_open, r);
	}
	r->is_opening = false;
	return r;
}

void raw_write(struct raw *r, int kind, const char *bytes, size_t len)
{
	char head[RAW_FRAME];

	raw_frame(head, kind, len);
	if (!r->tty)
		buf_add(&r->out, head, sizeof(head));
	buf_add(&r->out, bytes, len);
	if (r->u)
		watch_more(r);
}

size_t raw_room(const struct raw *r)
{
	return r->out.len < OUT_MAX ? OUT_MAX - r->out.len : 0;
}

void raw_more(struct raw *r)
{
	if (r->u && r->ops)
		give_input(r);
	if (r->u)
		watch_more(r);
}

void raw_finish(struct raw *r)
{
	if (!r)
		return;
	r->ops = NULL;
	/* From the loop: the caller may be one of the callbacks. Before it is open, on_open goes on. */
	if (r->has_answer)
		loop_timer_set(r->loop, &r->timer, 0);
}
