#include "wire/packet.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

union one_fd {
	struct cmsghdr align;
	char room[CMSG_SPACE(sizeof(int))];
};

int packet_send(int sock, const void *bytes, size_t len, int fd)
{
	union one_fd control = {0};
	struct iovec iov = {(void *)(uintptr_t)bytes, len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (fd >= 0) {
		struct cmsghdr *c;

		msg.msg_control = control.room;
		msg.msg_controllen = sizeof(control.room);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	do
		n = sendmsg(sock, &msg, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -1 : 0;
}

/* The first fd that came; all others are closed, and make the message a bad one. */
static int take_fds(struct msghdr *msg, bool *ret_more)
{
	int first = -1;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (first < 0) {
				first = fd;
			} else {
				close(fd);
				*ret_more = true;
			}
		}
	}
	return first;
}

ssize_t packet_receive(int sock, void *ret, size_t size, int *ret_fd)
{
	union one_fd control;
	struct iovec iov = {ret, size};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.room,
			     .msg_controllen = sizeof(control.room)};
	bool more = false;
	ssize_t n;
	int fd;

	*ret_fd = -1;
	do
		n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n;
	fd = take_fds(&msg, &more);
	if (!more && !(msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
		*ret_fd = fd;
		return n;
	}
	if (fd >= 0)
		close(fd);
	errno = EBADMSG;
	return -1;
}
