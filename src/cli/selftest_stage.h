/*
 * The host side of a self test: a directory with canaries, a process that holds what the attacks
 * reach for ("the plant"), and a way to start programs as a careless caller would, with a terminal,
 * open descriptors and secrets in the environment.
 *
 *   struct stage s;
 *   stage_open(&s, &e);
 *   stage_canaries(&s, &place, NULL, &argv);
 *   stage_run(&s, &start, &ended, &e);
 *   stage_close(&s);                       accepts a half-opened stage
 */
#pragma once

#include "base/err.h"
#include "base/list.h"

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

/* A running `cloche-probe --plant`, on the host or in a sandbox. */
struct plant {
	pid_t pid;
	int to, from;	   /* its stdin and stdout, -1 if closed */
	struct list facts; /* the "NAME=VALUE" lines that it began with */
};

struct stage {
	char root[64];
	char outside[128], hidden[128], ro[160], work[128];
	char tag[16], token[40], secret[40];
	char cloche[PATH_MAX], probe[PATH_MAX];
	struct plant host;
};

enum start_stdin { STDIN_TTY, STDIN_NULL, STDIN_DIRECTORY };

struct start {
	const struct list *argv;
	const char *cwd;
	enum start_stdin in;
	bool to_file;  /* stdout is a file of the host that holds the token */
	bool in_group; /* in the process group of the plant */
	unsigned timeout_ms;
};

struct ended {
	int status; /* as a shell shows it; -1: stopped by us, it took too long */
	char *out;
	char *err;
};

/* How the sandbox names what the stage shows it. */
struct place {
	const char *ro;
	const char *ws; /* NULL: there is none */
};

int stage_open(struct stage *s, struct err *e);
void stage_close(struct stage *s);

/* Adds the canaries as "NAME=VALUE"; peer is what a plant in another sandbox said, or NULL. */
void stage_canaries(const struct stage *s, const struct place *place, const struct plant *peer,
		    struct list *ret);
/* Runs a program to its end. ret is to be freed by ended_done. */
int stage_run(struct stage *s, const struct start *start, struct ended *ret, struct err *e);
void ended_done(struct ended *ended);
/* Starts a plant and waits until it says that it is ready. */
int plant_start(const struct start *start, struct plant *ret, struct err *e);
/* Lets a plant take its things away, and waits for it. */
void plant_stop(struct plant *p);
/* Which cases reached the host's plant since the last call; one name each. */
void stage_hits(struct stage *s, struct list *ret);
/* Puts the read-only file back as it was, after a control. */
void stage_reset(const struct stage *s);
/* Live processes with this tag in their command line; with end, they are killed. */
unsigned stage_tagged(const char *tag, bool end);
