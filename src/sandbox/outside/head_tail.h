/* Output on its way out: kept, head and tail in bounded memory, or written to a file. */
#pragma once

#include "base/base.h"
#include "base/budget.h"
#include "model/result.h"

struct head_tail {
	int fd;	   /* read end, -1 once at its end */
	int relay; /* -1, or where to write it instead of keeping it */
	int relay_errno;
	size_t limit;
	char *head;
	size_t head_len, head_size, head_room; /* used, allocated, wanted */
	char *ring;			       /* the last bytes, as many as ring_room */
	size_t ring_len, ring_at, ring_room;
	uint64_t total;
	struct budget *budget; /* what it is kept at the expense of, or NULL */
	size_t held;	       /* taken of it */
	bool starved;	       /* there was no more: less is kept than the limit says */
};

/* Kept of each even without a budget's leave. */
#define HEAD_TAIL_FREE 4096

void head_tail_init(struct head_tail *s, int fd, size_t limit);
/* One read of what is there, and its result; closes fd at its end. */
ssize_t head_tail_read(struct head_tail *s);
/*
 * For the end, when all writers are dead: reads what is in the pipe, and closes fd. It does not wait for
 * the pipe's end: code inside may have sent the other one through a socket that it had as its stdin.
 */
void head_tail_drain(struct head_tail *s);
/* Keeps bytes that came another way. */
void head_tail_add(struct head_tail *s, const char *data, size_t n);
/* True when so much came that going on makes no sense. */
bool head_tail_is_flood(const struct head_tail *s);
/* Hands the bytes over to a result. */
void head_tail_finish(struct head_tail *s, struct capture *ret);
void head_tail_done(struct head_tail *s);

/*
 * Input from a regular file of the caller, passed on through a pipe: an ordinary user's sandbox has
 * that user's id, and could change the mode, times or attributes of the file through its fd.
 */
struct stdin_relay {
	int from; /* -1: nothing to feed */
	int to;
	size_t len, at; /* of what was read and not yet written */
};

/* Moves what the pipe takes without waiting; closes it at the end of the file. */
void stdin_relay_move(struct stdin_relay *f);
void stdin_relay_done(struct stdin_relay *f);
