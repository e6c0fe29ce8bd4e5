/*
 * Copiers: forks of the broker that feed a throwaway process, count and hash what goes through, and
 * say in the end how it went.
 */
#pragma once

#include "base/loop.h"
#include "provider/confined_helper.h"

struct copier_result {
	struct err err;
	uint64_t size;
	char digest[80];
};

/* e NULL: all of it was copied. The copier has been stopped. */
typedef void (*copier_done)(void *arg, const struct copier_result *r, const struct err *e);

struct copier {
	/* "pack": its output goes to file; "check": file is its input; "take": nobody, in goes to file */
	struct throwaway work;
	int file;
	int unwanted;	     /* "take": the other end of in, which is not ours */
	uint64_t max_bytes;  /* 0: no bound */
	uint64_t timeout_ms; /* 0: none */
	copier_done done;
	void *arg;
	/* kept by it */
	struct loop *loop; /* NULL: it does not run */
	int pidfd;
	struct loop_watch watch;
	struct loop_timer timer;
};

int copier_start(struct copier *c, struct loop *l, struct err *e);
/* Kills it if it runs; done is not called any more. */
void copier_stop(struct copier *c);
