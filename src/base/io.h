/* Reading and writing as a whole. */
#pragma once

#include <stddef.h>

/* Writes everything, in pieces if it must be. -1 with errno. */
int io_write_all(int fd, const void *bytes, size_t len);
