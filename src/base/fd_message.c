/* The only place that packs and unpacks SCM_RIGHTS (unix(7)). */
#include "base/fd_message.h"

#include <sys/socket.h>

union fd_control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int) * FD_MESSAGE_MAX)];
};

int fd_message_send(int sock, const void *bytes, size_t len, const int *fds, size_t count,
		    int flags)
{
	union fd_control control = {0};
	struct iovec iov = {(void *)(uintptr_t)bytes, len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (count > FD_MESSAGE_MAX) {
		errno = EINVAL;
		return -1;
	}
	if (count > 0) {
		struct cmsghdr *c;

		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * count);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * count);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * count);
	}
	do
		n = sendmsg(sock, &msg, flags | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n >= 0 && (size_t)n != len) {
		errno = EMSGSIZE;
		return -1;
	}
	return n < 0 ? -1 : 0;
}

/* Moves the descriptors to ret. False if there were more than `room`: those are closed. */
static bool take_received_fds(struct msghdr *msg, int *ret, size_t room)
{
	size_t used = 0;
	bool fit = true;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (used < room) {
				ret[used++] = fd;
			} else {
				close(fd);
				fit = false;
			}
		}
	}
	return fit;
}

ssize_t fd_message_receive(int sock, void *ret, size_t size, int *ret_fds, size_t room, int flags)
{
	union fd_control control;
	struct iovec iov = {ret, size};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.bytes,
			     .msg_controllen = sizeof(control.bytes)};
	bool fit;
	ssize_t n;

	for (size_t i = 0; i < room; i++)
		ret_fds[i] = -1;
	do
		n = recvmsg(sock, &msg, flags | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return n;
	fit = take_received_fds(&msg, ret_fds, room);
	if (n > 0 && fit && !(msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
		return n;
	/* An empty message reads like the end of the socket, but may bring fds as well. */
	for (size_t i = 0; i < room; i++)
		close_fd(&ret_fds[i]);
	errno = EBADMSG;
	return n == 0 ? 0 : -1;
}
