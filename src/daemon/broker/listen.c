/* Opens the sockets that clients connect to, and checks who connects to the Unix sockets. */
#include "base/log.h"
#include "daemon/broker/broker_internal.h"
#include "kern/sys.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#define BACKLOG 1024
#define PAUSE_MS 20

/* ---- peers ---- */

static int peer_pidfd(int fd, const struct ucred *who)
{
	int pidfd = -1;
	socklen_t size = sizeof(pidfd);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0)
		return pidfd;
	/* Before Linux 6.5: by its pid. refuse_peer checks in the end that the process still lives. */
	return (int)syscall(SYS_pidfd_open, who->pid, 0);
}

/*
 * A rootless sandbox has its caller's uid, so the uid alone proves nothing: a process in other namespaces
 * than the daemon's is refused (rule 7). Its /proc entry tells the namespaces; the process must still live
 * after they were read.
 */
static const char *refuse_peer(int fd, const struct ucred *who)
{
	static const char *const names[] = {"user", "pid", "mnt"};
	auto_close int pidfd = peer_pidfd(fd, who);

	if (pidfd < 0 || who->pid <= 0)
		return "its process cannot be found";
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		char path[64];
		struct stat own, its;

		snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
		if (stat(path, &own) < 0)
			return "our own namespaces cannot be seen";
		snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)who->pid, names[i]);
		if (stat(path, &its) < 0)
			return "its namespaces cannot be seen";
		if (own.st_ino != its.st_ino || own.st_dev != its.st_dev)
			return "it lives in other namespaces";
	}
	return sys_pidfd_send_signal(pidfd, 0) < 0 && errno == ESRCH ? "its process has gone"
								     : NULL;
}

static void take_peer(const struct broker_listener *l, int fd)
{
	struct daemon *d = l->d;
	struct ipc m = {.type = IPC_PEER};
	socklen_t size = sizeof(struct ucred);
	const char *why;
	struct ucred who;
	char uid[16];

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) < 0)
		return;
	why = refuse_peer(fd, &who);
	if (why) {
		snprintf(uid, sizeof(uid), "%u", who.uid);
		log_warn("peer refused", "uid", uid, "why", why);
		/* A peer that tries again and again must not fill the log. */
		if (now_ns() - d->peer_noted_ns > 1000000000)
			daemon_note(d, "peer", uid, "deny", why);
		d->peer_noted_ns = now_ns();
		return;
	}
	m.peer = (struct ipc_peer){.uid = who.uid, .gid = who.gid, .pid = (uint32_t)who.pid};
	m.peer.is_operator = who.uid == geteuid();
	m.peer.is_docker = l->is_docker;
	front_news(d, &m, fd);
}

static void listen_again(void *arg)
{
	struct broker_listener *l = arg;

	loop_watch(l->d->loop, &l->watch);
}

/* Clients wait in the backlog meanwhile, and the loop is not woken for them. */
static void pause_listening(struct broker_listener *l)
{
	loop_unwatch(l->d->loop, &l->watch);
	loop_timer_set(l->d->loop, &l->again, PAUSE_MS);
}

static void on_peer(void *arg, uint32_t events)
{
	struct broker_listener *l = arg;

	for (int i = 0; i < 64; i++) {
		auto_close int fd = -1;

		/* No front is ready, or the front does not keep up. */
		if (front_is_slow(l->d)) {
			pause_listening(l);
			return;
		}
		fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
			pause_listening(l);
		if (fd < 0)
			return;
		take_peer(l, fd);
	}
}

/* ---- sockets ---- */

static int watch_unix(struct broker_listener *l, struct err *e)
{
	l->is_unix = true;
	l->again = (struct loop_timer){.call = listen_again, .arg = l};
	l->watch = (struct loop_watch){.fd = l->fd, .events = EPOLLIN, .call = on_peer, .arg = l};
	return loop_watch(l->d->loop, &l->watch) < 0 ? err_sys(e, "cannot watch %s", l->path) : 0;
}

static int bind_unix(struct broker_listener *l, const char *path, struct err *e)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	if (strlen(path) >= sizeof(address.sun_path))
		return err_set(e, ERR_INVALID, "listen: %s is too long", path);
	memcpy(address.sun_path, path, strlen(path));
	l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0)
		return err_sys(e, "cannot create a socket");
	/* The lock on the directories proves that no other daemon uses this socket. */
	unlink(path);
	if (bind(l->fd, (void *)&address, sizeof(address)) < 0 || listen(l->fd, BACKLOG) < 0)
		return err_sys(e, "cannot listen on %s", path);
	/* The peer check and tokens decide who may do what, not the mode of the socket. */
	if (chmod(path, 0666) < 0)
		return err_sys(e, "cannot open %s for everybody", path);
	snprintf(l->path, sizeof(l->path), "%s", path);
	return watch_unix(l, e);
}

static int parse_address(const char *text, struct sockaddr_storage *ret, socklen_t *ret_size)
{
	struct sockaddr_in *v4 = (void *)ret;
	struct sockaddr_in6 *v6 = (void *)ret;
	const char *colon = strrchr(text, ':');
	bool six = text[0] == '[';
	char host[CONFIG_ADDRESS];
	uint16_t port;

	if (!colon || (size_t)(colon - text) >= sizeof(host))
		return -1;
	port = htons((uint16_t)atoi(colon + 1));
	snprintf(host, sizeof(host), "%.*s", (int)(colon - text) - (six ? 2 : 0), text + six);
	*ret = (struct sockaddr_storage){0};
	if (six) {
		*v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = port};
		*ret_size = sizeof(*v6);
		return inet_pton(AF_INET6, host, &v6->sin6_addr) == 1 ? 0 : -1;
	}
	*v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = port};
	*ret_size = sizeof(*v4);
	return inet_pton(AF_INET, host, &v4->sin_addr) == 1 ? 0 : -1;
}

/* The address of a TCP socket, with the port that the kernel chose. */
static void describe_address(struct broker_listener *l)
{
	struct sockaddr_storage address = {0};
	const struct sockaddr_in *v4 = (const void *)&address;
	const struct sockaddr_in6 *v6 = (const void *)&address;
	socklen_t size = sizeof(address);
	char host[INET6_ADDRSTRLEN] = "";

	if (getsockname(l->fd, (void *)&address, &size) < 0)
		return;
	if (address.ss_family == AF_INET6) {
		inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
		snprintf(l->path, sizeof(l->path), "[%s]:%u", host, ntohs(v6->sin6_port));
	} else {
		inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
		snprintf(l->path, sizeof(l->path), "%s:%u", host, ntohs(v4->sin_port));
	}
}

static int bind_tcp(struct broker_listener *l, const char *text, struct err *e)
{
	struct sockaddr_storage address;
	socklen_t size;
	int on = 1;

	if (parse_address(text, &address, &size) < 0)
		return err_set(e, ERR_INVALID, "listen: '%s' is no address", text);
	l->fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0)
		return err_sys(e, "cannot create a socket");
	setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (bind(l->fd, (void *)&address, size) < 0 || listen(l->fd, BACKLOG) < 0)
		return err_sys(e, "cannot listen on %s", text);
	describe_address(l);
	return 0;
}

/* For people and tests: the addresses, one per line. */
static void write_addresses(const struct daemon *d)
{
	auto_close int fd =
		openat(d->runtime, "listen", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	for (size_t i = 0; fd >= 0 && i < d->listener_count; i++)
		dprintf(fd, "%s%s\n", d->listeners[i].is_unix ? "unix:" : "", d->listeners[i].path);
}

/* A socket that the service manager has opened. */
static int take_passed(struct broker_listener *l, int fd, struct err *e)
{
	struct sockaddr_storage address = {0};
	const struct sockaddr_un *un = (const void *)&address;
	socklen_t size = sizeof(address), word = sizeof(int);
	int type = 0, listens = 0;

	l->fd = fd;
	l->is_passed = true;
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	if (getsockname(fd, (void *)&address, &size) < 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &word) < 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &word) < 0)
		return err_sys(e, "cannot use the socket that was passed as fd %d", fd);
	if (type != SOCK_STREAM || !listens)
		return err_set(e, ERR_INVALID, "fd %d was passed, but is no listening socket", fd);
	if (address.ss_family == AF_UNIX) {
		snprintf(l->path, sizeof(l->path), "%.107s", un->sun_path);
		return watch_unix(l, e);
	}
	describe_address(l);
	return 0;
}

static int add_listener(struct daemon *d, const char *text, int passed, struct err *e)
{
	struct broker_listener *l = &d->listeners[d->listener_count];
	int rc;

	*l = (struct broker_listener){.d = d, .fd = -1};
	rc = passed >= 0		 ? take_passed(l, passed, e)
	     : str_starts(text, "unix:") ? bind_unix(l, text + 5, e)
					 : bind_tcp(l, text, e);
	if (rc < 0) {
		close_fd(&l->fd);
		return -1;
	}
	d->listener_count++;
	log_info("listening", "address", l->path);
	return 0;
}

/* The sockets that were passed take the place of those of the settings. */
static int open_passed(struct daemon *d, struct err *e)
{
	char path[CONFIG_PATH], text[CONFIG_PATH + 8];
	bool has_unix = false;

	if (d->service.fd_count >= LISTENERS)
		return err_set(e, ERR_INVALID, "more than %d sockets were passed", LISTENERS - 1);
	d->config->sockets_are_passed = true;
	for (unsigned i = 0; i < d->service.fd_count; i++) {
		if (add_listener(d, NULL, SERVICE_FD + (int)i, e) < 0)
			return -1;
		has_unix |= d->listeners[i].is_unix;
	}
	config_socket_path(d->config, path, sizeof(path));
	snprintf(text, sizeof(text), "unix:%s", path);
	return has_unix ? 0 : add_listener(d, text, -1, e);
}

static int open_configured(struct daemon *d, struct err *e)
{
	for (uint32_t i = 0; i < d->config->listen_count; i++)
		if (add_listener(d, d->config->listen[i], -1, e) < 0)
			return -1;
	return 0;
}

static int open_docker(struct daemon *d, struct err *e)
{
	char path[CONFIG_PATH], text[CONFIG_PATH + 8];

	config_docker_path(d->config, path, sizeof(path));
	snprintf(text, sizeof(text), "unix:%s", path);
	if (add_listener(d, text, -1, e) < 0)
		return -1;
	d->listeners[d->listener_count - 1].is_docker = true;
	return 0;
}

int listeners_open(struct daemon *d, struct err *e)
{
	if ((d->service.fd_count ? open_passed : open_configured)(d, e) < 0 ||
	    (d->config->docker && open_docker(d, e) < 0))
		return -1;
	write_addresses(d);
	return 0;
}

static void close_listener(struct broker_listener *l)
{
	if (l->is_unix) {
		loop_unwatch(l->d->loop, &l->watch);
		loop_timer_stop(l->d->loop, &l->again);
	}
	if (l->is_unix && !l->is_passed && l->fd >= 0)
		unlink(l->path);
	close_fd(&l->fd);
}

void listeners_leave(struct daemon *d)
{
	for (size_t i = 0; i < d->listener_count; i++)
		if (d->listeners[i].is_passed)
			close_listener(&d->listeners[i]);
}

void listeners_close(struct daemon *d)
{
	for (size_t i = 0; i < d->listener_count; i++)
		close_listener(&d->listeners[i]);
	d->listener_count = 0;
}
