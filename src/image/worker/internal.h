/* What the files of cloche-image share. */
#pragma once

#include "base/base.h"
#include "kern/seccomp.h"

/*
 * Gives up all rights. Only what `readable` names (NULL at the end) can be read from then on; NULL: nothing, and
 * nothing can be connected to.
 */
int worker_shut_in(const struct seccomp_profile *profile, const char *const *readable,
		   struct err *e);
/* The token in a registry's answer, or NULL; the caller frees it. */
char *worker_token(const struct buf *answer);
