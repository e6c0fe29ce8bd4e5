/*
 * Starting programs for a self test, as a careless caller would: with a terminal, open descriptors
 * and secrets in the environment.
 *
 *   struct ended ended;
 *   run_program(&caller, &start, &ended, &e);
 *   ended_done(&ended);
 */
#pragma once

#include "base/base.h"

/* What the caller of every program has about him. */
struct caller {
	const char *dir;      /* left open, and its file "secret", too */
	const char *secret;   /* in variables */
	const char *out_file; /* his, for a program whose stdout is a file */
	const char *out_text; /* what stands in that file before */
	int stop;	      /* readable when all is to stop (a signalfd) */
};

enum start_stdin { STDIN_TTY, STDIN_NULL, STDIN_DIRECTORY };

struct start {
	const struct list *argv;
	const char *cwd;
	enum start_stdin in;
	bool to_file; /* stdout is the caller's file */
	pid_t group;  /* in this process group; 0: in a session of its own */
	unsigned timeout_ms;
};

struct ended {
	int status; /* as a shell shows it; -1: stopped by us, it took too long */
	char *out;
	char *err;
};

/* Runs a program to its end. ret is to be freed by ended_done. */
int run_program(const struct caller *caller, const struct start *start, struct ended *ret,
		struct err *e);
void ended_done(struct ended *ended);

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

/* Starts a plant and waits until it says that it is ready; of start only argv and cwd count. */
int plant_start(const struct start *start, struct plant *ret, struct err *e);
/* Lets a plant take its things away, and waits for it. */
void plant_stop(struct plant *p);
/* The value of a fact, or NULL. */
const char *plant_fact(const struct plant *p, const char *name);
/* Adds the cases that reached the plant since the last call; one name each. */
void plant_hits(const struct plant *p, struct list *ret);

/* Live processes with this tag in their command line; with end, they are killed. */
unsigned count_tagged(const char *tag, bool end);
