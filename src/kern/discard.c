/*
 * Theory of operation
 *
 * The last close of a file runs in whoever closes it, and an exit waits for it. In a kernel thread it
 * does not, so the kernel's own is made to do it: the files are put into a message that waits in the
 * queue of a socket, and so is the socket. Then nobody can ever receive it, which is what the kernel's
 * collector of such circles is for; it is started by every close of a Unix socket while files are
 * under way (unix(7)).
 */
#include "kern/discard.h"

#include "base/auto.h"

#include <string.h>
#include <sys/socket.h>

static int send_all(int socket, const int *fds, size_t count)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int) * (DISCARD_MAX + 1))];
	} control = {0};
	struct msghdr msg = {.msg_iov = &(struct iovec){"", 1},
			     .msg_iovlen = 1,
			     .msg_control = control.buf,
			     .msg_controllen = CMSG_SPACE(sizeof(int) * count)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int) * count);
	memcpy(CMSG_DATA(c), fds, sizeof(int) * count);
	return sendmsg(socket, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) == 1 ? 0 : -1;
}

void discard_fds(int *fds, size_t count)
{
	int pair[2] = {-1, -1}, all[DISCARD_MAX + 1];
	size_t n = 0;

	for (size_t i = 0; i < count && n < DISCARD_MAX; i++)
		if (fds[i] >= 0)
			all[n++] = fds[i];
	/* If it cannot be, they are closed as usual. */
	if (n > 0 && socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) == 0) {
		all[n++] = pair[1];
		(void)!send_all(pair[0], all, n);
	}
	for (size_t i = 0; i < count; i++)
		close_fd(&fds[i]);
	/*
	 * The last one sets the collector to work, at once and on this very processor: had we still
	 * one of the files by then, its last close would be ours.
	 */
	close_fd(&pair[1]);
	close_fd(&pair[0]);
}
