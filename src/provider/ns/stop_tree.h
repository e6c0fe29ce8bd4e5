/*
 * Stops all processes of a sandbox where there is no cgroup to freeze: by signals, from outside, from
 * pid 1 downwards, until none of them runs. What is below pid 1 is all that there is: whoever loses its
 * parent becomes its child.
 */
#pragma once

#include "base/base.h"

struct stop_tree {
	pid_t *own; /* had stopped before, and shall not go on with the others */
	size_t own_count;
};

/* Before the first stop_tree_step. */
void stop_tree_begin(struct stop_tree *h, pid_t top);
/* How many were still running and have been sent the signal now; 0: all stand still. */
size_t stop_tree_step(pid_t top, ino_t pid_ns);
/* Lets all but those go on, from the leaves upwards, and forgets them. */
void stop_tree_end(struct stop_tree *h, pid_t top, ino_t pid_ns);
/* Was this process stopped by a signal? */
bool stop_tree_is_stopped(pid_t pid);
