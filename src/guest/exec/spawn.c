/*
 * Starts the process of a command. The child shares our memory until its exec (CLONE_VM |
 * CLONE_VFORK): it makes system calls only, none of which the filter notifies about, since we could
 * not answer. Its errors are in a page shared by mmap, for kernels that must copy the memory
 * (sandbox/inside/inside.c says when).
 */
#include "guest/exec/spawn.h"

#include "base/exec_path.h"
#include "kern/seccomp.h"
#include "kern/sys.h"

#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <termios.h>

struct shared {
	const struct spawn *spawn;
	int in, out, err; /* the child's ends; with a terminal: in is its master */
	int setup_errno, exec_errno;
	const char *failed;
};

#define STACK_SIZE (32u << 10)

/* All 64 of them, by direct system calls: libc reserves some for itself. */
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

static void end_child(struct shared *h, const char *what)
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
			end_child(h, "terminal");
		h->in = h->out = h->err = slave;
	}
	/* All these fds are above 2. */
	if (dup2(h->in, 0) < 0 || dup2(h->out, 1) < 0 || dup2(h->err, 2) < 0)
		end_child(h, "standard streams");
}

static void set_limits(const struct spawn *s)
{
	struct rlimit files;

	if (!s->open_files_soft || getrlimit(RLIMIT_NOFILE, &files) < 0)
		return;
	files.rlim_cur = s->open_files_soft < files.rlim_max ? s->open_files_soft : files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
}

/* By system calls: the C library would change the ids of all threads, and the memory is shared. */
static void become_user(struct shared *h)
{
	uint32_t id = h->spawn->uid;

	if (id && (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, id, id, id) < 0 ||
		   syscall(SYS_setresuid, id, id, id) < 0))
		end_child(h, "user");
}

/* The mark has no effect on its own (tree.h), and the command cannot change it. */
static void set_mark(struct shared *h)
{
	const struct rlimit mark = {h->spawn->mark, h->spawn->mark};
	struct err e;

	/* EPERM: this guest is itself a command of another sandbox, and keeps that one's mark. */
	if ((setrlimit(RLIMIT_RTTIME, &mark) < 0 && errno != EPERM) ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    seccomp_load(&seccomp_profile_mark, NULL, &e) < 0)
		end_child(h, "mark");
}

static void narrow(struct shared *h)
{
	struct err e;

	if (seccomp_own_apply(&e) < 0)
		end_child(h, "seccomp");
}

static int child(void *arg)
{
	struct shared *h = arg;

	unblock_signals();
	if (setsid() < 0)
		end_child(h, "session");
	attach_streams(h);
	/* The child gets its standard streams, and a prefork its socket; nothing else. */
	if (h->spawn->prefork && (dup2(h->spawn->prefork, 3) < 0 || fcntl(3, F_SETFD, 0) < 0))
		end_child(h, "prefork");
	sys_close_range(h->spawn->prefork ? 4 : 3, ~0u, 0);
	/* Not before: /proc/self/fd/7 would lead to what the guest has open. */
	if (chdir(h->spawn->cwd) < 0)
		end_child(h, "cwd");
	set_limits(h->spawn);
	become_user(h);
	set_mark(h);
	narrow(h);
	umask(022);
	h->exec_errno = exec_path_run(h->spawn->argv, h->spawn->env, NULL, NULL);
	_exit(127);
}

/* ---- our side ---- */

static int open_terminal(const struct spawn *s, int *ret_master, struct err *e)
{
	/* In a sandbox /dev/ptmx may be a link to /dev/pts/ptmx. */
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
	*ret_master = fd;
	return 0;
}

void spawn_close(int *fds, int count)
{
	for (int i = 0; i < count; i++)
		close_fd(&fds[i]);
}

int spawn_open_streams(const struct spawn *s, int ours[3], int theirs[3], struct err *e)
{
	memset(ours, -1, 3 * sizeof(*ours));
	memset(theirs, -1, 3 * sizeof(*theirs));
	if (s->tty)
		return open_terminal(s, &theirs[0], e);
	for (int i = 0; i < (s->merge ? 2 : 3); i++) {
		bool null = i == 0 && s->no_stdin;

		if (null ? (theirs[i] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0
			 : io_open_stream(i, &ours[i], &theirs[i]) == 0)
			continue;
		err_sys(e, null ? "cannot open /dev/null" : "cannot make a pipe");
		spawn_close(ours, 3);
		spawn_close(theirs, 3);
		return -1;
	}
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

/* A new stack each time: sanitizers keep state about frames of an old one that never returned. */
static pid_t clone_child(struct shared *h)
{
	auto_free char *stack = must_alloc(malloc(STACK_SIZE));
	char *top = (char *)((uintptr_t)(stack + STACK_SIZE) & ~(uintptr_t)15);

	return sys_clone_vfork(child, top, h);
}

int spawn(const struct spawn *s, struct spawned *ret, struct err *e)
{
	int ours[3], theirs[3];
	struct shared *h =
		mmap(NULL, sizeof(*h), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid = -1;

	if (h == MAP_FAILED)
		return err_sys(e, "cannot start a process");
	if (spawn_open_streams(s, ours, theirs, e) == 0) {
		*h = (struct shared){.spawn = s,
				     .in = theirs[0],
				     .out = theirs[1],
				     .err = s->merge ? theirs[1] : theirs[2]};
		pid = clone_child(h);
		if (pid < 0)
			err_sys(e, "cannot start a process");
	}
	if (pid >= 0 && h->failed) {
		errno = h->setup_errno;
		err_sys(e, "%s: %s", h->failed, str_equal(h->failed, "cwd") ? s->cwd : "failed");
		pid = -1; /* the child is reaped like any orphan */
	}
	*ret = (struct spawned){.pid = pid, .exec_errno = h->exec_errno};
	munmap(h, sizeof(*h));
	if (pid >= 0 && s->tty)
		ours[0] = ours[1] = take_fd(&theirs[0]);
	spawn_close(theirs, 3);
	if (pid < 0) {
		spawn_close(ours, 3);
		return -1;
	}
	ret->in = ours[0];
	ret->out = ours[1];
	ret->err = ours[2];
	return 0;
}
