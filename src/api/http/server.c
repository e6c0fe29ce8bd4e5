/* The HTTP server: runs libmicrohttpd in the loop, accepts connections and bounds their number. */
#include "api/http/http_internal.h"

#include "auth/tokens.h"
#include "base/log.h"
#include "policy/config.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

#define POOL_BYTES (128u << 10) /* per connection: its head, and the pieces of a body */
#define ACCEPT_AT_ONCE 64

/* ---- running libmicrohttpd ---- */

static void run_mhd(void *arg)
{
	struct server *s = arg;
	MHD_UNSIGNED_LONG_LONG after_ms;

	loop_timer_stop(s->api->loop, &s->timer);
	MHD_run(s->mhd);
	if (MHD_get_timeout(s->mhd, &after_ms) != MHD_YES)
		return;
	if (after_ms == 0)
		server_kick(s);
	else
		loop_timer_set(s->api->loop, &s->timer, after_ms);
}

static void on_mhd_ready(void *arg, uint32_t events)
{
	run_mhd(arg);
}

void server_kick(struct server *s)
{
	loop_task_add(s->api->loop, &s->task);
}

/* ---- connections ---- */

static void on_late(void *arg)
{
	peer_cut(arg);
}

void peer_set_timer(struct peer *p, uint64_t ms)
{
	if (ms)
		loop_timer_set(p->server->api->loop, &p->timer, ms);
	else
		loop_timer_stop(p->server->api->loop, &p->timer);
}

/* libmicrohttpd sees the end and closes. */
void peer_cut(struct peer *p)
{
	shutdown(p->fd, SHUT_RDWR);
}

static void set_idle(struct peer *p, bool is_idle)
{
	if (p->is_idle == is_idle)
		return;
	p->is_idle = is_idle;
	if (is_idle)
		TAILQ_INSERT_TAIL(&p->server->idle, p, idle);
	else
		TAILQ_REMOVE(&p->server->idle, p, idle);
}

static void peer_free(struct peer *p)
{
	struct server *s = p->server;

	set_idle(p, false);
	peer_set_timer(p, 0);
	TAILQ_REMOVE(&s->peers, p, all);
	s->peer_count--;
	free(p);
}

static void on_connection(void *cls, struct MHD_Connection *c, void **context,
			  enum MHD_ConnectionNotificationCode code)
{
	struct server *s = cls;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		*context = take_ptr(s->adding);
		return;
	}
	if (*context)
		peer_free(*context);
	*context = NULL;
}

static struct peer *peer_of(struct MHD_Connection *c)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info ? info->socket_context : NULL;
}

static size_t count_address(const struct server *s, const char *address)
{
	const struct peer *p;
	size_t n = 0;

	TAILQ_FOREACH (p, &s->peers, all)
		n += str_equal(p->address, address);
	return n;
}

/* If there are too many connections, the one that has been idle for longest is closed. */
static bool make_room(struct server *s, const struct peer *p)
{
	size_t most = s->api->config->max_connections;

	if (p->is_remote && most && count_address(s, p->address) >= most / 4 + 1)
		return false;
	if (!most || s->peer_count < most)
		return true;
	if (TAILQ_EMPTY(&s->idle))
		return false;
	peer_cut(TAILQ_FIRST(&s->idle));
	return s->peer_count < most + ACCEPT_AT_ONCE;
}

/* Takes fd and p over. */
static void add_peer(struct server *s, struct peer *p, const struct sockaddr *sa, socklen_t len)
{
	static const int on = 1;
	int fd = p->fd;

	if (!make_room(s, p)) {
		close(fd);
		free(p);
		return;
	}
	if (!p->is_unix) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	}
	p->server = s;
	p->timer = (struct loop_timer){.call = on_late, .arg = p};
	p->upgraded.fd = -1;
	TAILQ_INSERT_TAIL(&s->peers, p, all);
	s->peer_count++;
	set_idle(p, true);
	peer_set_timer(p, HEAD_MS);
	s->adding = p;
	/* On failure it closes the socket, and calls on_connection again if it had called it. */
	MHD_add_connection(s->mhd, fd, sa, len);
	if (s->adding)
		peer_free(take_ptr(s->adding));
	server_kick(s);
}

static void name_address(struct peer *p, const struct sockaddr_storage *sa)
{
	const struct sockaddr_in *v4 = (const void *)sa;
	const struct sockaddr_in6 *v6 = (const void *)sa;

	if (sa->ss_family == AF_INET) {
		inet_ntop(AF_INET, &v4->sin_addr, p->address, sizeof(p->address));
		p->is_remote = ntohl(v4->sin_addr.s_addr) >> 24 != 127;
	} else if (sa->ss_family == AF_INET6) {
		inet_ntop(AF_INET6, &v6->sin6_addr, p->address, sizeof(p->address));
		p->is_remote = !IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
	} else {
		snprintf(p->address, sizeof(p->address), "unix");
		p->is_unix = true;
	}
}

static void listen_again(void *arg)
{
	struct http_listener *n = arg;

	loop_change(n->server->api->loop, &n->watch, EPOLLIN);
}

static void on_accept(void *arg, uint32_t events)
{
	struct http_listener *n = arg;

	for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
		struct sockaddr_storage sa = {0};
		socklen_t len = sizeof(sa);
		int fd = accept4(n->watch.fd, (struct sockaddr *)&sa, &len,
				 SOCK_CLOEXEC | SOCK_NONBLOCK);
		struct peer *p;

		if (fd < 0 &&
		    (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
			/* The listener stays readable: stop polling it for a moment instead of spinning. */
			loop_change(n->server->api->loop, &n->watch, 0);
			loop_timer_set(n->server->api->loop, &n->again, 200);
		}
		if (fd < 0)
			return;
		p = must_alloc(calloc(1, sizeof(*p)));
		p->fd = fd;
		name_address(p, &sa);
		add_peer(n->server, p, (struct sockaddr *)&sa, len);
	}
}

int server_listen(struct server *s, int fd, struct err *e)
{
	struct http_listener *n = must_alloc(calloc(1, sizeof(*n)));

	n->server = s;
	n->watch = (struct loop_watch){.fd = fd, .events = EPOLLIN, .call = on_accept, .arg = n};
	n->again = (struct loop_timer){.call = listen_again, .arg = n};
	if (loop_watch(s->api->loop, &n->watch) < 0) {
		free(n);
		close(fd);
		return err_sys(e, "cannot watch a listening socket");
	}
	n->next = s->listeners;
	s->listeners = n;
	return 0;
}

void server_add_peer(struct server *s, int fd, const struct ipc_peer *who)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	struct peer *p = must_alloc(calloc(1, sizeof(*p)));

	p->fd = fd;
	p->is_unix = true;
	p->is_operator = who->is_operator;
	snprintf(p->address, sizeof(p->address), "unix:uid=%u", who->uid);
	add_peer(s, p, (struct sockaddr *)&sa, sizeof(sa.sun_family));
}

/* ---- requests ---- */

static void *on_uri(void *cls, const char *uri, struct MHD_Connection *c)
{
	struct peer *p = peer_of(c);

	if (!p)
		return NULL;
	set_idle(p, false);
	peer_set_timer(p, HEAD_MS);
	p->now = exchange_new(p, uri);
	return p->now;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *url,
				  const char *method, const char *version, const char *data,
				  size_t *size, void **context)
{
	struct exchange *x = *context;
	enum MHD_Result r;

	if (!x)
		return MHD_NO;
	exchange_hold(x);
	x->internal->in_mhd = true;
	r = exchange_step(x, c, method, data, size);
	x->internal->in_mhd = false;
	exchange_release(x);
	return r;
}

static void on_completed(void *cls, struct MHD_Connection *c, void **context,
			 enum MHD_RequestTerminationCode code)
{
	struct server *s = cls;
	struct exchange *x = *context;
	struct peer *p = peer_of(c);

	*context = NULL;
	if (x)
		exchange_completed(x, code == MHD_REQUEST_TERMINATED_COMPLETED_OK);
	if (!p)
		return;
	p->now = NULL;
	set_idle(p, true);
	peer_set_timer(p, IDLE_MS);
	if (s->draining)
		peer_cut(p);
}

__attribute__((format(printf, 2, 0))) static void on_log(void *cls, const char *format, va_list ap)
{
	char text[256];

	vsnprintf(text, sizeof(text), format, ap);
	text[strcspn(text, "\n")] = '\0';
	log_debug("http", "message", text);
}

/* ---- life ---- */

static struct MHD_Daemon *start_mhd(struct server *s)
{
	unsigned most = s->api->config->max_connections;

	return MHD_start_daemon(
		MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME |
			MHD_ALLOW_UPGRADE | MHD_USE_ERROR_LOG,
		0, NULL, NULL, on_request, s, MHD_OPTION_EXTERNAL_LOGGER, on_log, s,
		MHD_OPTION_CONNECTION_LIMIT, (most ? most : 65536) + 2 * ACCEPT_AT_ONCE,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL_BYTES,
		MHD_OPTION_CONNECTION_TIMEOUT, 0u, MHD_OPTION_URI_LOG_CALLBACK, on_uri, s,
		MHD_OPTION_NOTIFY_COMPLETED, on_completed, s, MHD_OPTION_NOTIFY_CONNECTION,
		on_connection, s, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
}

struct server *server_new(struct api *api, struct err *e)
{
	struct server *s = must_alloc(calloc(1, sizeof(*s)));
	const union MHD_DaemonInfo *info;

	s->api = api;
	TAILQ_INIT(&s->peers);
	TAILQ_INIT(&s->idle);
	s->timer = (struct loop_timer){.call = run_mhd, .arg = s};
	s->task = (struct loop_task){.call = run_mhd, .arg = s};
	s->by_token = buckets_new();
	s->by_address = buckets_new();
	s->watch = (struct loop_watch){.fd = -1, .events = EPOLLIN, .call = on_mhd_ready, .arg = s};
	s->mhd = start_mhd(s);
	info = s->mhd ? MHD_get_daemon_info(s->mhd, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
	if (info)
		s->watch.fd = info->epoll_fd;
	if (!info || loop_watch(api->loop, &s->watch) < 0) {
		err_sys(e, "cannot start the http server");
		server_free(s);
		return NULL;
	}
	return s;
}

void server_add_door(struct server *s, const struct door *d)
{
	if (s->door_count < DOORS_MAX)
		s->doors[s->door_count++] = d;
}

bool server_address(const struct server *s, char *ret, size_t size)
{
	char host[64], port[8];
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);

	if (!s->listeners || getsockname(s->listeners->watch.fd, (struct sockaddr *)&a, &len) < 0 ||
	    getnameinfo((struct sockaddr *)&a, len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		return false;
	snprintf(ret, size, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
	return true;
}

static void close_listeners(struct server *s)
{
	while (s->listeners) {
		struct http_listener *n = s->listeners;

		s->listeners = n->next;
		loop_unwatch(s->api->loop, &n->watch);
		loop_timer_stop(s->api->loop, &n->again);
		close(n->watch.fd);
		free(n);
	}
}

void server_drain(struct server *s, bool leaves_sockets)
{
	struct peer *p;

	s->draining = true;
	if (leaves_sockets)
		close_listeners(s);
	TAILQ_FOREACH (p, &s->idle, idle)
		peer_cut(p);
}

/* No connection may be suspended or upgraded when libmicrohttpd stops. */
static void cut_all(struct server *s)
{
	struct peer *p;

	TAILQ_FOREACH (p, &s->peers, all) {
		if (p->now) {
			exchange_tell_gone(p->now);
			if (p->now)
				exchange_resume(p->now);
		}
		if (p->upgraded.handle)
			MHD_upgrade_action(take_ptr(p->upgraded.handle), MHD_UPGRADE_ACTION_CLOSE);
		else
			peer_cut(p);
	}
}

void server_free(struct server *s)
{
	if (!s)
		return;
	close_listeners(s);
	if (s->mhd) {
		cut_all(s);
		MHD_run(s->mhd);
		loop_unwatch(s->api->loop, &s->watch);
		MHD_stop_daemon(s->mhd);
	}
	loop_timer_stop(s->api->loop, &s->timer);
	loop_task_remove(s->api->loop, &s->task);
	buckets_free(s->by_token);
	buckets_free(s->by_address);
	free(s);
}

size_t server_busy(const struct server *s)
{
	return s->exchange_count - s->endless_count;
}

bool server_is_draining(const struct server *s)
{
	return s->draining;
}

/* The caller's token is no longer there; the operator on the Unix socket has none. */
static bool is_revoked(const struct exchange *x)
{
	const char *token = caller_id(&x->caller);

	return token[0] && !tokens_has(x->api->tokens, token, (uint64_t)time(NULL));
}

void server_cut_revoked(struct server *s)
{
	struct peer *p, *next;

	for (p = TAILQ_FIRST(&s->peers); p; p = next) {
		next = TAILQ_NEXT(p, all);
		if (p->now && is_revoked(p->now))
			peer_cut(p);
	}
}

size_t server_connections(const struct server *s)
{
	return s->peer_count;
}
