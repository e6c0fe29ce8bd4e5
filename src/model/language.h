/* The languages of snippets: the ending of their files and the program that runs them. */
#pragma once

#include "base/base.h"

struct language {
	const char *name;
	const char *ending;	/* of the file that holds the code */
	const char *program[3]; /* interpreter and its arguments before the file */
	const char *aliases;	/* blank-separated, blanks at both ends */
};

extern const struct language languages[];
extern const size_t language_count;

/* By name or alias. NULL if there is none; e then names `field` and the known languages. */
const struct language *language_find(const char *name, const char *field, struct err *e);
/* By a file's ending (".py"); NULL if none has it. */
const struct language *language_of_ending(const char *ending);
/* Interpreter, its arguments, file. */
void language_command(const struct language *l, const char *file, struct list *argv);
/* A note for people if an exit status is about the interpreter rather than the code; else NULL. */
const char *language_note(const struct language *l, int status);
