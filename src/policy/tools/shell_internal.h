/* Shared by shell.c (the text) and wrappers.c (programs that start programs). */
#pragma once

#include "policy/tools/shell.h"

#define SHELL_DEPTH 12
#define SHELL_WORDS 5000

/* A word whose end is awaited by a here document. */
struct shell_here {
	char *delimiter;
	bool quoted, tabs;
	size_t command; /* that reads it */
};

/* One text: the line, or something in it that a shell reads again. */
struct shell_reader {
	const char *text;
	size_t len, at;
	unsigned depth;
	struct shell_line *line;
	size_t *word_count; /* of all texts together */
	struct shell_here here[8];
	size_t here_count;
	struct err *e;
};

/* Reads another text into the same line, one level deeper. */
int shell_read_inner(struct shell_reader *r, const char *text, size_t len);
/* Notes that commands may be hidden; the first reason stays. */
void shell_unclear(struct shell_line *l, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* A command whose words are all there: what does it start? */
int shell_follow(struct shell_reader *r, size_t index, unsigned depth);
/* A new command behind the others; valid until the next one. */
struct shell_command *shell_add_command(struct shell_line *l);
struct shell_word *shell_add_word(struct shell_command *c);
/* The last part of a program's path. */
const char *shell_name(const char *program);
bool shell_is_shell(const char *program);
/* Reserved words: those that change nothing about the command behind them, and those that are not understood. */
bool shell_is_passed_over(const char *word);
bool shell_is_refused(const char *word);
/* NAME=VALUE, as it stands in the text: the name has no quotes. */
bool shell_is_assignment(const char *raw, size_t len);
/* Has a text, read as words are, a substitution in it that was quoted? */
bool shell_has_quoted_command(const char *text);
/* "NAME=VALUE": may it make a program start another one? */
bool shell_variable_is_read(const char *assignment);
