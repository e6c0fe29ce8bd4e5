/* Environment variables of commands: made from nothing, the same for a run and for a sandbox that lives on. */
#pragma once

#include "base/base.h"

/* Sets "K=V", which the list owns from then on, in place of an earlier value; what is no variable is freed. */
void variables_take(struct list *env, char *pair);
void variables_set(struct list *env, const char *pair);
/* NULL: it is not set. */
const char *variables_get(const struct list *env, const char *name);

struct variables_usual {
	const char *tools; /* in front of PATH, ends with a colon or is empty */
	const char *home, *user, *shell, *cwd;
	const char *term;    /* NULL: no terminal */
	uint64_t cpus_milli; /* 0: libraries may have as many threads as they like */
	bool offline;	     /* there is no use in trying again to reach the network */
};
void variables_set_usual(struct list *env, const struct variables_usual *u);
