/* Random names. */
#pragma once

#include "base/base.h"

/* Of a sandbox, a run or a snapshot: 100 random bits. */
#define ID_LETTERS 20

/* So many of a-z and 0-5, five random bits each, and a NUL. -1 with errno: no random bytes. */
int id_letters(char *ret, size_t count);
/* The same for so many bytes as hexadecimal digits, two each; at most 32. */
int id_hex(char *ret, size_t bytes);
