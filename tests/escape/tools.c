/* What the cases share: verdicts, canaries, small file work. */
#include "probe.h"

#include "base/auto.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct {
	int err;
	const char *name;
} errno_names[] = {
#define E(x)                                                                                       \
	{                                                                                          \
		x, #x                                                                              \
	}
	E(EPERM),      E(ENOENT),	   E(ESRCH),	       E(EINTR),	E(EIO),
	E(ENXIO),      E(E2BIG),	   E(ENOEXEC),	       E(EBADF),	E(ECHILD),
	E(EAGAIN),     E(ENOMEM),	   E(EACCES),	       E(EFAULT),	E(ENOTBLK),
	E(EBUSY),      E(EEXIST),	   E(EXDEV),	       E(ENODEV),	E(ENOTDIR),
	E(EISDIR),     E(EINVAL),	   E(ENFILE),	       E(EMFILE),	E(ENOTTY),
	E(ETXTBSY),    E(EFBIG),	   E(ENOSPC),	       E(ESPIPE),	E(EROFS),
	E(EMLINK),     E(EPIPE),	   E(ENAMETOOLONG),    E(ENOSYS),	E(ENOTEMPTY),
	E(ELOOP),      E(ENODATA),	   E(EOVERFLOW),       E(EUSERS),	E(ENOTSOCK),
	E(EPROTOTYPE), E(EPROTONOSUPPORT), E(ESOCKTNOSUPPORT), E(EOPNOTSUPP),	E(EAFNOSUPPORT),
	E(EADDRINUSE), E(EADDRNOTAVAIL),   E(ENETDOWN),	       E(ENETUNREACH),	E(ECONNRESET),
	E(ENOTCONN),   E(ETIMEDOUT),	   E(ECONNREFUSED),    E(EHOSTUNREACH), E(EINPROGRESS),
	E(ESTALE),     E(EDQUOT),	   E(ENOKEY),	       E(EKEYREVOKED),	E(EKEYEXPIRED),
#undef E
};

const char *errno_name(int err)
{
	static char number[16];

	for (size_t i = 0; i < ARRAY_LEN(errno_names); i++)
		if (errno_names[i].err == err)
			return errno_names[i].name;
	snprintf(number, sizeof(number), "errno %d", err);
	return number;
}

__attribute__((format(printf, 3, 0))) static void set_verdict(struct probe *p, enum verdict v,
							      const char *fmt, va_list ap)
{
	if (v < p->verdict)
		return;
	p->verdict = v;
	vsnprintf(p->detail, sizeof(p->detail), fmt, ap);
}

#define VERDICT_FUNCTION(name, v)                                                                  \
	void name(struct probe *p, const char *fmt, ...)                                           \
	{                                                                                          \
		va_list ap;                                                                        \
                                                                                                   \
		va_start(ap, fmt);                                                                 \
		set_verdict(p, v, fmt, ap);                                                        \
		va_end(ap);                                                                        \
	}
VERDICT_FUNCTION(refused, VERDICT_REFUSED)
VERDICT_FUNCTION(cannot_tell, VERDICT_CANNOT_TELL)
VERDICT_FUNCTION(got_through, VERDICT_GOT_THROUGH)

void not_here(struct probe *p, const char *what)
{
	cannot_tell(p, "not here: %s", what);
}

bool among(int err, const int *errs)
{
	for (; *errs; errs++)
		if (*errs == err)
			return true;
	return false;
}

void judge(struct probe *p, const char *what, long rc, const int *errs)
{
	int err = errno;

	if (rc >= 0)
		got_through(p, "%s succeeded", what);
	else if (among(err, errs))
		refused(p, "%s: %s", what, errno_name(err));
	else
		cannot_tell(p, "%s: unexpected %s", what, errno_name(err));
}

#define MAX_CANARIES 64

static struct {
	char *name;
	const char *value;
} canaries[MAX_CANARIES];
static size_t canary_count;

void canary_add(char *text)
{
	char *eq = strchr(text, '=');

	if (canary_count == MAX_CANARIES)
		exit(2);
	*eq = '\0';
	canaries[canary_count].name = text;
	canaries[canary_count++].value = eq + 1;
}

const char *given(const char *name)
{
	for (size_t i = 0; i < canary_count; i++)
		if (!strcmp(canaries[i].name, name))
			return canaries[i].value;
	return NULL;
}

const char *need(struct probe *p, const char *name)
{
	const char *value = given(name);

	if (!value)
		cannot_tell(p, "the runner gave no %s", name);
	return value;
}

const char *fmt_path(const char *fmt, ...)
{
	static char ring[4][4096];
	static unsigned at;
	char *buf = ring[at++ % ARRAY_LEN(ring)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf, sizeof(ring[0]), fmt, ap);
	va_end(ap);
	return buf;
}

const char *scratch_dir(struct probe *p)
{
	static char made[4096];
	const char *home = getenv("HOME");
	const char *const places[] = {"/tmp", home ? home : "/", ".", "/dev/shm", "/var/tmp"};

	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		snprintf(made, sizeof(made), "%s/cloche-probe-XXXXXX", places[i]);
		if (mkdtemp(made))
			return made;
	}
	cannot_tell(p, "no writable directory: %s", errno_name(errno));
	return NULL;
}

ssize_t read_text(const char *path, char *buf, size_t size)
{
	auto_close int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	size_t got = 0;

	if (fd < 0)
		return -1;
	while (got + 1 < size) {
		ssize_t n = read(fd, buf + got, size - 1 - got);

		if (n < 0 && got == 0)
			return -1;
		if (n <= 0)
			break;
		got += (size_t)n;
	}
	buf[got] = '\0';
	return (ssize_t)got;
}

int write_text(const char *path, const char *text)
{
	auto_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0)
		return -1;
	return write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1;
}

void try_read(struct probe *p, const char *path)
{
	const char *token = need(p, "token");
	char buf[4096];

	if (!token)
		return;
	if (read_text(path, buf, sizeof(buf)) < 0) {
		int err = errno;

		if (among(err, HIDDEN))
			refused(p, "read: %s", errno_name(err));
		else
			cannot_tell(p, "read %s: unexpected %s", path, errno_name(err));
		return;
	}
	if (strstr(buf, token))
		got_through(p, "read the host's file as %s", path);
	else
		refused(p, "another file is there");
}

int run_program(char *const argv[], char *out, size_t size)
{
	int pipes[2], status;
	size_t got = 0;
	pid_t pid;

	if (pipe2(pipes, O_CLOEXEC) < 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		dup2(pipes[1], 1);
		dup2(pipes[1], 2);
		execv(argv[0], argv);
		_exit(127);
	}
	close(pipes[1]);
	while (pid > 0 && got + 1 < size) {
		ssize_t n = read(pipes[0], out + got, size - 1 - got);

		if (n <= 0)
			break;
		got += (size_t)n;
	}
	out[got] = '\0';
	close(pipes[0]);
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return -1;
	return status;
}

void remove_tree(const char *path)
{
	char sub[4096];
	struct dirent *d;
	struct stat st;
	DIR *dir;

	if (lstat(path, &st) < 0)
		return;
	if (!S_ISDIR(st.st_mode)) {
		unlink(path);
		return;
	}
	dir = opendir(path);
	while (dir && (d = readdir(dir))) {
		if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
			continue;
		snprintf(sub, sizeof(sub), "%s/%s", path, d->d_name);
		remove_tree(sub);
	}
	if (dir)
		closedir(dir);
	rmdir(path);
}

void msleep(unsigned ms)
{
	poll(NULL, 0, (int)ms);
}
