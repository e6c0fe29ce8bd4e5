/* Code that runs in a sandbox which goes on: as a file of its own, never as part of a command line. */
#pragma once

#include "manager/manager.h"

struct language;

#define SNIPPET_PATH 64

/* A new one for each. */
void snippet_path(const struct language *l, char ret[SNIPPET_PATH]);
/* What runs it, once it is there; warm if that can be (manager/snippets.h). */
void snippet_request(const struct language *l, const char *path, struct exec_request *ret);
