/*
 * What cloche itself puts into a sandbox: files that the caller placed, and, in a copy-on-write
 * workspace, points to mount at. None of it is a change of the command's, nor may it alter what the
 * workspace already had: directories keep their modes, and nothing that is no directory gives way.
 */
#pragma once

#include "sandbox/plan/plan.h"

/* In pid 1, with the scratch as its working directory, before the workspace is shown. */
int inject_file(const struct plan *p, const struct injected_file *f, struct err *e);

/* In the keeper, when all is over: takes them out of the upper directory again. */
void inject_remove_points(const struct plan *p, int scratch);
/* Those that the command did not change. */
void inject_remove_files(const struct plan *p, int scratch);
