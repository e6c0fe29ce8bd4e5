/*
 * Encrypted and authenticated streams of any length (libsodium's secretstream): a changed, missing, repeated or moved
 * byte, a cut-off end and a wrong key are errors. Nothing of a chunk is handed out before the chunk was verified, but
 * only the end, a read of 0 bytes, says that the whole is as it was written.
 *
 *   o = sealed_begin(fd, key, head, len, &e)     head: whatever came before, which is authenticated with it
 *   sealed_write(o, bytes, n, &e); ...           sealed_end(o, &e)
 *
 *   s = sealed_open(fd, key, head, len, &e)
 *   while ((n = sealed_read(s, bytes, size, &e)) > 0) ...
 *   sealed_free(s)
 */
#pragma once

#include "base/base.h"

#define SEALED_KEY 32

struct sealed;

/* fds stay the caller's. NULL: e says why. */
struct sealed *sealed_begin(int fd, const unsigned char key[SEALED_KEY], const void *head,
			    size_t len, struct err *e);
int sealed_write(struct sealed *s, const void *bytes, size_t len, struct err *e);
/* Writes the end. */
int sealed_end(struct sealed *s, struct err *e);

struct sealed *sealed_open(int fd, const unsigned char key[SEALED_KEY], const void *head,
			   size_t len, struct err *e);
/* At most size bytes; 0: the end. */
ssize_t sealed_read(struct sealed *s, void *bytes, size_t size, struct err *e);

/* Accepts NULL. */
void sealed_free(struct sealed *s);
