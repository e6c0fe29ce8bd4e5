/*
 * Snapshot workers: forks of the broker that feed a confined helper process, count and hash what goes through, and
 * say in the end how it went.
 */
#pragma once

#include "base/loop.h"
#include "provider/confined_helper.h"

struct snapshot_worker_result {
	struct err err;
	uint64_t size;
	char digest[80];
};

/* e NULL: all of it was copied. The snapshot worker has been stopped. */
typedef void (*snapshot_worker_done)(void *arg, const struct snapshot_worker_result *r,
				     const struct err *e);

struct snapshot_worker {
	/* "pack": its output goes to file; "check": file is its input; "take": nobody, in goes to file */
	struct confined_helper work;
	int file;
	int unwanted;	     /* "take": the other end of in, which is not ours */
	uint64_t max_bytes;  /* 0: no bound */
	uint64_t timeout_ms; /* 0: none */
	snapshot_worker_done done;
	void *arg;
	/* kept by it */
	struct loop *loop; /* NULL: it does not run */
	int pidfd;
	struct loop_watch watch;
	struct loop_timer timer;
};

int snapshot_worker_start(struct snapshot_worker *c, struct loop *l, struct err *e);
/* Kills it if it runs; done is not called any more. */
void snapshot_worker_stop(struct snapshot_worker *c);
