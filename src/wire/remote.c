#include "wire/remote.h"

#include "base/auto.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

bool remote_name_is_valid(const char *name)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789-_";
	size_t len = strnlen(name, REMOTE_ID);

	return len > 0 && len < REMOTE_ID && strspn(name, letters) == len;
}

int remote_send(int sock, const struct remote_message *m, int fd)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov = {(void *)(uintptr_t)m, sizeof(*m)};
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

static bool has_end(const char *text, size_t size)
{
	return memchr(text, '\0', size) != NULL;
}

static bool is_well_formed(const struct remote_message *m, size_t len)
{
	return len == sizeof(*m) && m->type >= REMOTE_CREATE && m->type < REMOTE_TYPE_COUNT &&
	       (unsigned)m->err.kind < ERR_KIND_COUNT &&
	       has_end(m->err.field, sizeof(m->err.field)) &&
	       has_end(m->err.msg, sizeof(m->err.msg)) && has_end(m->id, sizeof(m->id)) &&
	       ipc_id_is_valid(m->id) && has_end(m->name, sizeof(m->name)) &&
	       (!m->name[0] || remote_name_is_valid(m->name));
}

/* The first fd; any more are closed. */
static int take_fds(struct msghdr *msg)
{
	int first = -1;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (first < 0)
				first = fd;
			else
				close(fd);
		}
	}
	return first;
}

int remote_receive(int sock, struct remote_message *ret, int *ret_fd)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = {ret, sizeof(*ret)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.room,
			     .msg_controllen = sizeof(control.room)};
	auto_close int fd = -1;
	ssize_t n;

	*ret_fd = -1;
	do
		n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return (int)n;
	fd = take_fds(&msg);
	if (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC) || !is_well_formed(ret, (size_t)n)) {
		errno = EBADMSG;
		return -1;
	}
	*ret_fd = take_fd(&fd);
	return 1;
}
