/*
 * cloche-image: reads what registries and archives hold, for `cloche image`. One process does one thing with one
 * input, gives up all rights first, and what it says is judged by its caller.
 *
 *   cloche-image inflate             a layer on fd 0, as a tar on fd 1
 *   cloche-image parse KIND ARCH     JSON on fd 0; "KEY VALUE" and a NUL each on fd 1:
 *     manifest                       child DIGEST SIZE NAME for each of an index, or
 *                                    config DIGEST SIZE, layer DIGEST SIZE MEDIA-TYPE for each
 *     docker                         image -, config PATH, tag NAME, layer PATH for each of an archive
 *     config                         a record (image/image.h)
 *     passwd                         UID:GID; the input is a passwd file, and ARCH a user
 *     show, history                  text for people
 *   cloche-image fetch               see image/fetch.h
 *
 * What goes wrong is said on fd 2, and the status is 1.
 */
#pragma once

#include "base/base.h"

int worker_inflate(void);
int worker_parse(const char *kind, const char *arch);
/* The same of a text, to a file. */
int worker_parse_text(const char *kind, const char *arch, const char *text, size_t len, FILE *to);
int worker_fetch(void);
