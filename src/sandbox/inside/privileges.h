/*
 * Giving up privileges.
 *
 * Every process of a sandbox goes through the same list of steps, in the same order. privileges.c
 * has the list, and says for each step which kinds of process take it. There is one table of
 * writable places and one of the paths that Landlock grants. verify.c judges the result after the
 * last step, in the process that executes foreign code.
 */
#pragma once

#include "kern/landlock.h"
#include "kern/seccomp.h"
#include "sandbox/plan/plan.h"

enum confined {
	CONFINED_RUN = 1,   /* pid 1 of a run: the command inherits all of it */
	CONFINED_GUEST = 2, /* pid 1 of a sandbox that lives on */
	CONFINED_WARM_HOST =
		4,	      /* pid 1 of a warm host, which makes sandboxes itself (warm/warm.h) */
	CONFINED_TASK = 8,    /* a command's process in a warm sandbox, made by a spawner */
	CONFINED_FORK = 16,   /* the same, made by a warm interpreter */
	CONFINED_REAPER = 32, /* pid 1 of a warm sandbox; only reaps */
	CONFINED_PROCESS = 64, /* the command's process at level process */
	CONFINED_OUTER = 128,  /* root inside: pid 1 until the command's process was made */
	CONFINED_ROOT = 256,   /* root inside: the command's process, in a user namespace below */
	CONFINED_OUTER_END = 512,    /* root inside: pid 1 afterwards */
	CONFINED_GUEST_OUTER = 1024, /* root inside of a sandbox that lives on: pid 1, then ... */
	CONFINED_GUEST_ROOT = 2048,  /* ... as one of the namespace below, in which it stays */
};

struct privilege_drop {
	enum confined kind;
	struct plan *plan; /* limits, paths, required layers; proven layers go to its status page */
	int scratch;	   /* holds the Landlock canary */
	int control;	   /* pid 1: socket to the keeper, whose death ends this process; or -1 */
	bool changes_ids;  /* to uid, and to the group of the same number; no other group is kept */
	uid_t uid;
	const struct seccomp_profile *profile;
	int listener; /* filled in: of the filter's notifications, or -1 */
	int nested;   /* filled in for CONFINED_OUTER: the user namespace below */
	/* Joins cgroup and namespaces that were not entered earlier; may be NULL. */
	int (*enter)(const struct privilege_drop *c, struct err *e);
	/* Level process: the paths of the host that Landlock grants. Else NULL. */
	int (*grant)(const struct privilege_drop *c, struct landlock *l, struct err *e);
	const void *arg; /* for these two */
};

/* Takes all steps. -1: nothing may be executed. */
int privileges_give_up(struct privilege_drop *c, struct err *e);

/*
 * The kernel kills this process when its parent dies. A change of ids clears this (prctl(2)): call
 * it again.
 */
int privileges_die_with_parent(int control, struct err *e);

/* ---- restrict.c: limits of each process (rlimits); those of the whole sandbox are the cgroup's ---- */

/* Unless asked for, a little more than the disk: a full disk should say that it is full. */
uint64_t restrict_file_size(const struct limits *l);
int restrict_limits(const struct plan *p, struct err *e);
/* Last, in the command's process: earlier steps may open more files, and a watcher needs memory, too. */
int restrict_command(const struct plan *p, struct err *e);

/* A directory of the scratch file system that is shown for writing. */
struct writable_place {
	const char *scratch, *shown;
	mode_t mode;
	bool users; /* belongs to the user inside */
};

/*
 * The last is the workspace: a run may show it elsewhere, or show a directory of the host instead.
 */
#define WRITABLE_PLACES 5
#define WRITABLE_WORKSPACE (WRITABLE_PLACES - 1)
extern const struct writable_place writable_places[WRITABLE_PLACES];
/* An image that is being built has all others itself. */
static inline bool place_is_beside_root(const struct writable_place *w)
{
	return str_starts(w->shown, "/dev/");
}
