/*
 * A daemon's end of a guest for tests: the guest's server runs in a child of the test, without a
 * sandbox. Everything waits at most 30 seconds and then fails the test.
 */
#pragma once

#include "base/buf.h"
#include "wire/guest.h"
#include "wire/pack.h"

#include <sys/types.h>

#define DRIVER_WAIT_MS 30000

struct driver {
	pid_t pid;
	char dir[64];  /* a directory of its own, empty but for the socket; the guest's workdir */
	char path[80]; /* of the socket */
	int fd;	       /* connected, or -1 */
	uint32_t last; /* stream */
	struct buf in;
	struct frame *queue;
	bool stingy; /* gives no credit back by itself */
};

struct frame {
	struct frame *next;
	uint32_t stream;
	uint8_t type;
	size_t len;
	char payload[];
};

void driver_start(struct driver *d);
/* Also removes the directory. */
void driver_stop(struct driver *d);
/* A new connection and its hello; the older one stays open in the caller's hands. -1: refused. */
int driver_connect(struct driver *d, uint64_t generation);

void driver_send(struct driver *d, uint32_t stream, uint8_t type, const void *payload, size_t len);
/* A request on a new stream; the payload is freed. */
uint32_t driver_open(struct driver *d, uint8_t type, struct buf *payload);
/* The next frame of this stream; the caller frees it. NULL: the link is gone. */
struct frame *driver_next(struct driver *d, uint32_t stream);
/* The next one, which must be of this type. */
struct frame *driver_expect(struct driver *d, uint32_t stream, uint8_t type);
/* A request that is answered at once: its G_OK; the caller frees it. */
struct frame *driver_ask(struct driver *d, uint8_t type, struct buf *payload);
/* The errno that a request is refused with. */
int driver_refused(struct driver *d, uint8_t type, struct buf *payload);
void driver_do(struct driver *d, uint8_t type, struct buf *payload);
/* Sends all as G_DATA within the window, then G_CLOSE. Frames that are not credit are kept. */
void driver_feed(struct driver *d, uint32_t stream, const void *bytes, size_t len);

/* ---- commands ---- */

struct ran {
	struct buf out, err;
	uint32_t eid, pid;
	int status, exec_errno, why;
};

/* G_EXEC of argv[0..] up to NULL. */
struct buf driver_exec(uint8_t flags, const char *const *argv);
struct exec_terms {
	uint8_t flags;
	uint64_t timeout_ms;
	const char *cwd, *user, *tag, *session, *env;
};
struct buf driver_exec_with(const struct exec_terms *t, const char *const *argv);
/* Reads a stream of a command to its end. */
void driver_collect(struct driver *d, uint32_t stream, struct ran *ret);
/* Runs a line in a shell to its end. */
void driver_shell(struct driver *d, const char *line, struct ran *ret);
void ran_done(struct ran *r);

/* ---- files ---- */
void driver_write(struct driver *d, const char *path, const void *bytes, size_t len);
/* The whole file, NUL-terminated; the caller frees it. */
char *driver_read(struct driver *d, const char *path, uint64_t offset, uint64_t len,
		  size_t *ret_len);
/* dir/name in a static buffer. */
const char *driver_path(const struct driver *d, const char *name);
/* A request that begins with a path of the directory. */
struct buf driver_on(const struct driver *d, const char *name);
/* Waits until a process is gone. */
bool driver_gone(pid_t pid);
