/*
 * Confined helper processes: `cloche-guest pack` and `check` read what strangers made, so they run with a
 * user namespace in which they own that sandbox's files and nothing else, that tree as their root, no
 * network, no other process, and a filter (rule 11).
 */
#pragma once

#include "base/base.h"

struct confined_helper {
	const char *verb; /* "pack" or "check" */
	int guest;	  /* the program */
	int root;	  /* directory */
	int in, out;	  /* -1: /dev/null */
	bool rootless;
	uint32_t id_base; /* as root: ids that it owns */
};

/* Starts one; the caller waits for its end. Killed with the caller. */
pid_t confined_helper_start(const struct confined_helper *t, struct err *e);
