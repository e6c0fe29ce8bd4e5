/* What extraction does otherwise for a layer of an image; see struct tar_layer. */
#pragma once

#include "wire/tar.h"

#define TAR_LAYER_MARK ".wh."

/* Is the entry within the bounds, and of a kind that layers have? Counts what is left out of it. */
int tar_layer_judge(struct tar_layer *l, uint64_t entries, const struct tar_entry *n,
		    struct err *e);
mode_t tar_layer_mode(const struct tar_layer *l, const struct tar_entry *n);
/* Sets the owner of dir/name; name "" is dir itself. */
int tar_layer_own(struct tar_layer *l, int dir, const char *name, const struct tar_entry *n,
		  struct err *e);
/* Is it an overlay's mark of a removed name? */
bool tar_layer_is_mark(const struct stat *st);
/* Nothing of the layers below shows through this directory; -1 with errno. */
int tar_layer_hide_lower(int dir);
/* Takes an entry whose name begins with TAR_LAYER_MARK. */
int tar_layer_remove(int dir, const char *mark, struct err *e);
