/*
 * The attacks of a self test: the rows of `cloche-probe --list` that are safe to try on a user's
 * host, and what came of each.
 */
#pragma once

#include "base/base.h"
#include "cli/selftest/stage.h"
#include "model/layer.h"

/* Worse ones come later. */
enum outcome {
	OUTCOME_NONE,
	OUTCOME_REFUSED,
	OUTCOME_CANNOT_TELL,
	OUTCOME_WEAK,	     /* not refused, and the record says that the level lacks the layer */
	OUTCOME_GAP,	     /* not refused, and SECURITY.md says so */
	OUTCOME_NOT_REFUSED, /* not refused, and it should be */
	OUTCOME_COUNT
};

/* As in the probe's table. */
enum attack_flag {
	ATTACK_SAFE = 1,
	ATTACK_CONTAINER_ONLY = 2,
	ATTACK_WEAK = 4,
	ATTACK_GAP = 8,
	ATTACK_OUTSIDE = 16, /* an act: leaves processes behind, and we look for them */
	ATTACK_KILL_OK = 32, /* being killed is a refusal */
};

struct attack {
	char *name, *title;
	char *setup;	     /* how it has to be started */
	struct list options; /* of its sandbox */
	unsigned flags;
	layer_set layers; /* what refuses it */
	bool control;	  /* it gets through outside, so that a refusal means something */
	enum outcome outcome;
	char detail[200];
};

struct attacks {
	struct attack *items;
	size_t count;
};

/* Asks the stage's probe; with names, only those, and a name that is none of them is an error. */
int attacks_load(const struct stage *s, const struct list *names, struct attacks *ret,
		 struct err *e);
void attacks_done(struct attacks *a);
/* NULL if there is no such attack. */
struct attack *attacks_find(const struct attacks *a, const char *name);
/* Notes what came of it; detail comes from inside a sandbox and is made harmless. */
void attack_note(struct attack *a, enum outcome outcome, const char *detail);
const char *outcome_name(enum outcome outcome);
