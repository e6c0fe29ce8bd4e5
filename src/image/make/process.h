/* Starts cloche-image, with pipes where wanted. */
#pragma once

#include "base/base.h"

struct worker {
	pid_t pid;
	int out; /* our end of its fd 1, or -1 */
	int err; /* our end of its fd 2 */
};

/* out: its fd 1; -1: a pipe to w->out. argv begins with the program's path. */
int worker_start(struct worker *w, char **argv, int in, int out, struct err *e);
/* Waits for its end; what it said becomes the error. */
int worker_end(struct worker *w, const char *what, struct err *e);
/* Kills it, if it still runs. */
void worker_stop(struct worker *w);

/* Waits for a process; what it wrote to the pipe becomes the error, if it failed. Closes the pipe. */
int process_await(pid_t pid, int said, const char *what, struct buf *ret_said, struct err *e);
