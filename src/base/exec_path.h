/*
 * Finds and executes a program as execvpe does. Nothing is allocated and no lock is taken, so all of
 * it may be used between clone and exec.
 *
 * A name with a slash, or an empty one, is a path. Any other is looked for in the directories of PATH;
 * an empty part of PATH, which POSIX takes for the working directory, is skipped.
 */
#pragma once

#include "base/base.h"

/* What a sandbox has as its PATH, and what is searched where there is none. */
#define EXEC_PATH_DEFAULT "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* The value of PATH in an environment, or the default. */
const char *exec_path_of(char *const *env);
/*
 * The next file that name may mean: the name itself, or a path composed in room. *dirs is the rest of
 * PATH; it becomes NULL if name is a path. NULL: there are no more.
 */
const char *exec_path_next(const char *name, const char **dirs, char room[PATH_MAX]);

/* Called with each path before it is executed. */
typedef void exec_path_trying(void *arg, const char *path);
/*
 * Executes argv[0]; returns only if that failed, with the reason: ENOENT, EACCES if a file was found
 * that may not be executed, or what the kernel said of one that may be. trying may be NULL.
 */
int exec_path_run(char **argv, char **env, exec_path_trying *trying, void *arg);
