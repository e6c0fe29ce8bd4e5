/*
 * A disk is an ext4 file system in one file of the host, mounted by a loop device. Its space is reserved when it is
 * made: a sandbox that fills its disk gets ENOSPC, and the host never runs full under a journal.
 *
 *   disk_format(file, limit)   or   disk_copy(from, file)      in a process that may wait
 *   tree = disk_mount(&use)                                    a detached mount of the directory `d` in it
 *   disk_clear(tree)                                           before another sandbox begins with its files
 *
 * Ids on disk are those inside (0 to 65535), whatever range the sandbox has; what pid 1 makes is DISK_OUTER_ID's.
 * The loop device holds the file's lock, so that a disk that is mounted cannot be mounted twice.
 */
#pragma once

#include "base/base.h"

#define DISK_OUTER_ID 65536u
#define DISK_KEY 64 /* bytes */

struct statfs;

/* What the limit allows, and room for the file system itself: the size of a disk's file. */
uint64_t disk_file_bytes(uint64_t limit);
/* Is this an ext4 file system that holds no more than the limit? */
bool disk_is_bounded(const struct statfs *fs, uint64_t limit);
/* Reserves and formats an empty file. Needs mkfs.ext4. */
int disk_format(int file, uint64_t limit, struct err *e);
/* Whether a disk can be made here at all. */
int disk_probe(struct err *e);
struct disk_copy {
	int from, to;
	uint64_t max_bytes; /* of what is copied; 0: no bound */
	bool reserves;	    /* to will be written to */
	/* results: */
	bool shared; /* the blocks are those of from: the file system can do that */
	uint64_t bytes;
};

int disk_copy(struct disk_copy *c, struct err *e);

struct disk_use {
	int file; /* open for writing, also to read only: a journal may have to be replayed */
	uint32_t id_base; /* ids 0 to 65535 on disk are the host's from here on */
	/* Of a disk that nobody writes to and that was frozen when it was copied; others may read it, too. */
	bool read_only;
	const unsigned char *key; /* DISK_KEY bytes; NULL: not encrypted */
	uint32_t owner;		  /* of `d` on a new disk, as an id on disk; 0: DISK_OUTER_ID */
};

/*
 * A detached mount of `d`. ERR_CONFLICT: the disk is mounted already. A journal that the host's crash has left is
 * replayed first, also for one that is only read.
 */
int disk_mount(const struct disk_use *u, struct err *e);

/* ---- encrypt.c ---- */

/* Of `d`. Sets how a new disk is encrypted, and tries that the key is the disk's. ERR_DENIED: it is not. */
int disk_unlock(int top, const unsigned char *key, bool is_new, struct err *e);

/* ---- places.c ---- */

#define DISK_WAS "was"

/*
 * Prepares a disk for a sandbox with this root (any text): writes it down on a new disk, and refuses a disk that
 * was made for another one, because files of the one would be taken for directories of ours in the other.
 * Leaves of a used disk what a snapshot has as well. With keeps_root what was changed in the skeleton of the root
 * waits in the place DISK_WAS until it has been brought back.
 */
int disk_prepare(int tree, const char *root, bool keeps_root, struct err *e);
/* Removes what disk_prepare has thrown away, which may take long; the disk may be in use. */
void disk_empty_trash(int tree);
/* Has a used disk something that must be brought back? */
bool disk_has_was(int tree);
/* It is back: the next sandbox on this disk begins with what is there now. */
int disk_was_is_back(int tree, struct err *e);
