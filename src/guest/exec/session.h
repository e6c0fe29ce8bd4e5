/*
 * Named shell sessions: cd, exported variables and functions of one command are there in the next.
 *
 * Each command is a shell of its own, so that its status is the kernel's and not what a shell claims.
 * It starts by reading the session's state, a script below /tmp, and ends by writing a new one, which
 * takes the old one's place if it is whole. Code inside can change it: it could as well do what it
 * says.
 */
#pragma once

#include "guest/link/server.h"

struct session_settings {
	const char *name;
	bool is_line; /* argv is one line for a shell */
	bool login;
	const struct list *env; /* of this command */
};

/* Turns argv into one that keeps the session's state. */
void session_wrap(const struct guest *g, const struct session_settings *t, struct list *argv);
/* A command of it has ended. */
void session_keep(const struct guest *g, const char *name);
