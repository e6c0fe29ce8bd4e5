/*
 * Files whose end takes a while, such as the last of a mount namespace or of a file system: let go of
 * without waiting for it.
 */
#pragma once

#include <stddef.h>

#define DISCARD_MAX 4

/* Closes them (what is -1 is left out); the kernel takes apart what nobody else holds, soon. */
void discard_fds(int *fds, size_t count);
