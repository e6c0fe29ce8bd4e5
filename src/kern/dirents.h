/* The entries of a directory, read into the caller's memory: opendir would allocate. */
#pragma once

#include "base/base.h"

struct dirents {
	int fd; /* the directory, open for reading; stays the caller's */
	long at, len;
	_Alignas(8) char buf[8192];
};

struct dirents_entry {
	const char *name;
	unsigned char type; /* DT_... */
};

/* Begins at the first entry. */
void dirents_start(struct dirents *d, int fd);
/* False at the end or on an error. "." and ".." are among the entries. */
bool dirents_next(struct dirents *d, struct dirents_entry *ret);
/*
 * The names in a directory, sorted bytewise, at most max; *ret_cut (may be NULL) says that there were more.
 * -1 with errno.
 */
int dirents_names(int dir, size_t max, struct list *ret, bool *ret_cut);
