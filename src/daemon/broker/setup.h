/* What the broker needs before it begins: directories, locks, the guest's program, volumes. */
#pragma once

#include "base/base.h"
#include "policy/config.h"

struct daemon;

int prepare(struct daemon *d, struct err *e);
/* Opens the operator's volumes (rule 4); what was open before is replaced. */
int prepare_volumes(struct daemon *d, const struct config *c, struct err *e);
