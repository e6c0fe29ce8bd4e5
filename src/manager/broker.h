/*
 * The front's end of the channel to the broker: requests get a serial number, answers find the
 * callback that waits for them.
 *
 *   broker_ask_id(b, IPC_PAUSE, id, on_paused, s);   on_paused(s, reply, fd): reply->err says how it went
 */
#pragma once

#include "base/loop.h"
#include "wire/ipc.h"

struct broker;

struct broker_ops {
	/* Serial 0; the fd (or -1) is the callback's. */
	void (*on_news)(void *arg, const struct ipc *m, int fd);
	/* The broker is gone or does not keep to the protocol. Nothing works from here on. */
	void (*on_lost)(void *arg, const struct err *e);
};

/* Never called from within broker_ask. The fd, or -1, is the callback's. */
typedef void (*broker_done)(void *arg, const struct ipc *reply, int fd);

/* Takes the socket over. */
struct broker *broker_open(struct loop *l, int fd, const struct broker_ops *ops, void *arg);
/* Whoever still waits hears of an error no more. */
void broker_close(struct broker *b);
/*
 * Asks; m is copied and gets its serial. done may be NULL. Called once with the answer or with an
 * error (the broker is slow beyond reason, or gone), but IPC_SNAPSHOT_LIST: once for each
 * IPC_SNAPSHOT_IS, then for the last time with IPC_DONE. fd, or -1, stays the caller's: it is sent
 * at once or duplicated.
 */
void broker_ask(struct broker *b, const struct ipc *m, int fd, broker_done done, void *arg);
/* The same with what is only a type and a sandbox's id. */
void broker_ask_id(struct broker *b, uint32_t type, const char *id, broker_done done, void *arg);
