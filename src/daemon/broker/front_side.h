/* The broker's end of the channel to the front: what is asked there, answers, news. */
#pragma once

#include "daemon/broker/box.h"
#include "wire/ipc_channel.h"

struct daemon;

struct front_side {
	struct ipc_channel channel; /* closed: no front is running */
	uint32_t epoch;
	bool was_told; /* all that a new front has to know was sent */
};

/* A new front: tells it everything. Takes sock. */
void front_attach(struct daemon *d, int sock);
void front_detach(struct daemon *d);
/* There is none just now, or it does not read fast enough. */
bool front_is_slow(const struct daemon *d);
/* The fd, or -1, stays the caller's. */
void front_news(struct daemon *d, struct ipc *m, int fd);
/* The same before the front was told of all there is. */
void front_news_early(struct daemon *d, struct ipc *m, int fd);
void front_answer(struct daemon *d, struct asker who, struct ipc *m, int fd);
/* IPC_DONE; e NULL: it went well. */
void front_done(struct daemon *d, struct asker who, const char *id, const struct err *e);
/* The configuration and the tokens, after each change. */
void front_send_config(struct daemon *d);
void front_send_tokens(struct daemon *d);
