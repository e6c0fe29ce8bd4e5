/*
 * Files that cloche itself puts into a sandbox: those that the caller gave, and, in a copy-on-write
 * workspace, mount points. They do not count as changes of the command, and they alter nothing that
 * the workspace already had: directories keep their modes, and a file in place of a directory is an
 * error.
 */
#pragma once

#include "sandbox/plan/plan.h"

/* In pid 1, with the scratch as its working directory, before the workspace is shown. */
int inject_file(const struct plan *p, const struct injected_file *f, struct err *e);

/* In the keeper, at the end: removes the mount points from the upper directory. */
void inject_remove_points(const struct plan *p, int scratch);
/* Removes the files that the command did not change. */
void inject_remove_files(const struct plan *p, int scratch);
