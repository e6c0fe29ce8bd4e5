/*
 * The memory of a warm interpreter, as its tenants get it.
 *
 * Theory of operation
 *
 * A fork copies page tables, not pages; a tenant then pays with a page fault for each page that it
 * writes to, and (Linux) for each stretch of a mapped file, since a fork leaves those tables out. Nearly
 * all of these pages are the same in every tenant. So the interpreter has one child that is none, the
 * scout: it does a sample request, then looks which pages have become its own. Tenants make these
 * theirs before they wait for a request. If that list is wrong, or there is none because there is no
 * /proc/self/pagemap, tenants are slower and nothing else.
 */
#pragma once

#include <sys/types.h>

/* In the interpreter, when all its modules are loaded: puts its memory in order, then forks by `how`. */
pid_t pages_send_scout(pid_t (*how)(void));
/* At the end of a process; does something if that is the scout. */
void pages_report(void);
/* In the interpreter, when the scout is gone. */
void pages_take_report(void);
/* In a tenant. */
void pages_touch(void);
