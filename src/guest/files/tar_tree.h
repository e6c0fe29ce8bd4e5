/* Writes trees to tar archives. Links are never followed. */
#pragma once

#include "wire/tar_out.h"

struct tar_tree {
	struct tar_out out;
	bool upper;    /* of an overlay: whiteouts and opaque directories are written */
	bool only_own; /* only files that belong to the user inside, at any depth */
	/* Is this name taken, with all below it? NULL: all are. */
	bool (*takes)(void *arg, const char *name);
	void *arg;
};

/*
 * Writes dir/name and all below it, named `as` in the archive. With "" the directory itself is left
 * out.
 */
int tar_tree_write(struct tar_tree *t, int dir, const char *name, const char *as, struct err *e);
