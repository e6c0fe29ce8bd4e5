/* Random names. */
#pragma once

#include "base/base.h"

/* Of a sandbox, a run or a snapshot: 100 random bits. */
#define ID_LETTERS 20

/* `count` random letters of a-z and 0-5, five bits each, and a NUL. -1 with errno: no random bytes. */
int id_letters(char *ret, size_t count);
/* `bytes` random bytes, at most 32, as two hexadecimal digits each. */
int id_hex(char *ret, size_t bytes);
