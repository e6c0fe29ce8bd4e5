/* A /proc of the sandbox's own, without what tells about the host. */
#pragma once

#include "base/err.h"

#include <stdbool.h>

/*
 * Mounts it at root/proc and hides files there. The working directory is the scratch, whose files
 * cover them; id makes the boot id. caller_is_root: an ordinary user inside who is the host's root
 * outside could read more.
 */
int procfs_show(int root, const char *id, bool caller_is_root, struct err *e);
/*
 * The same in steps, for who does it again and again: every /proc of a host has the same files, and
 * what covers them, in the directory covers, is empty and can be shared.
 */
int procfs_make_covers(int dir, struct err *e);
unsigned procfs_look(int proc, bool caller_is_root);
int procfs_show_known(int root, const char *id, int covers, unsigned masks, struct err *e);
