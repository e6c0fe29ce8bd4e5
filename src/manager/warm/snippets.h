/*
 * Snippets of Python in a sandbox that goes on: each would start an interpreter, which takes longer than
 * all the rest. So after the first one an interpreter is parked in the sandbox, as one of its own
 * processes, and later ones are copies of it (guest/python/snippet_prefork.py). A copy that would differ from
 * a new interpreter, or cannot be had, says so, and the snippet is started like any command.
 */
#pragma once

#include "manager/manager_internal.h"

/* The parked interpreter to be asked for a copy; 0: none is ready. */
uint32_t snippets_prefork(const struct sandbox *s);
/* One has ended: others may follow. */
void snippets_expect(struct sandbox *s);
/* Files that were placed for snippets: those of the last ones stay, what they started may look at them. */
void snippets_ended(struct sandbox *s, const char *file);
/* At once, of one that was never started. */
void snippets_remove(struct sandbox *s, const char *file);
void snippets_free(struct sandbox *s);
