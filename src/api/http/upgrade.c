/* Connections that were upgraded: handing the socket over, and tunnels to ports inside sandboxes. */
#include "api/http/http_internal.h"

#include <sys/socket.h>

#define PIECE (32u << 10)
#define OUT_MAX (64u << 10) /* waiting for the client before the guest is stopped */

static void hand_over(struct exchange *x, int status, upgrade_done on_open, void *arg)
{
	struct exchange_internal *in = x->internal;

	exchange_hold(x);
	exchange_set_endless(x);
	in->is_upgrade = in->answered = true;
	in->status = status;
	if (x->gone || !in->peer) {
		on_open(arg, NULL, NULL, 0);
	} else {
		in->on_open = on_open;
		in->open_arg = arg;
		reply_flush(x);
		peer_kick(in->peer);
	}
	exchange_release(x);
}

void exchange_upgrade(struct exchange *x, upgrade_done on_open, void *arg)
{
	hand_over(x, 101, on_open, arg);
}

void exchange_take_over(struct exchange *x, upgrade_done on_open, void *arg)
{
	hand_over(x, 200, on_open, arg);
}

void upgrade_open(struct exchange *x)
{
	struct peer *p = x->internal->peer;

	loop_unwatch(x->api->loop, &p->watch);
	loop_timer_stop(x->api->loop, &p->timer);
	p->state = PEER_UPGRADED;
	p->upgraded = (struct upgraded){.peer = p, .fd = p->watch.fd};
	p->opening = true;
	if (x->internal->on_open)
		take_ptr(x->internal->on_open)(x->internal->open_arg, &p->upgraded, p->at, p->left);
	p->opening = false;
	p->left = 0;
	buf_done(&p->in);
}

int upgraded_fd(const struct upgraded *u)
{
	return u->fd;
}

void upgraded_close(struct upgraded *u)
{
	struct peer *p = u->peer;

	/* Within upgrade_open the step that called it closes. */
	if (p->opening)
		p->broken = true;
	else
		peer_close(p);
}

/* ---- tunnels: bytes both ways to a port inside a sandbox ---- */

struct tunnel {
	struct loop *loop;
	struct upgraded *u;
	struct call *call; /* NULL: ended */
	struct pump *pump;
	struct loop_watch watch;
	struct buf out, in; /* to the client, to the guest */
	bool client_eof, guest_eof, told_guest;
	void (*done)(void *arg);
	void *arg;
};

static void end_tunnel(struct tunnel *t)
{
	void (*done)(void *arg) = t->done;
	void *arg = t->arg;

	call_drop(t->call);
	loop_unwatch(t->loop, &t->watch);
	upgraded_close(t->u);
	buf_done(&t->out);
	buf_done(&t->in);
	free(t);
	done(arg);
}

static void give_guest(struct tunnel *t)
{
	if (t->call && t->in.len)
		buf_drop(&t->in, call_push(t->call, buf_head(&t->in), t->in.len));
	if (t->call && !t->in.len && t->client_eof && !t->told_guest) {
		t->told_guest = true;
		call_close(t->call);
	}
}

/* Moves what can be moved and polls for the rest; true: the tunnel has ended and t is freed. */
static bool update_tunnel(struct tunnel *t)
{
	bool no_more_out = !t->call || t->guest_eof, broken;

	buf_write(&t->out, t->watch.fd, &broken);
	if (!t->out.len && t->guest_eof)
		shutdown(t->watch.fd, SHUT_WR);
	if (broken || (no_more_out && !t->out.len && (t->client_eof || !t->call))) {
		end_tunnel(t);
		return true;
	}
	pump_resume(t->pump);
	give_guest(t);
	loop_change(t->loop, &t->watch,
		    (!t->client_eof && !t->in.len ? EPOLLIN : 0) | (t->out.len ? EPOLLOUT : 0));
	return false;
}

static void on_tunnel_ready(void *arg, uint32_t events)
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
			end_tunnel(t);
			return;
		}
	} else if (events & (EPOLLHUP | EPOLLERR)) {
		end_tunnel(t);
		return;
	}
	update_tunnel(t);
}

struct tunnel *tunnel_new(struct loop *l, struct upgraded *u, struct call *call, struct pump *pump,
			  void (*done)(void *arg), void *arg)
{
	struct tunnel *t = must_alloc(calloc(1, sizeof(*t)));

	*t = (struct tunnel){.loop = l, .u = u, .call = call, .done = done, .arg = arg};
	t->pump = pump;
	t->watch = (struct loop_watch){
		.fd = upgraded_fd(u), .events = EPOLLIN, .call = on_tunnel_ready, .arg = t};
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
	return !update_tunnel(t);
}

void tunnel_to_guest(struct tunnel *t, const void *bytes, size_t len)
{
	buf_add(&t->in, bytes, len);
	update_tunnel(t);
}

void tunnel_guest_room(struct tunnel *t)
{
	update_tunnel(t);
}

void tunnel_guest_closed(struct tunnel *t)
{
	t->guest_eof = true;
	update_tunnel(t);
}

void tunnel_guest_ended(struct tunnel *t)
{
	t->call = NULL;
	update_tunnel(t);
}
