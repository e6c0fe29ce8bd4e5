/*
 * Python code that stands alone: whatever directory it is started in, it does the same. Only its words are looked
 * at, so the answer errs on the side of no. This is no protection: code that hides what it does is misjudged, and
 * runs in an empty directory.
 */
#pragma once

#include "base/base.h"

/*
 * False if the code may look at files, variables or other processes, or import anything but modules that only
 * compute.
 */
bool standalone_code(const char *code, size_t len);
/* Would a file or directory of this name, beside the code, be imported in place of a module of Python's own? */
bool standalone_is_shadow(const char *name);
