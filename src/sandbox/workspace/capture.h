/*
 * Captures files: the regular files of a workspace whose paths match a glob, with their contents.
 *
 * The merged view is searched, as the command saw it: the upper directory of a copy-on-write
 * workspace, and what shows through from the host's. The command's processes are dead by then. The
 * tree is walked by the rules of safe_walk.h, and no link is followed.
 *
 * Globs are the shell's: `*`, `?`, `[...]` within a name, `**` for any number of directories; a
 * leading dot has to be written. They are relative to the workspace, or begin with /workspace/.
 */
#pragma once

#include "model/result.h"

struct capture_view {
	int upper_fd; /* -1: the workspace is direct, no overlay */
	int lower_fd; /* -1: nothing shows through */
};

struct capture_limits {
	size_t files;
	uint64_t bytes; /* of all contents; a file that does not fit is truncated */
	size_t entries; /* names that are looked at */
};

#define CAPTURE_LIMITS_DEFAULT                                                                     \
	{                                                                                          \
		.files = 256, .bytes = 8 << 20, .entries = 200000,                                 \
	}

struct captured {
	struct captured_file *items; /* sorted by path */
	size_t count;
	size_t room;
	bool cut; /* there were more */
};

/* Are these globs valid? The error names the field "capture". */
int capture_check(const struct list *globs, struct err *e);
/* Narrows a view to one of its directories. Closes the fds that it replaces; -1: nothing is there. */
void capture_enter(struct capture_view *v, const char *path);
/* limits NULL: the defaults. On failure *ret is untouched. */
int capture_files(const struct capture_view *v, const struct list *globs,
		  const struct capture_limits *limits, struct captured *ret, struct err *e);
void captured_done(struct captured *c);
