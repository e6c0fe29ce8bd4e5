#include "api/http/http_internal.h"

void exchange_upgrade(struct exchange *x,
		      void (*on_open)(void *arg, struct raw *raw, const char *bytes, size_t len),
		      void *arg)
{
	struct exchange_inside *in = x->inside;

	exchange_hold(x);
	in->is_upgrade = in->answered = true;
	in->status = 101;
	if (x->gone || !in->peer) {
		on_open(arg, NULL, NULL, 0);
	} else {
		in->on_open = on_open;
		in->open_arg = arg;
		exchange_resume(x);
	}
	exchange_release(x);
}

static void on_upgraded(void *cls, struct MHD_Connection *c, void *context, const char *extra,
			size_t extra_len, MHD_socket fd, struct MHD_UpgradeResponseHandle *handle)
{
	struct exchange *x = cls;
	struct exchange_inside *in = x->inside;
	struct peer *p = in->peer;

	p->raw = (struct raw){.handle = handle, .peer = p, .fd = fd};
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	exchange_hold(x);
	if (in->on_open) {
		void (*call)(void *, struct raw *, const char *, size_t) = in->on_open;

		in->on_open = NULL;
		call(in->open_arg, &p->raw, extra, extra_len);
	}
	exchange_release(x);
}

enum MHD_Result upgrade_queue(struct exchange *x)
{
	struct exchange_inside *in = x->inside;
	struct MHD_Response *r =
		reply_add_headers(x, MHD_create_response_for_upgrade(on_upgraded, x));
	enum MHD_Result result;

	if (!r)
		return MHD_NO;
	in->queued = true;
	peer_set_timer(in->peer, 0);
	result = MHD_queue_response(in->conn, MHD_HTTP_SWITCHING_PROTOCOLS, r);
	MHD_destroy_response(r);
	return result;
}

int raw_fd(const struct raw *r)
{
	return r->fd;
}

void raw_close(struct raw *r)
{
	struct server *s = r->peer->server;

	if (!r->handle)
		return;
	MHD_upgrade_action(take_ptr(r->handle), MHD_UPGRADE_ACTION_CLOSE);
	server_kick(s);
}
