/* The broker's own judgement of what the front asks for (rule 6): pure, for tests. */
#pragma once

#include "base/base.h"
#include "policy/config.h"
#include "wire/ipc.h"

/* owner_name: of the owner's token, or "". */
int check_boot(const struct ipc_boot *b, const struct config *c, const char *owner_name,
	       struct err *e);
/* Within what the operator allows, and of a size that makes sense? */
int check_limits(const struct limits *l, const struct config *c, struct err *e);
/* The same for one ceiling alone; members that are 0 bound nothing. */
int check_ceiling(const struct limits *l, const struct limits *ceiling, struct err *e);
/* "", "-" or the id of a token. */
bool check_owner(const char *owner);
/* A name for people: printable, no slash, may be empty. */
bool check_name(const char *name);
