/*
 * What the caller's directories become inside, and how a directory of the host becomes a mount (root.c). The working
 * directory is the scratch.
 */
#pragma once

#include "sandbox/inside/root.h"

int shown_workspace(struct plan *p, int root, struct err *e);
/* Before the workspace, which may lie in one of them. */
int shown_views(struct plan *p, int root, struct err *e);
/* `first`: those that go before the workspace; else the others. */
int shown_binds(struct plan *p, bool first, int root, struct err *e);

/* ---- root.c: mounts of the host's directories ---- */

/* A mount whose files are to belong to the user. */
struct owned_mount {
	enum unmapped what;
	const char *path;
	int owner; /* see plan_owner */
	const char
		*remedy; /* what to do if the user cannot write there; NULL: the user only reads */
};

/* The conventions that safe_walk.h relies on. */
#define OVERLAY_RULES "redirect_dir", "nofollow", "metacopy", "off"

/* A detached mount of it. */
int root_clone_source(const struct source *s, unsigned flags, struct err *e);
int root_map_owner(struct plan *p, int mount, const struct owned_mount *o, struct err *e);
bool root_has_user_attributes(const char *dir);
bool root_has_user_marks(const struct plan *p);
/* A detached overlay with the mount as its lower layer; the others are directories of the scratch. */
int root_overlay(const struct plan *p, int lower, const char *upper, const char *work,
		 struct err *e);
