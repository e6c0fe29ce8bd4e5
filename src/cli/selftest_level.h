/*
 * Trying the attacks of a self test: first outside of any sandbox, then in sandboxes of one level.
 *
 *   level_control(&t, &e);                  once
 *   t.container = true;
 *   level_attack(&t, &e);                   then t.attacks holds what came of each
 */
#pragma once

#include "cli/selftest_judge.h"

const char *level_word(const struct selftest *t);
/* Does the attack make sense at this level? */
bool level_tries(const struct selftest *t, const struct attack *a);
/* Notes which attacks get through where nothing stops them. */
int level_control(struct selftest *t, struct err *e);
/* Attacks sandboxes of the level; -1 if there is none. */
int level_attack(struct selftest *t, struct err *e);
