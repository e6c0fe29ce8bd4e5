/*
 * The memory of a warm interpreter, as its tasks get it.
 *
 * Theory of operation
 *
 * A task pays with a page fault for each page that it writes to, and for each stretch that it reads
 * and that is not in the tables which it got from the fork; and for each page that is in these tables,
 * needed or not, when they are copied and when they are taken apart. Nearly all that a task needs
 * is the same in every one of them. So the interpreter has two children that are none, the samplers:
 * each does a sample request, then looks which pages it has come to have, and which of these are its
 * own. Its tables began empty: all large mappings are of files (image.h), and it cuts them into
 * pieces of one page, so that the kernel does not fill in neighbours as well.
 *
 * What the first sampler wrote to tasks make theirs before they wait for a request. What the samplers
 * needed otherwise is in the interpreter's tables when it is forked, and nothing else. If these lists are
 * wrong, or there are none because there is no /proc/self/pagemap, tasks are slower and nothing else.
 */
#pragma once

#include "base/base.h"

/* In the interpreter, when all its modules are loaded, twice: puts its memory in order, then forks by `how`. */
pid_t pages_send_sampler(pid_t (*how)(void));
/* At the end of a process; does something if that is a sampler. */
void pages_report(void);
/* In the interpreter, when both samplers are gone. */
void pages_take_report(void);
/* In a task. */
void pages_touch(void);
