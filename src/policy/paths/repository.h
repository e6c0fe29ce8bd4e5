/*
 * The git repository that a directory lies in: what git needs to see besides the directory itself.
 *
 *   struct repository r;
 *   repository_find(&dir, &r);          a few lstat calls where there is none
 *   ... r.tree and r.common are opened, not judged: source_judge decides whether they may be shown
 *   repository_done(&r);
 */
#pragma once

#include "policy/paths/source.h"

struct repository {
	bool found;	      /* git finds one by what is shown: dir, tree and common */
	struct source tree;   /* the work tree around the directory; fd -1: the directory is it */
	struct source common; /* the git directory, where it is not in the tree; fd -1: it is */
	const char *refused;  /* there is one that must not be shown: why; NULL otherwise */
};

void repository_find(const struct source *dir, struct repository *ret);
void repository_done(struct repository *r);
/* The note for a repository that source_judge refuses. */
extern const char repository_forbidden[];
