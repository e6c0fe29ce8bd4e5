/*
 * Snapshot workers: forks of the broker that copy a snapshot to or from a confined helper, count and hash its
 * bytes, and report the result.
 */
#pragma once

#include "base/loop.h"
#include "kern/confined_helper.h"
#include "provider/provider.h"

struct snapshot_worker {
	/*
	 * "pack", "pack-was": its output goes to file; "check": file is its input; "take": no helper, in goes to file.
	 * Of disks: "format": file becomes one of max_bytes; "copy": of in to file, to be written to; "clone": the
	 * same while the file system that root is in stands still; "pack-disk": "pack" of the disk in;
	 * "empty": removes what root, on a disk, has in its trash; "volume": "format", and its first mount.
	 */
	struct confined_helper work;
	int file;
	int unwanted;	    /* "take": the other end of in, closed in the worker */
	uint64_t max_bytes; /* 0: no bound */
	bool has_disk_key;  /* "pack-disk", "volume" */
	unsigned char disk_key[IPC_DISK_KEY_BYTES];
	uint64_t timeout_ms; /* 0: none */
	provider_done done;  /* the result has size and digest; the worker has been stopped */
	void *arg;
	/* private: */
	struct loop *loop; /* NULL: it does not run */
	int pidfd;
	struct loop_watch watch;
	struct loop_timer timer;
};

int snapshot_worker_start(struct snapshot_worker *c, struct loop *l, struct err *e);
/* Kills it if it runs; done is not called any more. */
void snapshot_worker_stop(struct snapshot_worker *c);
