/* One message with at most one fd, over a SOCK_SEQPACKET socket between parts of the daemon. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

/* fd -1: none. -1 with errno. */
int packet_send(int sock, const void *bytes, size_t len, int fd);
/*
 * Returns the message's length; 0: the other side is gone; -1 with errno, EBADMSG for one that is too
 * long or has more than one fd. ret_fd: the caller's to close, or -1.
 */
ssize_t packet_receive(int sock, void *ret, size_t size, int *ret_fd);
