/*
 * A snippet is code that runs as a file of its own, never as part of a command line. From its
 * language follow the name of the file, the command that runs it and the variables that let it
 * import modules of the workspace. With a guard (model/guard.h) the command is the guard's, and the
 * guard's files have to be there as well.
 */
#pragma once

#include "base/base.h"
#include "model/guard.h"
#include "model/language.h"

/* Interpreters of Node.js that wait in warm sandboxes are started for a program of this name. */
#define SNIPPET_NODE_PROGRAM "/tmp/.cloche/main.js"

/* The language of this name or alias, or the default for NULL; NULL and e if it is unknown. */
const struct language *snippet_language(const char *name, struct err *e);
bool snippet_is_python(const struct language *l);
/* DIR/NAME, or DIR/main.ENDING if name is NULL. The caller frees it. */
char *snippet_path(const struct language *l, const char *dir, const char *name);
/*
 * Appends the command that runs the file; the snippet's arguments follow. spec NULL: without a guard.
 * guard_dir and report as in struct guard_call. -1: the spec asks for a guard, and this is not Python.
 */
int snippet_argv(const struct language *l, const char *path, const struct sandbox_spec *spec,
		 const char *guard_dir, struct list *argv, struct err *e);
/* Appends variables, so that modules of the workspace are found as if the code lay there. */
void snippet_env(const char *workspace, struct list *env);
