/* Bytes both ways between an upgraded connection and a port inside a sandbox. */
#include "api/http/ports.h"

#include <sys/socket.h>

#define PIECE (32u << 10)
#define OUT_MAX (64u << 10) /* waiting for the client before the guest is stopped */

struct tunnel {
	struct loop *loop;
	struct raw *raw;
	struct call *call; /* NULL: ended */
	struct pump *pump;
	struct loop_watch watch;
	struct buf out, in; /* to the client, to the guest */
	bool client_eof, guest_eof, told_guest;
	void (*done)(void *arg);
	void *arg;
};

static void end(struct tunnel *t)
{
	void (*done)(void *arg) = t->done;
	void *arg = t->arg;

	call_drop(t->call);
	loop_unwatch(t->loop, &t->watch);
	raw_close(t->raw);
	buf_done(&t->out);
	buf_done(&t->in);
	free(t);
	done(arg);
}

/* False: the connection is broken. */
static bool flush(struct tunnel *t)
{
	while (t->out.len) {
		ssize_t n = send(t->watch.fd, buf_head(&t->out), t->out.len,
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR;
		buf_drop(&t->out, (size_t)n);
	}
	if (t->guest_eof)
		shutdown(t->watch.fd, SHUT_WR);
	return true;
}

static void give(struct tunnel *t)
{
	if (t->call && t->in.len)
		buf_drop(&t->in, call_push(t->call, buf_head(&t->in), t->in.len));
	if (t->call && !t->in.len && t->client_eof && !t->told_guest) {
		t->told_guest = true;
		call_close(t->call);
	}
}

/* What is waited for follows from what is there; true: it is over, and t is gone. */
static bool settle(struct tunnel *t)
{
	uint32_t events = 0;
	bool no_more_out = !t->call || t->guest_eof;

	if (!flush(t) || (no_more_out && !t->out.len && (t->client_eof || !t->call))) {
		end(t);
		return true;
	}
	pump_resume(t->pump);
	give(t);
	if (!t->client_eof && !t->in.len)
		events |= EPOLLIN;
	if (t->out.len)
		events |= EPOLLOUT;
	loop_change(t->loop, &t->watch, events);
	return false;
}

static void on_ready(void *arg, uint32_t events)
{
	struct tunnel *t = arg;
	char bytes[PIECE];
	ssize_t n;

	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR) && !t->client_eof && !t->in.len) {
		n = recv(t->watch.fd, bytes, sizeof(bytes), MSG_DONTWAIT);
		if (n > 0) {
			buf_add(&t->in, bytes, (size_t)n);
		} else if (n == 0) {
			t->client_eof = true;
		} else if (errno != EAGAIN && errno != EINTR) {
			end(t);
			return;
		}
	} else if (events & (EPOLLHUP | EPOLLERR)) {
		end(t);
		return;
	}
	settle(t);
}

struct tunnel *tunnel_new(struct loop *l, struct raw *raw, struct call *call, struct pump *pump,
			  void (*done)(void *arg), void *arg)
{
	struct tunnel *t = must_alloc(calloc(1, sizeof(*t)));

	*t = (struct tunnel){.loop = l, .raw = raw, .call = call, .done = done, .arg = arg};
	t->pump = pump;
	t->watch = (struct loop_watch){
		.fd = raw_fd(raw), .events = EPOLLIN, .call = on_ready, .arg = t};
	loop_watch(l, &t->watch);
	return t;
}

size_t tunnel_room(const struct tunnel *t)
{
	return t->out.len < OUT_MAX ? OUT_MAX - t->out.len : 0;
}

bool tunnel_to_client(struct tunnel *t, const void *bytes, size_t len)
{
	buf_add(&t->out, bytes, len);
	return !settle(t);
}

void tunnel_to_guest(struct tunnel *t, const void *bytes, size_t len)
{
	buf_add(&t->in, bytes, len);
	settle(t);
}

void tunnel_guest_room(struct tunnel *t)
{
	settle(t);
}

void tunnel_guest_closed(struct tunnel *t)
{
	t->guest_eof = true;
	settle(t);
}

void tunnel_guest_ended(struct tunnel *t)
{
	t->call = NULL;
	settle(t);
}
