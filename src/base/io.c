#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

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
