/* File name patterns: * and ? within a part, ** across parts, [a-z], [!a-z] and [[:digit:]], \ before a plain character. */
#pragma once

#include "base/base.h"

/* A pattern without a slash is compared with the last part of path. Bounded work: absurd ones fail. */
bool glob_match(const char *pattern, const char *path, bool nocase);
/* One part of a path, as a shell does: a leading dot is matched by a dot only, never by * ? or [. */
bool glob_match_name(const char *pattern, const char *name);
