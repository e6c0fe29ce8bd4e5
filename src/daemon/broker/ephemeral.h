/*
 * A private daemon: `cloche serve --private DIR`, started by `cloche mcp` where no other runs.
 * DIR/state and DIR/run are its directories, its stdin is a pipe. When that ends, because whoever
 * started it is gone, the daemon ends, every sandbox with it, and DIR is removed.
 */
#pragma once

#include "base/base.h"

struct daemon;

/* Each does nothing for a daemon that is not private. */
int ephemeral_watch(struct daemon *d, struct err *e);
void ephemeral_remove(const struct daemon *d);
