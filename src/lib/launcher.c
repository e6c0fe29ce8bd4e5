/*
 * Starts the launcher as a child and reads its output, without side effects in the calling
 * process.
 */
#include "lib/launcher.h"

#include "base/exec_path.h"

#include <dlfcn.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;

enum {
	ABOVE_STANDARD = 10, /* our own fds stay above the numbers that the child gets */
	OUT_MAX = 256 << 20,
	ERR_MAX = 64 << 10,
	DEADLINE_MS = 3000, /* between asking it to end and killing it */
};

/* ---- finding it ---- */

static bool is_program(const char *path)
{
	return access(path, X_OK) == 0;
}

/* Where this library, or the program that it is linked into, was loaded from. */
static bool find_beside(char *ret)
{
	static const char *const places[] = {"cloche", "../bin/cloche", "../../bin/cloche",
					     "../cloche"};
	char dir[PATH_MAX];
	Dl_info info;
	char *slash;

	if (!dladdr((void *)launcher_find, &info) || !info.dli_fname ||
	    !realpath(info.dli_fname, dir))
		return false;
	slash = strrchr(dir, '/');
	if (!slash)
		return false;
	*slash = '\0';
	for (size_t i = 0; i < ARRAY_LEN(places); i++)
		if (snprintf(ret, PATH_MAX, "%s/%s", dir, places[i]) < PATH_MAX && is_program(ret))
			return true;
	return false;
}

static bool find_in_path(char *ret)
{
	const char *dirs = secure_getenv("PATH"), *path;

	if (!dirs)
		dirs = EXEC_PATH_DEFAULT;
	while ((path = exec_path_next("cloche", &dirs, ret)))
		if (is_program(path))
			return true;
	return false;
}

int launcher_find(char *ret)
{
	const char *named = secure_getenv("CLOCHE");

	if (named && *named) {
		snprintf(ret, PATH_MAX, "%s", named);
		return is_program(ret) ? 0 : -1;
	}
	return find_beside(ret) || find_in_path(ret) ? 0 : -1;
}

/* ---- fds ---- */

/* Moves an fd above the numbers of the child's streams; closes it on failure. */
static int move_up(int fd)
{
	int moved = fcntl(fd, F_DUPFD_CLOEXEC, ABOVE_STANDARD);

	close(fd);
	return moved;
}

static int make_pipe(int *ret_read, int *ret_write)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -1;
	*ret_read = move_up(ends[0]);
	*ret_write = move_up(ends[1]);
	return *ret_read < 0 || *ret_write < 0 ? -1 : 0;
}

/* The pipe holds all of it, so nothing is written while the child runs, and no SIGPIPE can come. */
static int pipe_input(const void *data, size_t len)
{
	int ends[2] = {-1, -1}, result = -1;

	if (make_pipe(&ends[0], &ends[1]) == 0 &&
	    (len <= 4096 || fcntl(ends[1], F_SETPIPE_SZ, (int)len) >= (int)len) &&
	    fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0)
		result = io_write_all(ends[1], data, len);
	close_fd(&ends[1]);
	if (result < 0)
		close_fd(&ends[0]);
	return ends[0];
}

/* Sealed and read-only, so that the sandbox cannot store or pass on anything in it. */
static int file_input(const void *data, size_t len)
{
	auto_close int fd = memfd_create("cloche-input", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int result;

	if (fd < 0 || io_write_all(fd, data, len) < 0 || io_seal(fd) < 0)
		return -1;
	result = io_reopen(fd, O_RDONLY);
	return result < 0 ? -1 : move_up(result);
}

int launcher_input(const void *data, size_t len, bool as_pipe)
{
	int fd;

	if (as_pipe)
		return len > INT_MAX ? (errno = EFBIG, -1) : pipe_input(data, len);
	if (len > 0)
		return file_input(data, len);
	fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -1 : move_up(fd);
}

/* ---- running it ---- */

struct child {
	pid_t pid;
	int pidfd; /* -1: somebody has reaped it already */
	int out, err;
};

static int set_actions(posix_spawn_file_actions_t *a, const struct launch *l, int out, int err)
{
	int rc = posix_spawn_file_actions_adddup2(a, l->in, 0);

	rc = rc ? rc : posix_spawn_file_actions_adddup2(a, out, 1);
	rc = rc ? rc : posix_spawn_file_actions_adddup2(a, err, 2);
	if (l->extra >= 0)
		rc = rc ? rc : posix_spawn_file_actions_adddup2(a, l->extra, LAUNCHER_EXTRA_FD);
	/* Files of the caller that lack CLOEXEC must not reach the launcher. */
	return rc ? rc
		  : posix_spawn_file_actions_addclosefrom_np(
			    a, l->extra >= 0 ? LAUNCHER_EXTRA_FD + 1 : LAUNCHER_EXTRA_FD);
}

static int set_signals(posix_spawnattr_t *attr)
{
	sigset_t none, all;
	int rc;

	sigemptyset(&none);
	sigfillset(&all);
	rc = posix_spawnattr_setsigmask(attr, &none);
	rc = rc ? rc : posix_spawnattr_setsigdefault(attr, &all);
	return rc ? rc
		  : posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

static int spawn_launcher(const char *path, const struct launch *l, int out, int err,
			  pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	int rc;

	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attr);
	rc = set_actions(&actions, l, out, err);
	rc = rc ? rc : set_signals(&attr);
	rc = rc ? rc : posix_spawn(ret_pid, path, &actions, &attr, l->argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
	errno = rc;
	return rc ? -1 : 0;
}

static int start_child(struct child *c, const char *path, const struct launch *l)
{
	int out = -1, err = -1, result = -1, errnum;

	*c = (struct child){.pidfd = -1, .out = -1, .err = -1};
	if (make_pipe(&c->out, &out) == 0 && make_pipe(&c->err, &err) == 0)
		result = spawn_launcher(path, l, out, err, &c->pid);
	errnum = errno;
	close_fd(&out);
	close_fd(&err);
	if (result == 0)
		c->pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
	errno = errnum;
	return result;
}

/* Makes room for more; false if memory or the limit is used up. */
static bool bytes_make_room(struct bytes *b, size_t max)
{
	size_t room = b->room ? b->room * 2 : 8192;
	char *data;

	if (b->room - b->len > 1)
		return true;
	if (b->len >= max)
		return false;
	data = realloc(b->data, room);
	if (!data)
		return false;
	b->data = data;
	b->room = room;
	return true;
}

/* Reads once. Closes the fd at its end. False: out of room. */
static bool read_some(int *fd, struct bytes *b, size_t max)
{
	ssize_t n;

	if (!bytes_make_room(b, max))
		return false;
	n = read(*fd, b->data + b->len, b->room - b->len - 1);
	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return true;
	if (n <= 0) {
		close_fd(fd);
		return true;
	}
	b->len += (size_t)n;
	b->data[b->len] = '\0';
	return true;
}

/* Keeps the first part of stderr. The rest is read and dropped, so that the child never blocks. */
static void read_errors(int *fd, struct bytes *b)
{
	char dropped[4096];
	ssize_t n;

	if (read_some(fd, b, ERR_MAX))
		return;
	n = read(*fd, dropped, sizeof(dropped));
	if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
		close_fd(fd);
}

static void signal_child(const struct child *c, int sig)
{
	if (c->pidfd >= 0)
		syscall(SYS_pidfd_send_signal, c->pidfd, sig, NULL, 0);
}

/*
 * Reads until the launcher has ended. On SIGTERM it ends its sandbox and then itself; if it does
 * not, it is killed, and the kernel kills the sandbox with it.
 */
static enum launch_end read_until_end(struct child *c, int cancel, struct bytes *out,
				      struct bytes *err)
{
	enum launch_end end = LAUNCH_ENDED;
	bool ended = false, asked = false;

	while (!ended && (c->out >= 0 || c->err >= 0)) {
		struct pollfd p[] = {{.fd = c->out, .events = POLLIN},
				     {.fd = c->err, .events = POLLIN},
				     {.fd = asked ? -1 : cancel, .events = POLLIN},
				     {.fd = c->pidfd, .events = POLLIN}};
		int n = poll(p, ARRAY_LEN(p), asked ? DEADLINE_MS : -1);

		if (n < 0 && errno != EINTR)
			return LAUNCH_FAILED;
		if (n < 0)
			continue;
		if (n == 0)
			signal_child(c, SIGKILL);
		/*
		 * Notes the end before reading the pipes: everything in them was written before
		 * the end.
		 */
		ended = p[3].revents != 0;
		if (p[2].revents) {
			end = LAUNCH_CANCELLED;
			asked = true;
			signal_child(c, SIGTERM);
		}
		if (p[0].revents && !read_some(&c->out, out, OUT_MAX)) {
			end = LAUNCH_TOO_MUCH;
			asked = true;
			close_fd(&c->out);
			signal_child(c, SIGTERM);
		}
		if (p[1].revents)
			read_errors(&c->err, err);
	}
	return end;
}

/* Reads what is left in the pipes without waiting, since other processes may hold them open. */
static void read_rest(struct child *c, struct bytes *out, struct bytes *err)
{
	for (int round = 0; c->out >= 0 || c->err >= 0; round++) {
		struct pollfd p[] = {{.fd = c->out, .events = POLLIN},
				     {.fd = c->err, .events = POLLIN}};

		if (poll(p, ARRAY_LEN(p), 0) <= 0)
			break;
		if (p[0].revents && !read_some(&c->out, out, OUT_MAX))
			close_fd(&c->out);
		if (p[1].revents)
			read_errors(&c->err, err);
	}
}

/* ECHILD: the calling program reaps all children itself. That is fine: only the record counts. */
static void reap_child(const struct child *c)
{
	idtype_t type = c->pidfd >= 0 ? P_PIDFD : P_PID;
	id_t id = c->pidfd >= 0 ? (id_t)c->pidfd : (id_t)c->pid;
	siginfo_t info;

	while (waitid(type, id, &info, WEXITED) < 0 && errno == EINTR)
		;
}

enum launch_end launcher_run(const char *path, const struct launch *l, struct bytes *out,
			     struct bytes *err)
{
	enum launch_end end;
	struct child c;
	int errnum;

	if (start_child(&c, path, l) < 0) {
		errnum = errno;
		close_fd(&c.out);
		close_fd(&c.err);
		errno = errnum;
		return LAUNCH_FAILED;
	}
	end = read_until_end(&c, l->cancel, out, err);
	if (end == LAUNCH_FAILED)
		signal_child(&c, SIGKILL);
	read_rest(&c, out, err);
	close_fd(&c.out);
	close_fd(&c.err);
	reap_child(&c);
	close_fd(&c.pidfd);
	return end;
}
