/*
 * Copiers: forks of the broker that feed a throwaway process, count and hash what goes through, and
 * say in the end how it went.
 */
#pragma once

#include "daemon/throwaway.h"

struct copier {
	/* "pack": its output goes to file; "check": file is its input; "take": nobody, in goes to file */
	struct throwaway work;
	int file;
	int unwanted;	    /* "take": the other end of in, which is not ours */
	uint64_t max_bytes; /* 0: no bound */
	pid_t pid;	    /* 0: not started */
	int sock;	    /* readable when it has ended */
	bool is_due, was_reaped;
};

struct copier_result {
	struct err err;
	uint64_t size;
	char digest[80];
};

int copier_start(struct copier *c, struct err *e);
/* After sock became readable. */
int copier_finish(struct copier *c, struct copier_result *ret, struct err *e);
/* Kills it if it still runs. */
void copier_stop(struct copier *c);
