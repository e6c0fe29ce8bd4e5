/*
 * A workspace for tests: a new directory, made the current one, with `lower` (the host's) and
 * `upper` (what a command left, by the overlay's conventions) in it.
 */
#pragma once

#include "sandbox/workspace/changes.h"

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

/* "kind path\n" for each change, as one string to compare with. */
const char *lines(const struct change_list *l);
/* Collects the changes, with the default limits if limits is NULL; the caller frees the list. */
struct change_list run(struct workspace *w, bool apply, const struct change_options *limits);
/* Collects the changes and compares their lines. */
void expect(struct workspace *w, bool apply, const char *want);
void expect_no_temp_files(void);
