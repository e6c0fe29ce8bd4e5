/* Records: what a later broker needs to find a sandbox again. Written by brokers only. */
#pragma once

#include "daemon/broker/box.h"

/* Before the sandbox is answered for; again after each change that matters. */
int record_write(const struct box *b, struct err *e);
/* Fills in info and blob. -1: not whole, or of another version. */
int record_read(struct box *b, struct err *e);
void record_remove(const struct box *b);
