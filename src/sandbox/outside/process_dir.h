/*
 * Level process has no mounts: what its command writes goes to a directory of the host that is made
 * for it and removed with it. Layout: canary (what Landlock must refuse), open/home, open/tmp,
 * open/workspace.
 */
#pragma once

#include "sandbox/outside/keeper.h"

/* At level process: makes it, opens it as k->scratch and points the environment to it. */
int process_dir_make(struct keeper *k, struct err *e);
/* Removes it with all that is in it; an empty path is nothing to do. */
void process_dir_remove(const char *path);
