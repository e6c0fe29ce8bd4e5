/*
 * Scheduling of processes that relay work of others. sched_be_prompt gives the caller a short time slice, so
 * that it runs as soon as it is woken. Call it before the seccomp filter is loaded. It does nothing before
 * Linux 6.12.
 *
 * Without it, a process that is woken on a processor where a program ends waits until the kernel has freed
 * that program's memory: on a virtual machine an idle processor is rarely chosen instead.
 */
#pragma once

#include "base/base.h"

void sched_be_prompt(void);
/*
 * The same for a process of the daemon, which all tenants wait for: it also goes before what runs in sandboxes
 * (nice -3). The processes that it starts have the usual priority. An ordinary user may not do that, and gets
 * the short time slice only.
 */
void sched_lead(void);
/*
 * Moves a new process to another processor; from then on it may run anywhere. A child may otherwise wait on
 * its parent's processor until the parent sleeps. For a child that has much to do while its parent goes on.
 */
void sched_send_elsewhere(pid_t pid);
/* Is a processor idle? If not, moving a process would only cost time. */
bool sched_has_idle(void);
/*
 * Moves the caller to that processor; it may leave it again. For a process that waits for the end of a program
 * there: it runs once the program is done, before the kernel has cleaned up in the background.
 */
void sched_go_to(int cpu);
