/*
 * The refusal of a tool call that counts with every coding agent: they differ in the member that
 * they read, so it has all of them (docs/hook.md). Some read only the JSON, some only the exit
 * status, some want a reason on stderr; so a refusal is all three.
 */
#pragma once

#include "base/base.h"

/* Agents take this status as "refused", and most other failures as "go on without the hook". */
#define EXIT_REFUSED 2

/* Prints one JSON object and a newline. event: the name of the agent's event, or NULL. */
void refusal_print(FILE *to, const char *event, const char *reason);
