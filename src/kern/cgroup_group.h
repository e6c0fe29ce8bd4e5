/*
 * Groups: the cgroup "GROUP/NAME" is a member of a cgroup that is there for its members only. It exists while it
 * has members, and together they have the share of the processors that any other single cgroup has.
 */
#pragma once

#include "kern/cgroup.h"

/* Makes the group of this name below parent, if it has one. -1 with errno. */
int cgroup_group_make(int parent, const char *name);
/* Removes the group of this name if it has no member any more. */
void cgroup_group_drop(int parent, const char *name);
/*
 * The name by which a cgroup is found: `name`, or that of a member of a group that begins with prefix, also if
 * only a cgroup is left whose name begins with it. `likely`: looked at first. If there is none, `name`.
 */
void cgroup_group_find(const struct cgroup_place *p, const char *prefix, const char *likely,
		       const char *name, char ret[CGROUP_NAME]);
/*
 * The names of all cgroups that begin with prefix, each once; of members of groups the part behind the group.
 * Groups that begin with group_prefix and are empty are removed.
 */
void cgroup_list(const char *table, const char *prefix, const char *group_prefix, struct list *ret);
