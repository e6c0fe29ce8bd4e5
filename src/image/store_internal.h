/* What the files of the store share. */
#pragma once

#include "image/image.h"
#include "kern/dirents.h"

/* Opens and locks a file of the store; how is LOCK_... */
int image_lock_file(const struct image_store *s, const char *name, int how, struct err *e);
/* Removes a tree that may hold anything; -1 with errno. */
int image_remove_tree(int dir, const char *name);
