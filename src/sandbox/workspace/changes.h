/*
 * The changes of a command to its copy-on-write workspace: lists them, and applies them to the host.
 *
 * The upper directory of the overlay holds what the command left: hostile content, read when all its
 * processes are dead. The lower one is the host's workspace. safe_walk.h says how both are walked.
 *
 *   struct change_list l;
 *   changes_collect(upper, lower, &options, &l, &e);
 *   ... l.items[0..l.count) go into the result
 *   change_list_done(&l);
 *
 * Paths are relative to the workspace and sorted; a directory's ends in a slash. Directories are
 * named only where they themselves are the change: removed, empty, or of another mode.
 */
#pragma once

#include "model/result.h"

struct change_options {
	bool apply;	   /* bring the changes to the host; otherwise they are only listed */
	size_t records;	   /* changes that are listed; more only set `cut` */
	size_t entries;	   /* names that are looked at; the rest is not applied */
	uint64_t bytes;	   /* written to the host in all */
	uint64_t compared; /* bytes read to find out whether a file really changed */
	int64_t since_ns; /* wall clock: references of git that the host changed after it stay; 0: none */
	const struct list
		*also; /* paths that are applied although they are control files; may be NULL */
};

#define CHANGE_OPTIONS_DEFAULT                                                                     \
	{                                                                                          \
		.records = 1000, .entries = 1000000, .bytes = 16ULL << 30, .compared = 1ULL << 30, \
	}

struct change_list {
	struct change *items; /* note: why it was or would be skipped; or a warning */
	size_t count;
	size_t room;
	size_t total;	 /* changes, listed or not */
	size_t skipped;	 /* of those: not applied */
	size_t failed;	 /* of those: because the host could not, not because a rule forbids it */
	bool cut;	 /* more changes than are listed */
	bool incomplete; /* the tree is larger or deeper than the limits: not all was looked at */
};

/*
 * Lists the changes. options NULL: the defaults. On failure *ret is untouched.
 *
 * With `apply` they are brought to the host: regular files, directories and links, never followed; no set-id
 * or sticky bits, no special files, no control files (sandbox/workspace/control.h) and no links that lead out
 * of the workspace but those of `also`. A mode is never widened, except that who may read a file may also
 * execute it; new files obey the caller's umask. A change that could not or must not be applied is listed with kind "skipped" and a note. A file is complete
 * under its name or unchanged. As root, new files belong to the owner of the workspace.
 */
int changes_collect(int upper_fd, int lower_fd, const struct change_options *options,
		    struct change_list *ret, struct err *e);
void change_list_done(struct change_list *l);
