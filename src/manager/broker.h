/*
 * The front's end of the channel to the broker. Each request gets a serial number, by which its answer
 * is passed to the callback that waits for it.
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
	/* The broker is gone or broke the protocol. Every later request fails. */
	void (*on_lost)(void *arg, const struct err *e);
};

/* Never called from within broker_ask. The fd, or -1, is the callback's. */
typedef void (*broker_done)(void *arg, const struct ipc *reply, int fd);

/* Takes the socket over. */
struct broker *broker_open(struct loop *l, int fd, const struct broker_ops *ops, void *arg);
/* Callbacks that still wait are not called any more. */
void broker_close(struct broker *b);
/*
 * Sends a copy of m with a new serial. done may be NULL. It is called once, with the answer or an error
 * (timeout, or the broker is gone); for IPC_SNAPSHOT_LIST once for each IPC_SNAPSHOT_IS and then with
 * IPC_DONE. fd (or -1) stays the caller's: it is sent at once or duplicated.
 */
void broker_ask(struct broker *b, const struct ipc *m, int fd, broker_done done, void *arg);
/* Sends a message that has only a type, and gets no answer. */
void broker_tell(struct broker *b, uint32_t type);
/* No answer will come any more; what was asked last may have been done or not. */
bool broker_is_lost(const struct broker *b);
/* broker_ask for a message that has only a type and the id of a sandbox. */
void broker_ask_id(struct broker *b, uint32_t type, const char *id, broker_done done, void *arg);
