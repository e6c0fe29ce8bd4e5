/*
 * One message with file descriptors over a Unix socket. Async-signal-safe and without allocation, so
 * that it may be used between clone and exec.
 */
#pragma once

#include "base/base.h"

#define FD_MESSAGE_MAX 64

/* Flags as for sendmsg; MSG_NOSIGNAL is added. -1 with errno; a message that was cut is EMSGSIZE. */
int fd_message_send(int sock, const void *bytes, size_t len, const int *fds, size_t count,
		    int flags);
/*
 * Flags as for recvmsg; the descriptors are close-on-exec. Returns the length; 0: the peer is gone; -1
 * with errno. EBADMSG: the message is longer than size or has more than `room` descriptors, and all of
 * them were closed. Unused places of ret_fds are -1 in every case; the caller closes the others.
 */
ssize_t fd_message_receive(int sock, void *ret, size_t size, int *ret_fds, size_t room, int flags);
