/*
 * Writes tar archives in the format that wire/tar.h reads. Links are never followed.
 */
#pragma once

#include "wire/tar.h"

struct tar_out {
	/* 0, or -1 with errno. */
	int (*write)(void *arg, const void *bytes, size_t len);
	void *arg;
	bool upper;
	bool only_own; /* only files that belong to the user inside, at any depth */
	void *links;   /* kept by tar_out_* */
};

/*
 * Writes dir/name and all below it, named `as` in the archive. With "" the directory itself is left
 * out.
 */
int tar_out_tree(struct tar_out *t, int dir, const char *name, const char *as, struct err *e);
/* The end of the archive. */
int tar_out_end(struct tar_out *t, struct err *e);
