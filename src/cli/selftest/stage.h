/*
 * The host side of a self test: a directory with canaries, and a process that holds what the
 * attacks reach for ("the plant").
 *
 *   struct stage s;
 *   stage_open(&s, &e);
 *   stage_canaries(&s, &place, NULL, &argv);
 *   stage_run(&s, &start, &ended, &e);
 *   stage_close(&s);                       accepts a half-opened stage
 */
#pragma once

#include "base/base.h"
#include "cli/selftest/run.h"

struct stage {
	char root[64];
	char outside[128], hidden[128], ro[160], rw[160], work[128];
	char out_file[128], out_text[48];
	char tag[16], token[40], secret[40];
	char cloche[PATH_MAX], probe[PATH_MAX];
	int stop; /* a signalfd: what was put down is taken away before we go */
	struct plant host;
};

#define STAGE_NONE                                                                                 \
	(struct stage)                                                                             \
	{                                                                                          \
		.stop = -1, .host = PLANT_NONE                                                     \
	}

/* How the sandbox names what the stage shows it; NULL: it does not. */
struct place {
	const char *ro, *ws, *rw;
};

int stage_open(struct stage *s, struct err *e);
void stage_close(struct stage *s);

/* Adds the canaries as "NAME=VALUE"; peer is what a plant in another sandbox said, or NULL. */
void stage_canaries(const struct stage *s, const struct place *place, const struct plant *peer,
		    struct list *ret);
/* Runs a program to its end, with the stage's things left open. ret: ended_done. */
int stage_run(const struct stage *s, const struct start *start, struct ended *ret, struct err *e);
/* Puts the read-only file back as it was, after a control. */
void stage_reset(const struct stage *s);
