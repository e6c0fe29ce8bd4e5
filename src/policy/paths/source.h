/*
 * Sources: host paths that a caller wants to show inside (`--mount`, `--workspace`, the current
 * directory, `--file`, `--image`), judged by where they really lead.
 *
 * A path is opened first (O_PATH) and the fd is judged, never the name, so that nothing can be
 * swapped between check and use; sandbox/ mounts that very fd.
 */
#pragma once

#include "base/base.h"
#include "model/spec.h"

enum source_use {
	SOURCE_READ,
	SOURCE_WRITE,
	SOURCE_COPY, /* as lower layer of an overlay: what is mounted below it does not show */
	SOURCE_BARE, /* at level process: mounts below it show, but sockets cannot be connected to */
};

struct source {
	int fd;		     /* O_PATH | O_CLOEXEC, the caller closes it */
	char path[PATH_MAX]; /* where it really leads */
	struct stat st;
};

/*
 * Opens and judges one path (relative to the current directory or absolute; `~` is not expanded).
 * Refused, ERR_DENIED with field set to `field`: a forbidden path, anything below one, anything
 * that contains one, and with allow lists (spec mount_read, mount_write) what is outside of them.
 * Missing: ERR_NOT_FOUND. ret is untouched on failure.
 */
int source_open(const struct sandbox_spec *s, const char *field, const char *path,
		enum source_use use, struct source *ret, struct err *e);

/* The two halves of source_open: open and locate the path; judge it. fd stays the caller's. */
int source_look(const char *field, const char *path, struct source *ret, struct err *e);
int source_judge(const struct sandbox_spec *s, const char *field, const char *path,
		 enum source_use use, const struct source *source, struct err *e);

/*
 * Opens the source's real path again, in this mount namespace, without following links. Device and
 * inode must be those that were judged, so a swap in between is refused.
 */
int source_reopen(const struct source *s, struct err *e);

struct mount_request {
	char source[PATH_MAX];
	char target[PATH_MAX]; /* absolute and clean */
	bool writable;
};

/* Takes "SRC:DST[:ro|rw]" apart. DST must be absolute, without "..", not / /proc /sys /dev. */
int mount_request_parse(const char *text, struct mount_request *ret, struct err *e);
