/*
 * Python snippets in a long-lived sandbox. Starting an interpreter takes longer than everything else, so
 * after the first snippet the sandbox keeps a prefork of the interpreter (guest/python/snippet_prefork.py),
 * and later snippets run in copies of it. If no copy can be made, or a copy would differ from a new
 * interpreter, the snippet is started like any command.
 */
#pragma once

#include "manager/manager_internal.h"

/* The number of the prefork to copy; 0: none is ready. */
uint32_t snippets_prefork(const struct sandbox *s);
/* A snippet has ended and others may follow: starts a prefork if there is none. */
void snippets_expect(struct sandbox *s);
/* The file of a snippet that has ended. The latest files stay, since processes may still read them. */
void snippets_ended(struct sandbox *s, const char *file);
/* Removes the file of a snippet that was never started. */
void snippets_remove(struct sandbox *s, const char *file);
void snippets_free(struct sandbox *s);
