/*
 * Which pages of a warm interpreter its tasks find mapped.
 *
 * Theory of operation
 *
 * A task pays one page fault for each page that it writes to, and one for each group of pages that
 * it reads and that is not in the page tables which it inherited. It also pays for each page that
 * is in these tables, needed or not, when the tables are copied and when they are freed. Nearly all
 * tasks need the same pages. So the interpreter first forks two samplers: each carries out a sample
 * request, then looks which pages are present in its tables, and which of these it has written to.
 * A sampler's tables start empty: all large mappings are mappings of files (image.c), and the
 * sampler cuts them into pieces of one page, so that the kernel does not map neighbours as well.
 *
 * A task copies the pages that the first sampler wrote to before it waits for a request. The other
 * pages that the samplers needed are in the interpreter's tables when it is forked, and no others.
 * If these lists are wrong, or there are none because there is no /proc/self/pagemap, tasks are
 * slower, and nothing else.
 */
#pragma once

#include "base/base.h"

/*
 * In the interpreter, when all modules are loaded, called twice: prepares its memory, then forks by
 * `how`.
 */
pid_t pages_send_sampler(pid_t (*how)(void));
/* At the end of a process: a sampler writes its report. */
void pages_report(void);
/* In the interpreter, when both samplers have ended. */
void pages_take_report(void);
/* In a task: copies the pages that it will write to. */
void pages_touch(void);
