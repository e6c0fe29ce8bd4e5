/*
 * Work that takes long or may block, done by a child: a fork of the guest without its fds. The
 * worker writes frames of the protocol to a pipe; they are relayed to its stream as the window
 * allows. Data that the stream receives goes to the worker's input. The worker's death ends the
 * stream; the stream's end kills the worker.
 */
#pragma once

#include "guest/link/request.h"

/* The child's side; all of these may block. */
struct work {
	int in, out;
	bool answered;
	char *data; /* a G_DATA frame that is being filled */
	size_t len;
};

/* Each ends the child if the guest is gone. */
void work_frame(struct work *w, uint8_t type, const void *payload, size_t len);
void work_ok(struct work *w, const struct buf *payload);
void work_error(struct work *w, int errnum, const char *fmt, ...)
	__attribute__((format(printf, 3, 4), noreturn));
void work_end(struct work *w, const void *payload, size_t len) __attribute__((noreturn));
/* G_DATA in full frames; flushed by work_end. */
int work_data(void *work, const void *bytes, size_t len);
/* Reads from the stream: 0 at its end, else how many bytes. */
ssize_t work_read(void *work, void *bytes, size_t len);

/*
 * run() is called in the child. It must end in work_error or work_end; unless goes_on is set, it
 * may also call work_ok and return. With takes_input, the worker receives G_DATA on work->in.
 */
struct worker_job {
	request_work *run;
	bool goes_on, takes_input;
	/* lane > 0: done in these namespaces, without any privilege: mounts, and the user namespace of this process. */
	int mounts;
	pid_t lane;
};
void work_start(struct guest_stream *s, const struct unpacked_request *r,
		const struct worker_job *job);
/* A child was reaped; true: it was a worker. */
bool worker_reaped(struct guest *g, pid_t pid, int status);
/* The same for children that connect (connect.c). */
bool connect_reaped(struct guest *g, pid_t pid, int status);
/* A child that keeps only the named fds, as workers do; as fork. */
pid_t worker_fork(const int *keep, size_t count);
