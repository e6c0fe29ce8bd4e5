/*
 * Reads /proc/PID. Nothing is allocated, and the only system calls are open, read, getdents64 and close, so
 * that a strict seccomp filter can allow them.
 */
#pragma once

#include "base/base.h"

/* /proc/PID/NAME as text that ends with NUL; -1, and an empty text, if it cannot be read. */
ssize_t procs_read(pid_t pid, const char *name, char *ret, size_t size);
/* The number behind a key; 0 if there is none. */
uint64_t procs_number(const char *text, const char *key);
/* Anonymous and shared memory, from /proc/PID/status. Pages of files do not count: they can be dropped. */
uint64_t procs_memory_bytes(const char *status);
/* The children of a process, separated by blanks; as procs_read. */
ssize_t procs_children(pid_t pid, char *ret, size_t size);

/* Fields of /proc/PID/stat by the numbers that proc(5) gives them; the state is a letter. */
enum procs_field {
	PROCS_STATE = 3,
	PROCS_PARENT = 4,
	PROCS_GROUP = 5,
	PROCS_SESSION = 6,
	PROCS_FLAGS = 9,
	PROCS_CHILD_FAULTS = 11,
	PROCS_USER = 14,
	PROCS_SYSTEM = 15,
	PROCS_CHILD_USER = 16,
	PROCS_CHILD_SYSTEM = 17,
	PROCS_START = 22,
	PROCS_EXIT = 52,
	PROCS_FIELDS
};

#define PROCS_STAT_BYTES 1280 /* enough for all fields */

/* False if the text is malformed. */
bool procs_parse_stat(const char *text, long long ret[PROCS_FIELDS]);
bool procs_stat(pid_t pid, long long ret[PROCS_FIELDS]);
/* Fields with times count clock ticks. */
uint64_t procs_ticks_ns(long long ticks);

/* Calls for each process that /proc shows. */
void procs_each(void (*call)(void *arg, pid_t pid), void *arg);
