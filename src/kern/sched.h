/*
 * For processes that pass on what others wait for: they run for a moment at a time, but as soon as they
 * are woken. Before their filter is loaded. Where the kernel has no such thing (before Linux 6.12), nothing
 * changes.
 *
 * Without it whoever is woken on a processor where a program ends waits until its memory was taken
 * apart, since an idle processor of a virtual machine is rarely chosen instead.
 */
#pragma once

#include "base/base.h"

void sched_be_prompt(void);
/*
 * Likewise a new process may be left on its parent's processor until that sleeps. This sends it to
 * another one; from then on it may go anywhere. For a child that has much to do while its parent goes on.
 */
void sched_send_elsewhere(pid_t pid);
/* Is there one for it? Where others want to run as well, moving it would only cost. */
bool sched_has_idle(void);
/*
 * Goes to that processor, and may leave it again. For who is going to wait for the last of what runs there:
 * it finds the processor free then, and need not wait for what the kernel cleans up on its own.
 */
void sched_go_to(int cpu);
