/*
 * Streams of any size to and from the daemon, in constant memory, with a bar on a terminal if they
 * take long.
 *
 *   struct client_transfer t = {.client = &c, .path = "/v1/snapshots/NAME/tar"};
 *   transfer_get_file(&t, "base.tar", &e);
 */
#pragma once

#include "cli/verbs/client.h"

struct client_transfer {
	struct client *client;
	const char *path; /* of the request */
	bool is_binary;	  /* is not written to a terminal */
	/* Take the place of the file that a get writes, and of the one that a put reads; or NULL. */
	int (*write)(void *arg, const void *bytes, size_t len, struct err *e);
	ssize_t (*read)(void *arg, void *bytes, size_t size, struct err *e);
	void *arg;
	int64_t bytes;	/* set: bytes transferred */
	json_t *answer; /* set by a put; the caller frees it */
};

/* Writes the answer's body to an fd. what: its name for messages. */
int transfer_get(struct client_transfer *t, int fd, const char *what, struct err *e);
/*
 * Unpacks the answer's body, a tar archive that code inside a sandbox may have made, into a directory of the
 * caller's: see `outside` in wire/tar.h. What is left out is named on stderr.
 */
int transfer_get_tree(struct client_transfer *t, int dir, struct err *e);
/*
 * Writes it to a file, whole or not at all; to a FIFO or device directly, but not by way of a link, which an
 * earlier copy may have brought (other than those of /dev and /proc).
 */
int transfer_get_file(struct client_transfer *t, const char *to, struct err *e);
/* Sends everything that can be read from fd as the body of a PUT. If reading fails, the daemon keeps nothing. */
int transfer_put(struct client_transfer *t, int fd, struct err *e);
