/* The caller's terminal while the command has one of its own: raw mode, size, bytes both ways. */
#pragma once

#include "base/base.h"

#include <termios.h>

/* As much as a pipe takes without waiting when poll says that it can take something. */
#define TERMINAL_ROOM 4096

struct terminal {
	int master;  /* of the command's pty */
	int slave;   /* held, so that the pty does not end before the command does */
	int screen;  /* where output goes: stdout, or the terminal that it is, opened anew */
	bool is_raw; /* the caller's terminal was switched */
	struct termios saved;
	char *in; /* TERMINAL_ROOM bytes: typed, not yet taken by the command */
	size_t in_len;
	bool in_line; /* what was typed last was no end of a line */
	bool in_ended;
	char *out; /* printed by the command, not yet taken by our stdout */
	size_t out_len;
};

/* Switches the caller's terminal (if stdin is one) to raw mode and passes its size on. */
void terminal_start(struct terminal *t, int master);
void terminal_resize(const struct terminal *t);
/* Each moves what can be moved without waiting. */
void terminal_read_input(struct terminal *t);
void terminal_write_input(struct terminal *t);
/* False at the end of the command's output, or when there is none now and there will be none. */
bool terminal_read_output(struct terminal *t);
/* Call it when the screen can take something; false if it is gone. */
bool terminal_write_output(struct terminal *t);
/* Puts the caller's terminal back. */
void terminal_stop(struct terminal *t);
/* The terminal that fd is, opened anew so that writing there never waits; -1: it is none. */
int terminal_reopen(int fd);
