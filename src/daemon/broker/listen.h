/* Where clients come in: Unix sockets, whose peers the broker checks, and TCP, for the front. */
#pragma once

#include "base/base.h"

struct daemon;

int listeners_open(struct daemon *d, struct err *e);
void listeners_close(struct daemon *d);
