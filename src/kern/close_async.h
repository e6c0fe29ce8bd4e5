/*
 * Closes files without waiting for the kernel to tear down what they held: the last fd of a mount
 * namespace or of a file system takes a while to close.
 */
#pragma once

#include "base/base.h"

#define CLOSE_ASYNC_MAX 4

/* Closes up to CLOSE_ASYNC_MAX fds; -1 is skipped. The kernel tears down in the background. */
void close_async(int *fds, size_t count);

/* Closes every fd from first on except those in keep (at most 16, in any order; -1 is allowed). */
void close_async_others(int first, const int *keep, size_t count);
