/*
 * What people see while a file of tasks runs: on a terminal a row with a bar for each task that runs, and a bar of all
 * tasks; elsewhere a line for each task that has ended. All of it goes to stderr.
 */
#pragma once

#include "base/base.h"

struct task_table;

/* done: tasks that are not run again. */
struct task_table *task_table_new(size_t count, size_t done);
/* what: its name, or the beginning of its text; timeout_ms 0: it has no bound. */
void task_table_start(struct task_table *t, size_t line, const char *what, uint64_t timeout_ms);
/* how: in words, or NULL if it succeeded. */
void task_table_end(struct task_table *t, size_t line, const char *how);
/* It will be tried again: nothing has ended. */
void task_table_forget(struct task_table *t, size_t line);
/* Time has passed. */
void task_table_draw(void *t);
/* The last bar stays. */
void task_table_free(struct task_table *t);
