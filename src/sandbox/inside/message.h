/* Messages with fds between the keeper and pid 1 while the sandbox is built. */
#pragma once

#include "sandbox/inside/inside.h"

/* Makes the two ends of a channel. */
int message_pair(int ret[2], struct err *e);
int message_send(int control, const void *message, size_t size, const int *fds, int count,
		 struct err *e);
/* Fills fds in the order of the message, the others with -1. */
int message_receive(int control, void *ret, size_t size, int fds[KEEPER_MAX_FDS], struct err *e);
/* pid 1 to keeper: the scratch, the master of the terminal, and of net (or NULL) anchor and listeners. */
int message_send_back(int control, const struct inside_fds *fds, const struct net_made *net,
		      struct err *e);
/* -1 if nothing was sent (pid 1 failed before). What was not sent is -1; ret_net is left alone then. */
int message_receive_back(int control, int *ret_scratch, int *ret_terminal,
			 struct net_made *ret_net);
