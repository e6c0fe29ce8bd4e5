/*
 * The memory of a warm interpreter as a file.
 *
 * A fork copies an entry of the page tables for each page of memory that is nobody's but the
 * process', and the end of the child takes each of them apart again, whether the child ever looked at
 * it or not. Pages of a file need not be in the tables: they are found when they are asked for. So
 * what the interpreter has in its memory is written to files that have no name, which are sealed, and
 * mapped in its place; whoever writes to it has a copy, as before.
 */
#pragma once

#include "warm/preload/mappings.h"

/* Is that a mapping which can be replaced, and is worth it? */
bool image_is_worth(const struct mapping *m);
/*
 * Makes these mappings private ones of files with the same bytes, all of which are the file's. What
 * cannot be replaced stays as it is. Nothing but this thread may run.
 */
void image_take(const struct ranges *of);
