/*
 * Input from a regular file of the caller, passed on through a pipe: an ordinary user's sandbox has
 * that user's id, and could change the mode, times or attributes of the file through its fd.
 */
#pragma once

#include <stddef.h>

struct feed {
	int from; /* -1: nothing to feed */
	int to;
	size_t len, at; /* of what was read and not yet written */
};

/* Moves what the pipe takes without waiting; closes it at the end of the file. */
void feed_move(struct feed *f);
void feed_done(struct feed *f);
