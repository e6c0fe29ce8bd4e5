/*
 * Confined helpers: verbs of cloche-guest that read archives and trees that strangers made. They run in a user
 * namespace of their own, with one directory as their root, without a network, without other processes, and
 * behind a seccomp filter (rule 11).
 */
#pragma once

#include "base/base.h"

struct confined_helper {
	const char *verb; /* "pack", "pack-was", "pack-layer", "check", "unpack", "assemble" */
	int guest;	  /* the program, a memfd */
	int root;	  /* directory */
	int in, out;	  /* -1: /dev/null */
	int err;	  /* 0 or -1: /dev/null */
	bool rootless;
	/* As root: ids that it owns, 65536 of them. With `mapped` root is a detached mount, and 0 to 65535 on disk. */
	uint32_t id_base;
	bool mapped;
	bool writes; /* it makes files in root; otherwise it only reads them */
};

/* Starts one; the caller waits for its end. Killed with the caller. */
pid_t confined_helper_start(const struct confined_helper *t, struct err *e);
