/*
 * The processes that come from one command, however they were forked.
 *
 * A process that forks twice and starts a session of its own cannot be recognised by ancestry,
 * group or session. But limits are inherited: RLIMIT_RTTIME, which means nothing for processes that
 * cannot be real-time, carries a mark that names the command. A filter of the command's own
 * (policies/seccomp/mark.txt) refuses to change it. A cgroup for each command would serve as well, but
 * only where the host gives us cgroups, and a sandbox's pid 1 would have to hold a writable file
 * of each. Ancestry, group and session are checked besides.
 */
#pragma once

#include "base/base.h"

/* For this guest (its boot id) and command. */
uint64_t tree_mark(uint64_t boot_id, uint32_t eid);
/* The command that a process comes from, by its mark; 0: unknown. */
uint32_t tree_owner(uint64_t boot_id, pid_t pid);
/*
 * In the mark of a prefork and its copies: higher than any eid, because a copy's mark can only be
 * lowered.
 */
#define TREE_PREFORK(eid) (UINT32_MAX - (eid))
/* Gives a process, and its later children, to another command; -1: that is not possible. */
int tree_move(pid_t pid, uint64_t mark);
/* -1: there is no such process. */
pid_t tree_parent(pid_t pid);
/*
 * Signals each process of the tree once, and returns how many. root: the command's pid, or 0 if it
 * was reaped.
 */
size_t tree_signal(uint64_t mark, pid_t root, int sig);
