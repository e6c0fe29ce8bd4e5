/* What is proven of a warm sandbox by looking at it, from inside. */
#pragma once

#include "base/base.h"

struct warm_settings;

/*
 * In the cgroup that the cgroup namespace is rooted in, with each controller that limits: all their
 * lines of /proc/self/cgroup then read "/". A write that only seemed to join would show another path.
 */
bool warm_is_in_cgroup(void);
/* Not in it any more: to be asked in the namespace that one comes from. */
bool warm_left_cgroup(void);
/* What can be written is of this warm sandbox's scratch file system, and /proc is not the warm host's. */
bool warm_places_are_own(const struct warm_settings *t, int scratch);
