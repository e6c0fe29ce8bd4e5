/* The text that `cloche serve` prints on a terminal: lines ready to paste. */
#pragma once

#include "base/base.h"

/* addresses: of the open sockets, "127.0.0.1:7070" or "unix:/PATH". */
void hello_print(const char *const *addresses, size_t count, FILE *to);
