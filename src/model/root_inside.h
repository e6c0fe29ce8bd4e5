/* Kinds of root inside a sandbox (docs/root.md), and what each has. Numbers are stored: append. */
#pragma once

#include "base/base.h"

enum root_inside {
	ROOT_INSIDE_NO,
	ROOT_INSIDE_NESTED,	   /* uid 0 of a user namespace below the sandbox's own */
	ROOT_INSIDE_NESTED_SHARED, /* the same, and directories of the host can be written */
	ROOT_INSIDE_ANSWERED,	   /* the only id there is; a filter answers what would need more */
	ROOT_INSIDE_ANSWERED_SHARED,
};

/* The capabilities that it has over its own namespace, a bit each. */
uint64_t root_inside_caps(enum root_inside kind);
/* "nested", "answered"; NULL: an ordinary user. */
const char *root_inside_name(enum root_inside kind);
