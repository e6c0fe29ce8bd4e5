/*
 * --net ask: a person at the terminal decides on each destination that no rule allows, once, always or never. What was
 * decided for good becomes rules, which are printed as a policy at the end.
 */
#pragma once

#include "base/base.h"
#include "wire/egress.h"

#define ASK_WAITING 64

struct ask {
	int tty;		       /* 0: nobody is asked */
	struct egress_record *waiting; /* room for ASK_WAITING, the first one is on the screen */
	size_t count;
	bool is_shown;
	struct list allow, deny; /* rules that were learned */
};

struct ask_answer {
	uint64_t serial; /* of the connection that waits */
	bool allow;
	bool learned; /* there is a new rule */
};

/* An error without a terminal. */
int ask_open(struct ask *a, struct err *e);
/* False: too many wait; it is refused. */
bool ask_add(struct ask *a, const struct egress_record *r);
/* Call it when the terminal can be read. False: no answer yet. */
bool ask_read(struct ask *a, struct ask_answer *ret);
/* Prints what was learned. */
void ask_done(struct ask *a);
