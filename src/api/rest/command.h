/* Snippets in a sandbox that goes on: each gets a file of its own in a new directory. */
#pragma once

#include "calls/calls.h"
#include "manager/manager.h"
#include "model/snippet.h"

#define SNIPPET_PATH 64

/*
 * What cmd, shell, code, language and encoding of a body say. ret_language: of the snippet, whose file
 * and argv are up to the caller; NULL if it is a command.
 */
int command_read(const json_t *body, struct exec_request *r, const struct language **ret_language,
		 struct err *e);

/* A new one for each snippet. */
void snippet_choose_path(const struct language *l, char ret[SNIPPET_PATH]);
/* Writes the code, a JSON string that lives until done. */
struct call *snippet_put(struct sandbox *s, const char *path, const json_t *code, answer_done done,
			 void *arg);
/* Fills in what runs the file, which lives as long as ret; warm if possible (manager/warm/snippets.h). */
void snippet_request(const struct language *l, const char *path, struct exec_request *ret);
