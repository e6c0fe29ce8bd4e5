/* What `cloche serve` says on a terminal: lines ready to paste. */
#pragma once

#include "base/base.h"

/* addresses: where it really listens, "127.0.0.1:7070" or "unix:/PATH". */
void hello_print(const char *const *addresses, size_t count, FILE *to);
