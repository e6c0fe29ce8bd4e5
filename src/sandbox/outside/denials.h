/* Denials in words: what was refused, by which rule, and the smallest change that would allow it. */
#pragma once

#include "kern/seccomp.h"
#include "sandbox/outside/keeper.h"

/* The profile that this level's filter was made from. */
const struct seccomp_profile *denials_profile(const struct plan *p);
/* Fills r->denials from the status page and from r->limits_hit. */
void denials_list(const struct keeper *k, struct result *r);
