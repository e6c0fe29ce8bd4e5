/*
 * A workspace for tests: a new directory, made the current one, with `lower` (the host's) and
 * `upper` (what a command left, by the overlay's conventions) in it.
 */
#pragma once

#include <stdbool.h>

struct workspace {
	char top[64];
	int upper, lower;
	char *cwd;
};

/* Set-up and teardown of a cmocka test; *state is a struct workspace. */
int workspace_make(void **state);
int workspace_drop(void **state);

/* Writes a file, making the directories before it. */
void put(const char *path, const char *text);
bool holds(const char *path, const char *text);
bool exists(const char *path);
void whiteout(const char *path);
/* False where the file system has no user attributes. */
bool opaque(const char *path);
