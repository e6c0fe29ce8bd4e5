/*
 * The child shares our memory until its exec (CLONE_VM | CLONE_VFORK): straight-line system calls
 * only, none of which the filter notifies about, since we could not answer. What it has to say is in
 * a page shared by mmap, for kernels that must copy the memory (sandbox/inside/inside.c says when).
 */
#include "guest/exec/spawn.h"

#include "base/exec_path.h"
#include "kern/sys.h"

#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <termios.h>

struct shared {
	const struct spawn *spawn;
	int in, out, err; /* the child's ends; with a terminal: in is its master */
	int setup_errno, exec_errno;
	const char *failed;
};

#define STACK_SIZE (32u << 10)

/* All 64 of them; libc keeps some to itself, so the kernel is asked directly. */
void spawn_reset_signals(void)
{
	static const struct {
		unsigned long handler, flags, restorer, mask; /* 0: SIG_DFL */
	} none;

	for (int sig = 1; sig <= 64; sig++)
		syscall(SYS_rt_sigaction, sig, &none, NULL, sizeof(none.mask));
}

static void unblock_signals(void)
{
	sigset_t empty;

	sigemptyset(&empty);
	sigprocmask(SIG_SETMASK, &empty, NULL);
}

static void fail(struct shared *h, const char *what)
{
	h->setup_errno = errno;
	h->failed = what;
	_exit(127);
}

static void attach_streams(struct shared *h)
{
	if (h->spawn->tty) {
		int slave = ioctl(h->in, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);

		if (slave < 0 || ioctl(slave, TIOCSCTTY, 0) < 0)
			fail(h, "terminal");
		h->in = h->out = h->err = slave;
	}
	/* Our own ends are all above 2. */
	if (dup2(h->in, 0) < 0 || dup2(h->out, 1) < 0 || dup2(h->err, 2) < 0)
		fail(h, "standard streams");
}

static void set_limits(const struct spawn *s)
{
	struct rlimit files, mark = {s->mark, s->mark};

	/* Without an effect (tree.h); nothing is lost if it fails. */
	setrlimit(RLIMIT_RTTIME, &mark);
	if (!s->open_files_soft || getrlimit(RLIMIT_NOFILE, &files) < 0)
		return;
	files.rlim_cur = s->open_files_soft < files.rlim_max ? s->open_files_soft : files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
}

static int child(void *arg)
{
	struct shared *h = arg;

	unblock_signals();
	if (setsid() < 0)
		fail(h, "session");
	attach_streams(h);
	if (chdir(h->spawn->cwd) < 0)
		fail(h, "cwd");
	/* Standard streams are all that it gets. */
	if (h->spawn->prefork && (dup2(h->spawn->prefork, 3) < 0 || fcntl(3, F_SETFD, 0) < 0))
		fail(h, "park");
	sys_close_range(h->spawn->prefork ? 4 : 3, ~0u, 0);
	set_limits(h->spawn);
	umask(022);
	h->exec_errno = exec_path_run(h->spawn->argv, h->spawn->env, NULL, NULL);
	_exit(127);
}

/* ---- our side ---- */

struct ends {
	int ours[3], theirs[3];
};

static int open_terminal(const struct spawn *s, struct ends *n, struct err *e)
{
	/* In a sandbox /dev/ptmx may be a link to this one. */
	static const char *const names[] = {"/dev/pts/ptmx", "/dev/ptmx"};
	struct winsize size = {.ws_row = (unsigned short)(s->rows ? s->rows : 24),
			       .ws_col = (unsigned short)(s->cols ? s->cols : 80)};
	int fd = -1, unlock = 0;

	for (size_t i = 0; fd < 0 && i < ARRAY_LEN(names); i++)
		fd = open(names[i], O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || ioctl(fd, TIOCSPTLCK, &unlock) < 0) {
		close_fd(&fd);
		return err_sys(e, "cannot open a terminal");
	}
	ioctl(fd, TIOCSWINSZ, &size);
	n->theirs[0] = fd;
	return 0;
}

static int open_pipe(struct ends *n, int which, struct err *e)
{
	if (io_open_stream(which, &n->ours[which], &n->theirs[which]) < 0)
		return err_sys(e, "cannot make a pipe");
	return 0;
}

static int open_ends(const struct spawn *s, struct ends *n, struct err *e)
{
	if (s->tty)
		return open_terminal(s, n, e);
	if (s->no_stdin) {
		n->theirs[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		if (n->theirs[0] < 0)
			return err_sys(e, "cannot open /dev/null");
	} else if (open_pipe(n, 0, e) < 0) {
		return -1;
	}
	if (open_pipe(n, 1, e) < 0)
		return -1;
	return s->merge ? 0 : open_pipe(n, 2, e);
}

static void close_all(int *fds)
{
	for (int i = 0; i < 3; i++)
		close_fd(&fds[i]);
}

int spawn_open_streams(bool no_stdin, int ours[3], int theirs[3], struct err *e)
{
	struct ends n = {{-1, -1, -1}, {-1, -1, -1}};
	const struct spawn plain = {.no_stdin = no_stdin};

	if (open_ends(&plain, &n, e) < 0) {
		close_all(n.ours);
		close_all(n.theirs);
		return -1;
	}
	memcpy(ours, n.ours, sizeof(n.ours));
	memcpy(theirs, n.theirs, sizeof(n.theirs));
	return 0;
}

static void pack_texts(char *const *texts, struct buf *ret)
{
	for (; *texts; texts++)
		buf_add(ret, *texts, strlen(*texts) + 1);
}

void spawn_pack_order(const char *cwd, char *const *argv, char *const *env, struct buf *ret)
{
	char text[16];
	int argc = 0;

	while (argv[argc])
		argc++;
	snprintf(text, sizeof(text), "%d", argc);
	pack_texts((char *const[]){(char *)cwd, text, NULL}, ret);
	pack_texts(argv, ret);
	pack_texts(env, ret);
}

/* The stack is new each time: sanitizers remember of one what was left there without a return. */
static pid_t start(struct shared *h)
{
	auto_free char *stack = must_alloc(malloc(STACK_SIZE));
	char *top = (char *)((uintptr_t)(stack + STACK_SIZE) & ~(uintptr_t)15);

	return sys_clone_vfork(child, top, h);
}

int spawn(const struct spawn *s, struct spawned *ret, struct err *e)
{
	struct ends n = {{-1, -1, -1}, {-1, -1, -1}};
	struct shared *h =
		mmap(NULL, sizeof(*h), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid = -1;

	if (h == MAP_FAILED)
		return err_sys(e, "cannot start a process");
	if (open_ends(s, &n, e) == 0) {
		*h = (struct shared){.spawn = s,
				     .in = n.theirs[0],
				     .out = n.theirs[1],
				     .err = s->merge ? n.theirs[1] : n.theirs[2]};
		pid = start(h);
		if (pid < 0)
			err_sys(e, "cannot start a process");
	}
	if (pid >= 0 && h->failed) {
		errno = h->setup_errno;
		err_sys(e, "%s: %s", h->failed, str_equal(h->failed, "cwd") ? s->cwd : "failed");
		pid = -1; /* it is reaped like any orphan */
	}
	*ret = (struct spawned){.pid = pid, .exec_errno = h->exec_errno};
	munmap(h, sizeof(*h));
	if (pid >= 0 && s->tty)
		n.ours[0] = n.ours[1] = take_fd(&n.theirs[0]);
	close_all(n.theirs);
	if (pid < 0) {
		close_all(n.ours);
		return -1;
	}
	ret->in = n.ours[0];
	ret->out = n.ours[1];
	ret->err = n.ours[2];
	return 0;
}
