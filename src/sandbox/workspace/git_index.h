/*
 * The index of a git repository that comes from a sandbox. git itself never makes an index with paths such as
 * .git/hooks/post-checkout, and trusts the one that it finds: `git checkout .` would write that file.
 */
#pragma once

#include "base/base.h"

/* Would git see such a file, in one of its own directories, as an index? */
bool git_index_is_one(const char *name);
/*
 * Does it name only files that git may write to a work tree? False as well if it is not understood. is_sha256: what
 * the repository uses.
 */
bool git_index_is_safe(int fd, bool is_sha256);
/* Does the configuration in this git directory say that objects are named by SHA-256? */
bool git_index_uses_sha256(int git_dir);
