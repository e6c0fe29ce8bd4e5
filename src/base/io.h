/* Reading and writing as a whole, and the pipes for it. */
#pragma once

#include <stddef.h>

/* Writes everything, in pieces if it must be. -1 with errno. */
int io_write_all(int fd, const void *bytes, size_t len);

/* A pipe for a process's standard stream 0, 1 or 2: theirs blocks, ours does not. -1 with errno. */
int io_open_stream(int which, int *ret_ours, int *ret_theirs);
