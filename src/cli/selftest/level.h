/*
 * Trying the attacks of a self test in sandboxes of one level, and once outside of any.
 *
 *   t.container = true;
 *   level_attack(&t, &e);                   then t.attacks holds what came of each
 */
#pragma once

#include "cli/selftest/judge.h"

const char *level_word(const struct selftest *t);
/* Does the attack make sense at this level? */
bool level_tries(const struct selftest *t, const struct attack *a);
/* Attacks sandboxes of the level, after the control if that is still to be done; -1: there is none. */
int level_attack(struct selftest *t, struct err *e);
