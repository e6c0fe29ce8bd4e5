/* What helps against the commonest ways to fail, as notes of the record. */
#pragma once

#include "model/result.h"
#include "sandbox/plan/plan.h"

/* Looks at how it ended, and at what was asked for. */
void hints_add(struct plan *p, const struct result *r);
