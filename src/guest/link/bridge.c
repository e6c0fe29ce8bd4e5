/*
 * Connects its standard streams to a guest in the same sandbox, and starts that guest if there is
 * none yet.
 */
#include "guest/link/bridge.h"

#include "guest/guest.h"
#include "wire/guest.h"

#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>

#define CHUNK (64u << 10)

/* ---- the guest ---- */

static int print_errno(const char *what)
{
	fprintf(stderr, "cloche-guest: %s: %s\n", what, strerror(errno));
	return -1;
}

static int try_connect(const struct sockaddr_un *address)
{
	auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || connect(fd, (const void *)address, sizeof(*address)) < 0)
		return -1;
	return take_fd(&fd);
}

/* The guest outlives the bridge that started it: its commands go on when a link is lost. */
static void serve(int listener)
{
	struct guest_options o = {
		.listener = GUEST_FD_LISTENER, .notify = -1, .dns = -1, .scratch = -1};
	int null = open("/dev/null", O_RDWR);

	setsid();
	for (int i = 0; i < 3; i++)
		dup2(null, i);
	if (listener != GUEST_FD_LISTENER)
		dup2(listener, GUEST_FD_LISTENER);
	fcntl(GUEST_FD_LISTENER, F_SETFD, FD_CLOEXEC);
	/* Above all the lock, which would be held for good. */
	for (int fd = GUEST_FD_LISTENER + 1; fd < 256; fd++)
		close(fd);
	_exit(guest_serve(&o));
}

static int start_guest(const struct sockaddr_un *address)
{
	auto_close int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	pid_t pid;

	unlink(address->sun_path);
	if (listener < 0 || bind(listener, (const void *)address, sizeof(*address)) < 0 ||
	    listen(listener, 16) < 0)
		return print_errno("cannot make a socket");
	pid = fork();
	if (pid < 0)
		return print_errno("cannot start");
	if (pid == 0)
		serve(listener);
	return 0;
}

/* Two bridges at once start one guest. */
static int reach(const char *directory)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char lock_name[sizeof(address.sun_path) + 8];
	auto_close int lock = -1;
	int fd;

	if ((size_t)snprintf(address.sun_path, sizeof(address.sun_path), "%s/sock", directory) >=
	    sizeof(address.sun_path)) {
		errno = ENAMETOOLONG;
		return print_errno(directory);
	}
	snprintf(lock_name, sizeof(lock_name), "%s/lock", directory);
	lock = open(lock_name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (lock < 0 || flock(lock, LOCK_EX) < 0)
		return print_errno(lock_name);
	fd = try_connect(&address);
	if (fd < 0 && start_guest(&address) == 0)
		fd = try_connect(&address);
	return fd < 0 ? print_errno("cannot reach the guest") : fd;
}

/* ---- bytes ---- */

struct bridge_way {
	int from, to;
	struct buf waiting;
};

/* False: one of the two ends is gone. */
static bool carry(struct bridge_way *w, bool can_read, bool can_write)
{
	bool gone = false;

	if (can_read && w->waiting.len < CHUNK) {
		ssize_t n = read(w->from, buf_reserve(&w->waiting, CHUNK), CHUNK);

		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			return false;
		if (n > 0)
			buf_added(&w->waiting, (size_t)n);
	}
	if (w->waiting.len && (can_read || can_write))
		buf_write(&w->waiting, w->to, &gone);
	return !gone;
}

static void carry_both(int link)
{
	struct bridge_way in = {STDIN_FILENO, link, {0}}, out = {link, STDOUT_FILENO, {0}};
	bool going = true;

	buf_add(&out.waiting, BRIDGE_HELLO, strlen(BRIDGE_HELLO));
	while (going) {
		struct pollfd fds[] = {
			{in.waiting.len < CHUNK ? STDIN_FILENO : -1, POLLIN, 0},
			{link,
			 (short)((out.waiting.len < CHUNK ? POLLIN : 0) |
				 (in.waiting.len ? POLLOUT : 0)),
			 0},
			{out.waiting.len ? STDOUT_FILENO : -1, POLLOUT, 0},
		};
		const short end = POLLHUP | POLLERR;

		if (poll(fds, ARRAY_LEN(fds), -1) < 0 && errno != EINTR)
			break;
		going = carry(&in, fds[0].revents & (POLLIN | end), fds[1].revents & POLLOUT) &&
			carry(&out, fds[1].revents & (POLLIN | end),
			      fds[2].revents & (POLLOUT | end));
	}
	buf_done(&in.waiting);
	buf_done(&out.waiting);
}

int guest_bridge(const char *directory)
{
	auto_close int link = reach(directory);

	if (link < 0)
		return 125;
	for (int i = 0; i < 2; i++)
		fcntl(i, F_SETFL, fcntl(i, F_GETFL) | O_NONBLOCK);
	fcntl(link, F_SETFL, O_NONBLOCK);
	signal(SIGPIPE, SIG_IGN);
	carry_both(link);
	return 0;
}
