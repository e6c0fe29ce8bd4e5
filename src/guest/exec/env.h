/* The environment of a command, made from nothing (as sandbox/plan/environment.c does for `run`). */
#pragma once

#include "guest/link/server.h"

/* Is there such a user? The empty name, "user" and "root" are the same one. */
bool env_knows_user(const char *user);
/* Defaults, then the sandbox's, then the request's. */
void env_make(const struct guest *g, const char *user, const char *cwd, bool tty, struct list *ret);
