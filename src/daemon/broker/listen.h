/* Where clients come in: Unix sockets, whose peers the broker checks, and TCP, for the front. */
#pragma once

#include "base/err.h"

struct daemon;

int listeners_open(struct daemon *d, struct err *e);
void listeners_close(struct daemon *d);
