/* The command's environment: made from nothing; and the tool chains that --tools adds. */
#pragma once

#include "sandbox/plan.h"

/* Fills p->env; with spec->tools also adds mounts to p->binds. */
int environment_make(struct plan *p, const struct sandbox_request *request, struct err *e);
