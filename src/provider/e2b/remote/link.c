/* Carries the bytes of a guest link over the process streams of an E2B-compatible service. */
#include "provider/e2b/remote/remote_internal.h"

#include "guest/link/bridge.h"

#include <sys/socket.h>

#define HIGH (512u << 10) /* bytes that may wait for the front */
#define INPUT (96u << 10) /* in one request */
#define UP_MS 60000

struct remote_link {
	struct loop *loop;
	struct service *service;
	struct service_sandbox to;
	const struct remote_link_ops *ops;
	void *arg;
	struct http_call *stream, *input;
	bool is_up, is_held; /* held: the stream is paused */
	uint32_t pid;
	struct buf events; /* not parsed yet */
	struct buf out;	   /* for the front */
	char said[160];	   /* the beginning of its stderr */
	int fd;
	struct loop_watch watch;
	struct loop_task work;
	struct loop_timer deadline;
	struct err err;
	bool is_over;
};

void remote_link_close(struct remote_link *k)
{
	if (!k)
		return;
	http_stop(k->stream);
	http_stop(k->input);
	loop_unwatch(k->loop, &k->watch);
	loop_task_remove(k->loop, &k->work);
	loop_timer_stop(k->loop, &k->deadline);
	close_fd(&k->fd);
	buf_done(&k->events);
	buf_done(&k->out);
	free(k);
}

/* Callers still use the link, so it is freed by on_work in this round of the loop. */
static void end_link(struct remote_link *k, const struct err *e)
{
	if (k->is_over)
		return;
	k->is_over = true;
	k->err = *e;
	loop_task_add(k->loop, &k->work);
}

static void end_with(struct remote_link *k, const char *why)
{
	struct err e = {0};

	err_set(&e, ERR_SYSTEM, "%s%s%s", why, k->said[0] ? ": " : "", k->said);
	end_link(k, &e);
}

/* ---- to the service ---- */

static void set_interest(struct remote_link *k);

static void on_input_done(void *arg, long status, const struct buf *body, const struct err *e)
{
	struct remote_link *k = arg;
	struct err failed = {0};

	k->input = NULL;
	if (status == 200) {
		set_interest(k);
		return;
	}
	/* Nobody knows whether the bytes arrived: only a new link is in step again. */
	failed = service_failure("take input", status, body, e);
	end_link(k, &failed);
}

static void take_input(struct remote_link *k)
{
	auto_free char *bytes = must_alloc(malloc(INPUT));
	ssize_t n = recv(k->fd, bytes, INPUT, MSG_DONTWAIT);

	if (n > 0) {
		k->input = service_input(k->service, &k->to, k->pid, bytes, (size_t)n,
					 on_input_done, k);
		set_interest(k);
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		end_with(k, "the link was closed");
	}
}

/* ---- to the front ---- */

static bool send_out(struct remote_link *k)
{
	while (k->out.len) {
		ssize_t n = send(k->fd, buf_head(&k->out), k->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN;
		buf_drop(&k->out, (size_t)n);
	}
	return true;
}

static void set_interest(struct remote_link *k)
{
	uint32_t events = (k->input ? 0 : EPOLLIN) | (k->out.len ? EPOLLOUT : 0);

	if (!k->is_up || k->is_over)
		return;
	/* Without events epoll would still report a hang-up, again and again. */
	if (!events)
		loop_unwatch(k->loop, &k->watch);
	else if (k->watch.active)
		loop_change(k->loop, &k->watch, events);
	else {
		k->watch.events = events;
		loop_watch(k->loop, &k->watch);
	}
}

static void on_front(void *arg, uint32_t events)
{
	struct remote_link *k = arg;

	if (events & EPOLLOUT && !send_out(k))
		end_with(k, "the link was closed");
	if (!k->is_over && !k->input && events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		take_input(k);
	/* There may be room for more events. */
	loop_task_add(k->loop, &k->work);
}

/* ---- from the service ---- */

static void come_up(struct remote_link *k)
{
	struct err e = {0};
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
		err_sys(&e, "cannot create a socket pair");
		end_link(k, &e);
		return;
	}
	k->fd = pair[0];
	k->watch = (struct loop_watch){.fd = k->fd, .call = on_front, .arg = k};
	k->is_up = true;
	loop_timer_stop(k->loop, &k->deadline);
	k->ops->on_up(k->arg, pair[1]);
}

/* The first line proves that our program answers. */
static void take_hello(struct remote_link *k)
{
	size_t len = strlen(BRIDGE_HELLO), have = k->out.len < len ? k->out.len : len;

	if (have && memcmp(buf_head(&k->out), BRIDGE_HELLO, have) != 0) {
		end_with(k, "what runs in the service's sandbox is not our program");
	} else if (have == len) {
		buf_drop(&k->out, len);
		come_up(k);
	}
}

static void note_stderr(struct remote_link *k, const struct buf *text)
{
	size_t len = text->len < sizeof(k->said) / 2 ? text->len : sizeof(k->said) / 2;

	if (k->said[0] || !text->len)
		return;
	while (len && (buf_head(text)[len - 1] == '\n' || buf_head(text)[len - 1] == '\r'))
		len--;
	str_sanitise(k->said, sizeof(k->said), buf_head(text), len);
}

static void take_event(struct remote_link *k, const struct service_event *ev)
{
	char why[260];

	if (ev->kind == SERVICE_START) {
		k->pid = ev->pid;
	} else if (ev->kind == SERVICE_EXIT || ev->kind == SERVICE_END) {
		snprintf(why, sizeof(why), "our program in the service's sandbox ended%s%s",
			 ev->text[0] ? ": " : "", ev->text);
		end_with(k, why);
	} else if (ev->kind == SERVICE_OUT && !k->is_up) {
		if (!k->pid)
			end_with(k, "the service's stream has output before its start");
		else
			take_hello(k);
	}
}

static void take_events(struct remote_link *k)
{
	struct service_event ev;
	struct err e = {0};
	int rc = 1;

	while (!k->is_over && k->out.len < HIGH && rc > 0) {
		struct buf text = {0};

		rc = service_event_next(&k->events, &text, &ev, &e);
		if (rc > 0 && ev.kind == SERVICE_OUT && text.len)
			buf_add(&k->out, buf_head(&text), text.len);
		else if (rc > 0 && ev.kind == SERVICE_ERR)
			note_stderr(k, &text);
		buf_done(&text);
		if (rc > 0)
			take_event(k, &ev);
	}
	if (rc < 0)
		end_link(k, &e);
}

static bool on_events(void *arg, const char *bytes, size_t len)
{
	struct remote_link *k = arg;

	loop_task_add(k->loop, &k->work);
	/* One whole message must fit, or it would never become complete. */
	if (k->events.len + len > SERVICE_ENVELOPE + HIGH) {
		k->is_held = true;
		return false;
	}
	buf_add(&k->events, bytes, len);
	return true;
}

static void on_stream_done(void *arg, long status, const struct buf *body, const struct err *e)
{
	struct remote_link *k = arg;
	struct err failed = {0};

	k->stream = NULL;
	take_events(k);
	if (k->is_up)
		(void)send_out(k);
	if (status == 200) {
		end_with(k, "the service's stream ended");
		return;
	}
	failed = service_failure("run our program", status, body, e);
	end_link(k, &failed);
}

static void on_work(void *arg)
{
	struct remote_link *k = arg;

	take_events(k);
	if (k->is_up && !send_out(k))
		end_with(k, "the link was closed");
	if (k->is_over) {
		struct err e = k->err;
		const struct remote_link_ops *ops = k->ops;
		void *to = k->arg;

		remote_link_close(k);
		ops->on_end(to, &e);
		return;
	}
	if (k->is_held && k->events.len < SERVICE_ENVELOPE + HIGH / 2 && k->stream) {
		k->is_held = false;
		http_go_on(k->stream);
	}
	set_interest(k);
}

static void on_not_started(void *arg)
{
	end_with(arg, "our program does not start in the service's sandbox");
}

struct remote_link *remote_link_open(struct loop *l, struct service *s,
				     const struct service_sandbox *to, const char *id,
				     const struct remote_link_ops *ops, void *arg)
{
	struct remote_link *k = must_alloc(calloc(1, sizeof(*k)));

	*k = (struct remote_link){
		.loop = l, .service = s, .to = *to, .ops = ops, .arg = arg, .fd = -1};
	k->work = (struct loop_task){.call = on_work, .arg = k};
	k->deadline = (struct loop_timer){.call = on_not_started, .arg = k};
	loop_timer_set(l, &k->deadline, UP_MS);
	k->stream = service_bridge(s, to, id, on_events, on_stream_done, k);
	return k;
}
