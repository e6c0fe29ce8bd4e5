/* The broker's own checks of the front's requests (rule 6). Pure functions, so that tests can call them. */
#pragma once

#include "base/base.h"
#include "policy/config.h"
#include "wire/ipc.h"

/* All but which volumes there are. */
int check_boot(const struct ipc_boot *b, const struct config *c, struct err *e);
/* Does the operator offer this volume to the owner like that? owner_name: of the owner's token, or "". */
int check_offered_volume(const struct ipc_volume *v, const char *owner, const char *owner_name,
			 const struct config *c, struct err *e);
/* Checks that each limit makes sense and is within the operator's ceiling. */
int check_limits(const struct limits *l, const struct config *c, struct err *e);
/* Checks one ceiling alone; its members that are 0 bound nothing. */
int check_ceiling(const struct limits *l, const struct limits *ceiling, struct err *e);
/* "", "-" or the id of a token. */
bool check_owner(const char *owner);
/* A display name: printable, no slash, may be empty. */
bool check_name(const char *name);
