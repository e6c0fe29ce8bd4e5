/* What the files of src/warm share. */
#pragma once

#include "warm/warm.h"

/* ---- inspect.c: what is proven of a warm sandbox by looking at it from inside ---- */
/*
 * Is this process in the cgroup that its cgroup namespace is rooted in, with each controller that
 * limits? All their lines of /proc/self/cgroup then read "/". A write that only seemed to join
 * would show another path.
 */
bool warm_is_in_cgroup(void);
/* Has this process left that cgroup? To be asked in the namespace that it comes from. */
bool warm_left_cgroup(void);
/*
 * Are the writable directories on this warm sandbox's scratch file system, and is /proc not the
 * warm host's?
 */
bool warm_places_are_own(const struct warm_settings *t, int scratch);

/* ---- spawner.c ---- */
/*
 * Starts the spawner of a lane, in the lane. ret_sandboxes: where warm sandboxes report from now
 * on, instead of to control.
 */
int spawner_start(const struct warm_settings *t, const struct spawner_settings *s, int control,
		  int *ret_sandboxes, struct err *e);
