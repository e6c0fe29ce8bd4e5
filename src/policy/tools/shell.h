/*
 * Reads a line for a shell as the commands that it would start, so that rules can look at them
 * (rules.h). Followed are quotes, lists, pipes, redirections, here documents, $(...), `...`, <(...),
 * and programs that start others: env, xargs, find -exec, sh -c and their like (wrappers.c).
 *
 *   struct shell_line l;
 *   shell_read(text, len, &l, &e);    -1: it cannot be read, and nobody knows what it starts
 *   ... l.commands[i].words[0].text is a program ...
 *   shell_line_done(&l);
 *
 * This explains refusals early and is no wall: a program may start anything. The sandbox is the wall.
 */
#pragma once

#include "base/base.h"

#define SHELL_TEXT_MAX (256u << 10)

struct shell_word {
	char *text; /* without quotes; of a word that is not known: with '?' for what is not */
	bool known; /* no variable, glob, substitution or brace is in it */
};

/* A word or a redirection's file of the line itself, not of something quoted in it; its text is known. */
struct shell_place {
	char *text;
	size_t at, len; /* with its quotes */
};

struct shell_command {
	struct shell_word *words; /* words[0] is the program */
	size_t count, room;
	struct list files; /* of redirections, where they are known */
	bool is_for;	   /* no program: the words of a loop */
};

struct shell_line {
	struct shell_command *commands;
	size_t count, room;
	struct shell_place *places; /* in their order */
	size_t place_count, place_room;
	char unclear[160]; /* "": all commands are here. Else: what hides others */
};

int shell_read(const char *text, size_t len, struct shell_line *ret, struct err *e);
void shell_line_done(struct shell_line *l);
