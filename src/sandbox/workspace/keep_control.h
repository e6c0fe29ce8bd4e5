/*
 * Keeps the control files of a workspace that a command writes to directly: what they were is read
 * before the command starts, and put back when all its processes are dead.
 *
 *   control_keep_begin(dir, &k, &e);
 *   ... the command runs
 *   control_keep_end(k, dir, &list, &e);
 *   control_keep_free(k);
 *
 * A control file (sandbox/workspace/control.h) that is new, or differs, is renamed: it gets the suffix
 * CONTROL_ASIDE. If there was one before, that is written again. Files that act only once they are
 * pushed stay as the command left them. While the command runs, nothing is kept.
 */
#pragma once

#include "sandbox/workspace/changes.h"

#define CONTROL_ASIDE ".cloche-set-aside"

struct control_keep;
/* Fails if there is more of them than can be kept in memory: 64M, or 20000 files. */
int control_keep_begin(int dir, struct control_keep **ret, struct err *e);
/* Lists what was put back or set aside, with kind "skipped"; list->failed counts what could not be. */
int control_keep_end(struct control_keep *k, int dir, struct change_list *ret, struct err *e);
void control_keep_free(struct control_keep *k);
