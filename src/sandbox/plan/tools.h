/*
 * --tools: the tool chains that the caller's PATH names, as read-only mounts.
 *
 * Theory of operation
 *
 * A directory in PATH is shown at the name that it has there, along with the prefix of its tool chain, and its name
 * may lead by way of links (~/.nix-profile, fnm). Not so by links that code inside may have made: in the
 * workspace and in the current directory, to which earlier runs may have written. Such a link would make
 * the caller show whatever directory it leads to.
 *
 * What lies in the workspace is there with it, and stays as writable as that is. The others are mounted
 * before the workspace: that may lie in one of them.
 */
#pragma once

#include "sandbox/plan/plan.h"

/*
 * Adds mounts to p->binds, and to p->env what programs need to find the rest. Returns the directories to
 * put in front of PATH, each followed by ':'; the caller frees it.
 */
char *tools_add(struct plan *p);

/* Once it is known whether there is a workspace: needs no mount of its own. */
bool tools_is_in_workspace(const struct plan *p, const struct bind *b);
/* Is mounted before the workspace. */
bool tools_goes_first(const struct plan *p, const struct bind *b);
