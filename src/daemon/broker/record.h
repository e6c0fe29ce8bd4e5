/* Records: what a later broker needs to find a sandbox again. Written by brokers only. */
#pragma once

#include "daemon/broker/box.h"

/* Before the sandbox is answered for; again after each change that matters. */
int record_write(const struct box *b, struct err *e);
enum record_kind {
	RECORD_GOOD,
	RECORD_BROKEN,
	RECORD_FOREIGN, /* of another version of cloche: its sandbox is left alone (rule 32) */
};

/* Fills in info and blob; e says what is wrong with a record that is not good. */
enum record_kind record_read(struct box *b, struct err *e);
void record_remove(const struct box *b);
