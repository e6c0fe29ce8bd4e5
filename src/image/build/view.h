/*
 * The files of several layers as one read-only tree: an overlay that nobody else sees. Paths in it are resolved as if
 * it were the root, so no link leads out of it.
 */
#pragma once

#include "image/make/make.h"

/* Returns a directory. No layers: an empty one. */
int view_open(struct image_maker *m, const struct list *layers, struct err *e);
/*
 * Where an absolute path leads: without links, and as far as it exists. *ret_exists: all of it does. The caller frees
 * the result; NULL: it leads through a link to nowhere, or through a file.
 */
char *view_resolve(int view, const char *path, bool *ret_exists, struct err *e);
/* Of a path without links; false if it is not there. */
bool view_stat(int view, const char *path, struct stat *ret);
/* A small file, links followed within the tree; false if it is not there. */
bool view_read(int view, const char *path, size_t max, struct buf *ret);
/* "/a/../b//c/." -> "/b/c", as text. */
char *view_clean(const char *dir, const char *path);
