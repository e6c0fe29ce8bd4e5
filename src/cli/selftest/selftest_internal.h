/*
 * What the files of the self test share: the stage on the host, the attacks with their outcomes, and
 * one level of sandboxes under attack.
 *
 *   stage_open(&t.stage, &e);
 *   attacks_load(&t.stage, &names, &t.attacks, &e);
 *   t.container = true;
 *   level_attack(&t, &e);                   then t.attacks holds what came of each
 *   stage_close(&t.stage);                  accepts a half-opened stage
 */
#pragma once

#include "base/base.h"
#include "model/layer.h"

/* ---- programs ---- */

enum program_stdin { STDIN_TTY, STDIN_NULL, STDIN_DIRECTORY };

struct program {
	const struct list *argv;
	const char *cwd;
	enum program_stdin in;
	bool to_file; /* stdout is a file of the caller's, which holds out_text before */
	pid_t group;  /* runs in this process group; 0: in a session of its own */
	unsigned timeout_ms;
};

struct program_end {
	int status; /* as a shell shows it; -1: it took too long and was killed */
	char *out;
	char *err;
};
void program_end_done(struct program_end *end);
#define auto_program_end __attribute__((cleanup(program_end_done)))

/* ---- the stage ---- */

/* A running `cloche-probe --plant`, on the host or in a sandbox. */
struct plant {
	pid_t pid;
	int to, from;	   /* its stdin and stdout, -1 if closed */
	struct list facts; /* the "NAME=VALUE" lines that it began with */
};

#define PLANT_NONE                                                                                 \
	(struct plant)                                                                             \
	{                                                                                          \
		.pid = -1, .to = -1, .from = -1                                                    \
	}

struct test_stage {
	char root[64];
	char outside[128], hidden[128], ro[160], rw[160], work[128];
	char out_file[128], out_text[48];
	char tag[16], token[40], secret[40];
	char cloche[PATH_MAX], probe[PATH_MAX];
	int stop; /* a signalfd, so that a signal still removes all that was set up */
	struct plant host;
};

#define STAGE_NONE                                                                                 \
	(struct test_stage)                                                                        \
	{                                                                                          \
		.stop = -1, .host = PLANT_NONE                                                     \
	}

/* The paths in the sandbox of what the stage shows it; NULL: not shown. */
struct stage_paths {
	const char *ro, *ws, *rw;
};

int stage_open(struct test_stage *s, struct err *e);
void stage_close(struct test_stage *s);
/* Adds the canaries as "NAME=VALUE". peer: a plant in another sandbox, or NULL. */
void stage_canaries(const struct test_stage *s, const struct stage_paths *paths,
		    const struct plant *peer, struct list *ret);
/*
 * Runs a program to its end, as a careless caller would: with a terminal, open descriptors and secrets
 * in the environment.
 */
int stage_run(const struct test_stage *s, const struct program *p, struct program_end *ret,
	      struct err *e);
/* Restores the read-only file after a control. */
void stage_reset(const struct test_stage *s);

/* Starts a plant and waits until it is ready. */
int plant_start(const struct list *argv, const char *cwd, struct plant *ret, struct err *e);
/* Lets a plant clean up, and waits for its end. */
void plant_stop(struct plant *p);
/* Adds the names of the cases that reached the plant since the last call. */
void plant_hits(const struct plant *p, struct list *ret);
/* Counts the live processes with this tag in their command line; with end, kills them. */
unsigned count_tagged(const char *tag, bool end);

/* ---- attacks ---- */

/* Worse ones come later. */
enum outcome_kind {
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
	ATTACK_OUTSIDE = 16, /* an act: leaves processes behind, which we look for */
	ATTACK_KILL_OK = 32, /* being killed is a refusal */
};

struct attack {
	char *name, *title;
	char *setup;	     /* how it has to be started */
	struct list options; /* of its sandbox */
	unsigned flags;
	layer_set layers; /* that refuse it */
	bool control;	  /* it gets through outside, so that a refusal means something */
	enum outcome_kind outcome;
	char detail[200];
};

struct attacks {
	struct attack *items;
	size_t count;
};

/*
 * The rows of `cloche-probe --list` that are safe to try on a user's host. With names, only those; an
 * unknown name is an error.
 */
int attacks_load(const struct test_stage *s, const struct list *names, struct attacks *ret,
		 struct err *e);
void attacks_done(struct attacks *a);
/* Notes what came of an attack. The detail comes from inside a sandbox and is sanitised. */
void attack_note(struct attack *a, enum outcome_kind outcome, const char *detail);
const char *outcome_name(enum outcome_kind outcome);

/* ---- a level under attack ---- */

struct selftest {
	struct test_stage stage;
	struct attacks attacks;
	bool control; /* attacks now run outside of any sandbox, to see what gets through there */
	bool controlled;   /* that is done */
	bool container;	   /* the level: container or process */
	layer_set missing; /* layers that the level's record lists as missing */
};

/* Notes what came of one attack. */
void judge_attack(const struct selftest *t, struct attack *a, bool through, const char *detail);
/* Takes the probe's lines and the plant's hits; during the control only a->control is noted. */
void judge_lines(struct selftest *t, char *text);
void judge_hits(struct selftest *t);
/* Takes a record, whose stdout holds the probe's lines; alone: the only case tried, or NULL. */
void judge_record(struct selftest *t, const char *json, struct attack *alone);
/* The layers that a record lists as missing; -1 if the text is not a record. */
int judge_missing(const char *json, layer_set *ret);

const char *level_word(const struct selftest *t);
/* Does the attack make sense at this level? */
bool level_tries(const struct selftest *t, const struct attack *a);
/* Attacks sandboxes of the level, after the control if that is still to be done; -1: there is none. */
int level_attack(struct selftest *t, struct err *e);
