/* What a self test found at one level, as a table for people or as JSON. */
#pragma once

#include "base/jsonw.h"
#include "cli/selftest_level.h"

/* Prints the level's table to stdout or, if j is not NULL, adds an object to that. */
void report_level(const struct selftest *t, struct jsonw *j);
/* How many attacks of the level ended so. */
unsigned report_count(const struct selftest *t, enum outcome outcome);
