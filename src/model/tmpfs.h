/*
 * File systems in memory that the caller asks for by `tmpfs`: each has a place inside and a size of
 * its own, besides the disk limit.
 */
#pragma once

#include "base/base.h"

#define TMPFS_MOUNTS 8
#define TMPFS_PATH 128

struct tmpfs_mount {
	char path[TMPFS_PATH]; /* absolute, clean */
	uint64_t bytes;
};

struct tmpfs_mounts {
	uint32_t count;
	struct tmpfs_mount items[TMPFS_MOUNTS]; /* none lies below a later one */
};

struct limits;

/* From texts PATH[:size=SIZE]; without a size, a quarter of memory. */
int tmpfs_parse(const struct list *texts, const struct limits *l, struct tmpfs_mounts *ret,
		struct err *e);
/*
 * Are the places free, and does all that can be written fit into memory (rule 13)? The limits
 * are those of limits_in_memory.
 */
int tmpfs_check(const struct tmpfs_mounts *t, const struct limits *l, struct err *e);
