#include "base/base.h"

#include <stdarg.h>
#include <sys/mman.h>
#include <sys/sendfile.h>

int io_write_all(int fd, const void *bytes, size_t len)
{
	const char *p = bytes;

	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

/* Reads from a position of the file, or (at -1) from where the file stands. */
static ssize_t read_fully(int fd, char *ret, size_t size, off_t at)
{
	size_t got = 0;

	while (got < size) {
		ssize_t n = at < 0 ? read(fd, ret + got, size - got)
				   : pread(fd, ret + got, size - got, at + (off_t)got);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (n == 0)
			break;
		got += (size_t)n;
	}
	return (ssize_t)got;
}

ssize_t io_read_all(int fd, void *ret, size_t size)
{
	return read_fully(fd, ret, size, -1);
}

int io_read_whole(int fd, size_t max, char **ret, size_t *ret_len)
{
	auto_free char *text = NULL;
	struct stat st;
	ssize_t len;

	if (fstat(fd, &st) < 0)
		return -1;
	if (!S_ISREG(st.st_mode) || st.st_size > (off_t)max) {
		errno = S_ISREG(st.st_mode) ? EFBIG : EINVAL;
		return -1;
	}
	/* The file may grow while it is read: the buffer is the limit, not what stat said. */
	text = must_alloc(malloc((size_t)st.st_size + 1));
	len = read_fully(fd, text, (size_t)st.st_size, 0);
	if (len < 0)
		return -1;
	text[len] = '\0';
	*ret = take_ptr(text);
	*ret_len = (size_t)len;
	return 0;
}

ssize_t io_read_at(int dir, const char *name, char *ret, size_t size)
{
	auto_close int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, ret, size - 1);

	ret[n > 0 ? n : 0] = '\0';
	return n;
}

ssize_t io_read_path(char *ret, size_t size, const char *path_fmt, ...)
{
	char path[PATH_MAX];
	va_list ap;

	va_start(ap, path_fmt);
	vsnprintf(path, sizeof(path), path_fmt, ap);
	va_end(ap);
	return io_read_at(AT_FDCWD, path, ret, size);
}

int io_write_at(int dir, const char *name, const char *text)
{
	auto_close int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);
	size_t len = strlen(text);

	return fd >= 0 && write(fd, text, len) == (ssize_t)len ? 0 : -1;
}

int io_reopen(int fd, int flags)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, flags | O_CLOEXEC);
}

static int read_link(const char *link, char *ret, size_t size)
{
	ssize_t n = readlink(link, ret, size - 1);

	if (n <= 0)
		return -1;
	ret[n] = '\0';
	return 0;
}

int io_fd_path(int fd, char *ret, size_t size)
{
	char link[32];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	return read_link(link, ret, size);
}

int io_beside_program(const char *name, char *ret, size_t size)
{
	char self[PATH_MAX];
	char *slash =
		read_link("/proc/self/exe", self, sizeof(self)) < 0 ? NULL : strrchr(self, '/');

	if (!slash)
		return -1;
	slash[1] = '\0';
	return (size_t)snprintf(ret, size, "%s%s", self, name) < size ? 0 : -1;
}

int io_seal(int memfd)
{
	return fcntl(memfd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW);
}

int io_sealed_copy(int fd, const char *name)
{
	auto_close int to = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct stat st;
	off_t at = 0;

	if (to < 0 || fstat(fd, &st) < 0)
		return -1;
	while (at < st.st_size)
		if (sendfile(to, fd, &at, (size_t)(st.st_size - at)) <= 0)
			return -1;
	return io_seal(to) < 0 ? -1 : take_fd(&to);
}

int io_open_stream(int which, int *ret_ours, int *ret_theirs)
{
	int fds[2], us = which == 0 ? 1 : 0;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -1;
	if (fcntl(fds[us], F_SETFL, O_NONBLOCK) < 0) {
		close(fds[0]);
		close(fds[1]);
		return -1;
	}
	*ret_ours = fds[us];
	*ret_theirs = fds[!us];
	return 0;
}
