/*
 * The processes that come from one command, however they were forked.
 *
 * A process that forks twice and starts a session of its own has neither its ancestry, nor group, nor
 * session left. But limits are inherited, and a hard limit can only be lowered: RLIMIT_RTTIME, which
 * means nothing for processes that cannot be real-time, carries a mark that names the command.
 * Ancestry, group and session are looked at as well, for a process that changed it.
 */
#pragma once

#include "base/base.h"

/* For this guest (its boot id) and command. */
uint64_t tree_mark(uint64_t boot_id, uint32_t eid);
/* The command that a process comes from, by its mark; 0: unknown. */
uint32_t tree_owner(uint64_t boot_id, pid_t pid);
/* Of what a parked process makes, until it is a command of its own: limits are only ever lowered. */
#define TREE_PARKED(eid) (UINT32_MAX - (eid))
/* Gives a process, and all that comes from it later, to another command; -1: it is too late for that. */
int tree_move(pid_t pid, uint64_t mark);
/* -1: there is no such process. */
pid_t tree_parent(pid_t pid);
/* Signals each process of the tree once; root is the command's pid, or 0 if that is gone. Returns how many. */
size_t tree_signal(uint64_t mark, pid_t root, int sig);
