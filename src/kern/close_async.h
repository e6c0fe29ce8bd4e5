/*
 * Files whose end takes a while, such as the last of a mount namespace or of a file system: let go of
 * without waiting for it.
 */
#pragma once

#include "base/base.h"

#define DISCARD_MAX 4

/* Closes them (what is -1 is left out); the kernel takes apart what nobody else holds, soon. */
void close_async(int *fds, size_t count);

/* Closes every fd from first on but count of them, at most 16, in any order; -1 is allowed. */
void close_async_others(int first, const int *keep, size_t count);
