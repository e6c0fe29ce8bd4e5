/* Speaks with the service manager (systemd) as its library would: readiness, life, passed sockets. */
#include "base/log.h"
#include "daemon/broker/broker_internal.h"

#include <sys/socket.h>
#include <sys/un.h>

static uint64_t take_number(const char *variable)
{
	const char *text = getenv(variable);
	uint64_t value = text ? strtoull(text, NULL, 10) : 0;

	unsetenv(variable);
	return value;
}

/* Meant for another process unless PID_VARIABLE names this one. */
static bool is_meant(const char *pid_variable, bool dflt)
{
	bool is_set = getenv(pid_variable) != NULL;
	uint64_t pid = take_number(pid_variable);

	return is_set ? pid == (uint64_t)getpid() : dflt;
}

void service_init(struct daemon *d)
{
	struct service_manager *s = &d->service;
	const char *path = getenv("NOTIFY_SOCKET");
	bool sockets_are_ours = is_meant("LISTEN_PID", false);
	bool alive_is_ours = is_meant("WATCHDOG_PID", true);
	uint64_t fds = take_number("LISTEN_FDS"), usec = take_number("WATCHDOG_USEC");

	if (path && (path[0] == '/' || path[0] == '@') && strlen(path) < sizeof(s->socket))
		snprintf(s->socket, sizeof(s->socket), "%s", path);
	unsetenv("NOTIFY_SOCKET");
	unsetenv("LISTEN_FDNAMES");
	if (sockets_are_ours && fds < 1024)
		s->fd_count = (unsigned)fds;
	for (unsigned i = 0; i < s->fd_count; i++)
		fcntl(SERVICE_FD + (int)i, F_SETFD, FD_CLOEXEC);
	/* Twice in the time that it allows. */
	s->alive_ms = alive_is_ours && usec ? usec / 2000 + 1 : 0;
}

void service_notify(struct daemon *d, const char *state)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	size_t len = strlen(d->service.socket);
	auto_close int fd = -1;

	if (!len)
		return;
	memcpy(to.sun_path, d->service.socket, len);
	if (to.sun_path[0] == '@')
		to.sun_path[0] = '\0'; /* the abstract namespace */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || sendto(fd, state, strlen(state), MSG_NOSIGNAL, (void *)&to,
			     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0)
		log_warn("cannot notify the service manager", "error", strerror(errno));
}

static void say_alive(void *arg)
{
	struct daemon *d = arg;

	service_notify(d, "WATCHDOG=1");
	loop_timer_set(d->loop, &d->alive_timer, d->service.alive_ms);
}

void service_watch(struct daemon *d)
{
	d->alive_timer = (struct loop_timer){.call = say_alive, .arg = d};
	if (d->service.alive_ms)
		say_alive(d);
}
