/* Output of a command: its head and tail are kept in bounded memory, or it is written to a file. */
#pragma once

#include "base/budget.h"
#include "model/result.h"

struct head_tail {
	int fd;	   /* read end, -1 once at its end */
	int relay; /* -1, or the file to write to instead of keeping the output */
	int relay_errno;
	size_t limit;
	char *head;
	size_t head_len, head_size, head_room; /* used, allocated, wanted */
	char *ring;			       /* the last bytes, as many as ring_room */
	size_t ring_len, ring_at, ring_room;
	uint64_t total;
	struct budget *budget; /* memory is taken from it; or NULL */
	size_t held;	       /* bytes taken from the budget */
	bool starved;	       /* the budget was used up: less is kept than the limit allows */
};

/* Kept of each output, whatever the budget. */
#define HEAD_TAIL_FREE 4096

void head_tail_init(struct head_tail *s, int fd, size_t limit);
/* Reads once, and returns what read(2) did; closes fd at its end. */
ssize_t head_tail_read(struct head_tail *s);
/*
 * When all writers are dead: reads the rest of the pipe, and closes fd. Does not wait for the
 * pipe's end: code inside may have sent its end through a socket that it had as stdin.
 */
void head_tail_drain(struct head_tail *s);
/* Keeps bytes that came another way. */
void head_tail_add(struct head_tail *s, const char *data, size_t n);
/* True if there was so much output that the run is to end. */
bool head_tail_is_flood(const struct head_tail *s);
/* What is kept now, in order: in pieces. */
void head_tail_peek(const struct head_tail *s,
		    void (*add)(void *arg, const char *bytes, size_t len), void *arg);
/* Hands the bytes over to a result. */
void head_tail_finish(struct head_tail *s, struct capture *ret);
void head_tail_done(struct head_tail *s);

/*
 * Input from a regular file of the caller, passed on through a pipe: an ordinary user's sandbox has
 * that user's id, and could change the mode, times or attributes of the file through its fd.
 */
struct stdin_relay {
	int from; /* -1: nothing to pass on */
	int to;
	size_t len, at; /* of the bytes read and not yet written */
};

/* Moves what the pipe takes without waiting; closes it at the end of the file. */
void stdin_relay_move(struct stdin_relay *f);
void stdin_relay_done(struct stdin_relay *f);
