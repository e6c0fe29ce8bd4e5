#include "wire/remote.h"

#include "base/auto.h"
#include "base/fd_message.h"
#include "base/str.h"

#include <errno.h>
#include <string.h>

bool remote_name_is_valid(const char *name)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789-_";
	size_t len = strnlen(name, REMOTE_ID);

	return len > 0 && len < REMOTE_ID && strspn(name, letters) == len;
}

int remote_send(int sock, const struct remote_message *m, int fd)
{
	return fd_message_send(sock, m, sizeof(*m), &fd, fd >= 0, 0);
}

static bool is_well_formed(const struct remote_message *m, size_t len)
{
	return len == sizeof(*m) && m->type >= REMOTE_CREATE && m->type < REMOTE_TYPE_COUNT &&
	       (unsigned)m->err.kind < ERR_KIND_COUNT &&
	       str_has_end(m->err.field, sizeof(m->err.field)) &&
	       str_has_end(m->err.msg, sizeof(m->err.msg)) && str_has_end(m->id, sizeof(m->id)) &&
	       ipc_id_is_valid(m->id) && str_has_end(m->name, sizeof(m->name)) &&
	       (!m->name[0] || remote_name_is_valid(m->name));
}

int remote_receive(int sock, struct remote_message *ret, int *ret_fd)
{
	auto_close int fd = -1;
	ssize_t n = fd_message_receive(sock, ret, sizeof(*ret), &fd, 1, 0);

	*ret_fd = -1;
	if (n <= 0)
		return (int)n;
	if (!is_well_formed(ret, (size_t)n)) {
		errno = EBADMSG;
		return -1;
	}
	*ret_fd = take_fd(&fd);
	return 1;
}
