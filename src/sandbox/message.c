#include "sandbox/message.h"

#include "base/auto.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

static int send_fds(int socket, const void *data, size_t size, const int *fds, int count)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int) * KEEPER_MAX_FDS)];
	} control = {0};
	struct iovec iov = {(void *)data, size};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (count > 0) {
		struct cmsghdr *c;

		msg.msg_control = control.buf;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)count);
	}
	return sendmsg(socket, &msg, MSG_NOSIGNAL) == (ssize_t)size ? 0 : -1;
}

static int receive_fds(int socket, void *data, size_t size, int fds[KEEPER_MAX_FDS])
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int) * KEEPER_MAX_FDS)];
	} control;
	struct iovec iov = {data, size};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.buf,
			     .msg_controllen = sizeof(control.buf)};
	ssize_t n;

	for (int i = 0; i < KEEPER_MAX_FDS; i++)
		fds[i] = -1;
	do
		n = recvmsg(socket, &msg, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n != (ssize_t)size)
		return -1;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	return 0;
}

int message_send(int control, const void *message, size_t size, const int *fds, int count,
		 struct err *e)
{
	if (send_fds(control, message, size, fds, count) < 0)
		return err_sys(e, "cannot send to the sandbox");
	return 0;
}

int message_receive(int control, void *ret, size_t size, int fds[KEEPER_MAX_FDS], struct err *e)
{
	if (receive_fds(control, ret, size, fds) < 0)
		return err_set(e, ERR_SYSTEM, "the keeper went away");
	return 0;
}

int message_send_back(int control, int scratch, int terminal, struct err *e)
{
	int fds[] = {scratch, terminal};

	if (send_fds(control, "s", 1, fds, terminal >= 0 ? 2 : 1) < 0)
		return err_sys(e, "cannot send to the keeper");
	return 0;
}

int message_receive_back(int control, int *ret_scratch, int *ret_terminal)
{
	int fds[KEEPER_MAX_FDS];
	char data;

	if (receive_fds(control, &data, 1, fds) < 0)
		return -1;
	*ret_scratch = fds[0];
	*ret_terminal = fds[1];
	return 0;
}
