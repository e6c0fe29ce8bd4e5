/* Messages between the keeper and pid 1, with the errors that their users report. */
#include "sandbox/inside/message.h"

#include "base/fd_message.h"

#include <sys/socket.h>

_Static_assert(KEEPER_MAX_FDS <= FD_MESSAGE_MAX, "one message carries them all");

int message_pair(int ret[2], struct err *e)
{
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret) < 0
		       ? err_sys(e, "cannot create a socket pair")
		       : 0;
}

int message_send(int control, const void *message, size_t size, const int *fds, int count,
		 struct err *e)
{
	if (fd_message_send(control, message, size, fds, (size_t)count, 0) < 0)
		return err_sys(e, "cannot send to the sandbox");
	return 0;
}

/* All of it or nothing: no descriptor stays open on failure. */
static int receive_whole(int control, void *ret, size_t size, int fds[KEEPER_MAX_FDS])
{
	if (fd_message_receive(control, ret, size, fds, KEEPER_MAX_FDS, 0) == (ssize_t)size)
		return 0;
	for (int i = 0; i < KEEPER_MAX_FDS; i++)
		close_fd(&fds[i]);
	return -1;
}

int message_receive(int control, void *ret, size_t size, int fds[KEEPER_MAX_FDS], struct err *e)
{
	if (receive_whole(control, ret, size, fds) < 0)
		return err_set(e, ERR_SYSTEM, "the keeper went away");
	return 0;
}

int message_send_back(int control, const struct inside_fds *fds, const struct net_made *net,
		      struct err *e)
{
	struct back_message m = {.terminal = fds->terminal >= 0,
				 .anchor = net && net->anchor >= 0,
				 .listeners = net ? net->listeners.count : 0};
	int all[KEEPER_MAX_FDS] = {fds->scratch};
	size_t count = 1;

	if (m.terminal)
		all[count++] = fds->terminal;
	if (m.anchor)
		all[count++] = net->anchor;
	for (uint32_t i = 0; i < m.listeners; i++)
		all[count++] = net->listeners.fds[i];
	if (fd_message_send(control, &m, sizeof(m), all, count, 0) < 0)
		return err_sys(e, "cannot send to the keeper");
	return 0;
}

int message_receive_back(int control, int *ret_scratch, int *ret_terminal, struct net_made *ret_net)
{
	int fds[KEEPER_MAX_FDS], at = 1;
	struct back_message m;

	if (receive_whole(control, &m, sizeof(m), fds) < 0)
		return -1;
	*ret_scratch = fds[0];
	*ret_terminal = m.terminal ? fds[at++] : -1;
	if (!m.anchor)
		return 0;
	ret_net->anchor = fds[at++];
	for (uint32_t i = 0; i < m.listeners && i < NET_LISTENERS_MAX; i++)
		ret_net->listeners.fds[i] = fds[at++];
	ret_net->listeners.count =
		m.listeners < NET_LISTENERS_MAX ? m.listeners : NET_LISTENERS_MAX;
	return 0;
}
