/* File name patterns: * and ? within a part, ** across parts, [a-z] and [!a-z]. */
#pragma once

#include <stdbool.h>

/* A pattern without a slash is compared with the last part of path. Bounded work: absurd ones fail. */
bool glob_match(const char *pattern, const char *path, bool nocase);
