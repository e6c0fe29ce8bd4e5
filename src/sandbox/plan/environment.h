/* The command's environment: made from nothing; and the tool chains that --tools adds. */
#pragma once

#include "sandbox/plan/plan.h"

/* Leads what is at its default to another HOME and TMPDIR, known only after environment_make. */
void environment_move(struct plan *p, const char *home, const char *tmp);
/* Fills p->env; with spec->tools also adds mounts to p->binds. */
int environment_make(struct plan *p, const struct sandbox_request *request, struct err *e);
