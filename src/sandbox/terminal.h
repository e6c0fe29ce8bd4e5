/* The caller's terminal while the command has one of its own: raw mode, size, bytes both ways. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <termios.h>

struct terminal {
	int master;  /* of the command's pty */
	bool is_raw; /* the caller's terminal was switched */
	struct termios saved;
	char pending[4096]; /* typed, not yet taken by the command */
	size_t pending_len;
	bool input_ended;
};

/* Switches the caller's terminal (if stdin is one) to raw mode and passes its size on. */
void terminal_start(struct terminal *t, int master);
void terminal_resize(const struct terminal *t);
void terminal_read_input(struct terminal *t);
void terminal_write_pending(struct terminal *t);
/* Copies output of the command to stdout; false at its end. */
bool terminal_copy_output(struct terminal *t);
/* Puts the caller's terminal back. */
void terminal_stop(struct terminal *t);
