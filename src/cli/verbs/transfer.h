/*
 * Streams of any size to and from the daemon, in constant memory, with a bar on a terminal if they
 * take long.
 *
 *   struct transfer t = {.client = &c, .path = "/v1/snapshots/NAME/tar"};
 *   transfer_get_file(&t, "base.tar", &e);
 */
#pragma once

#include "cli/verbs/client.h"

struct transfer {
	struct client *client;
	const char *path; /* of the request */
	bool is_binary;	  /* nothing that a terminal could show: it is refused */
	int64_t bytes;	  /* set: so many went over */
	json_t *answer;	  /* set by a put; the caller frees it */
};

/* The answer's body into an fd. what: for messages. */
int transfer_get(struct transfer *t, int fd, const char *what, struct err *e);
/* The same into a file, whole or not at all; into what is no file (a FIFO, a device) as it comes. */
int transfer_get_file(struct transfer *t, const char *to, struct err *e);
/* All that can be read there becomes a request's body. */
int transfer_put(struct transfer *t, int fd, struct err *e);
