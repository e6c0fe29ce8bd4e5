/*
 * Judging a self test: what the probe said, whom the plant met and what the record owns up to
 * become outcomes of attacks.
 */
#pragma once

#include "cli/selftest/attacks.h"
#include "cli/selftest/stage.h"

struct selftest {
	struct stage stage;
	struct attacks attacks;
	bool control;	   /* outside of any sandbox now, to see what gets through there */
	bool controlled;   /* that is done */
	bool container;	   /* the level: container or process */
	layer_set missing; /* what the level's record owned up to */
};

/* Notes what came of one attack. */
void judge_attack(const struct selftest *t, struct attack *a, bool through, const char *detail);
/* Takes the probe's lines and the plant's hits; during the control only a->control is noted. */
void judge_lines(struct selftest *t, char *text);
void judge_hits(struct selftest *t);
/* Takes a record, whose stdout holds the probe's lines; alone: the only case tried, or NULL. */
void judge_record(struct selftest *t, const char *json, struct attack *alone);
/* The layers that a record lists as missing; -1 if it is none. */
int judge_missing(const char *json, layer_set *ret);
