/*
 * Mountinfo: which file systems, and which parts of them, this mount namespace shows where.
 *
 *   struct mountinfo m;
 *   mountinfo_read(&m, &e);
 *   ... m.entries[i].point ...
 *   mountinfo_done(&m);
 */
#pragma once

#include "base/base.h"

struct mount_entry {
	int id;
	const char *dev;   /* "254:0", of the file system, not of the files in it */
	const char *root;  /* the directory of that file system which is shown */
	const char *point; /* where it is shown */
	const char *type;
};

struct mountinfo {
	char *text;
	struct mount_entry *entries;
	size_t count;
};

int mountinfo_read(struct mountinfo *ret, struct err *e);
/* Takes the text of a mountinfo file apart; owns it from then on, even on failure. */
int mountinfo_parse(char *text, struct mountinfo *ret, struct err *e);
void mountinfo_done(struct mountinfo *m);
