/*
 * One end of a channel between the broker and a role, within a loop. Messages that the other side is too
 * slow for are queued.
 */
#pragma once

#include "base/loop.h"
#include "wire/ipc.h"

struct ipc_waiting;

struct ipc_channel {
	struct loop *loop;
	/* The fd, or -1, is the callback's. It may close the channel. */
	void (*on_message)(void *arg, const struct ipc *m, int fd);
	/* Once. 0: the other side has gone; EBADMSG: it broke the protocol; or another errno. */
	void (*on_broken)(void *arg, int errnum);
	void *arg;
	/* private: */
	struct loop_watch watch; /* fd -1: closed */
	struct ipc_waiting *first, **last;
	size_t waiting;
};

/* After the members above were set. Takes fd. */
void ipc_channel_open(struct ipc_channel *c, int fd);
void ipc_channel_close(struct ipc_channel *c);
/* Now or later; m is copied, and fd, or -1, stays the caller's. */
void ipc_channel_send(struct ipc_channel *c, const struct ipc *m, int fd);
