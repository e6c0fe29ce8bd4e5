/*
 * A file that holds disk space back, so that writes that must not fail still succeed when the disk is full.
 *
 *   reserve_open(&r, dir, ".reserve", 1 << 20);
 *   while (write_it() < 0 && errno == ENOSPC && reserve_spend(&r, 4096))
 *           ;
 *   reserve_refill(&r);   later, when there is room again
 */
#pragma once

#include "base/base.h"

struct reserve {
	int fd;
	off_t size, wanted;
	int64_t tried_ns;
};

/* Without room for all of it, or without the file, the reserve is smaller or empty. */
void reserve_open(struct reserve *r, int dir, const char *name, off_t wanted);
void reserve_close(struct reserve *r);
/* Gives so many bytes back to the file system. False: nothing is left. */
bool reserve_spend(struct reserve *r, off_t bytes);
/* Makes it whole again; does nothing if it is, or if that was tried a moment ago. */
void reserve_refill(struct reserve *r);
