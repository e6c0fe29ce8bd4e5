/*
 * Giving up privileges.
 *
 * Every process of a sandbox goes through the same list of steps, in the same order; privileges.c has that
 * list, and says for each step which kinds of process take it. There is one table of the places that
 * can be written and one of the paths that Landlock grants. What came of it is judged by verify.c, in
 * the process that executes foreign code, after the last step.
 */
#pragma once

#include "kern/landlock.h"
#include "kern/seccomp.h"
#include "sandbox/plan/plan.h"

enum confined {
	CONFINED_RUN = 1,   /* pid 1 of a run: the command inherits all of it */
	CONFINED_GUEST = 2, /* pid 1 of a sandbox that lives on */
	CONFINED_WARM_HOST =
		4,	   /* pid 1 of a warm host, which makes sandboxes itself (warm sandbox.h) */
	CONFINED_TASK = 8, /* a command's process in a warm sandbox, made by a spawner */
	CONFINED_FORK = 16,    /* the same, made by a warm interpreter */
	CONFINED_REAPER = 32,  /* pid 1 of a warm sandbox; only reaps */
	CONFINED_PROCESS = 64, /* the command's process at level process */
};

struct privilege_drop {
	enum confined kind;
	struct plan
		*plan; /* limits, paths, what is required; its status page takes what is proven */
	int scratch;   /* holds the Landlock canary */
	int control; /* pid 1: socket to the keeper, whose end is the end of this process; or -1 */
	bool changes_ids; /* to uid, and a group of the same number; nobody else's groups are kept */
	uid_t uid;
	const struct seccomp_profile *profile;
	int listener; /* filled in: of the filter's notifications, or -1 */
	/* Cgroup and namespaces, where they are not entered before; may be NULL. */
	int (*enter)(const struct privilege_drop *c, struct err *e);
	/* Level process: the paths of the host that Landlock grants. Else NULL. */
	int (*grant)(const struct privilege_drop *c, struct landlock *l, struct err *e);
	const void *arg; /* for these two */
};

/* Takes all steps. -1: nothing may be executed. */
int privileges_give_up(struct privilege_drop *c, struct err *e);

/* The kernel kills this process when its parent dies; to be said again after each change of ids (prctl(2)). */
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

/* The workspace is the last of them: a run may show it elsewhere, or show a directory of the host instead. */
#define WRITABLE_PLACES 5
#define WRITABLE_WORKSPACE (WRITABLE_PLACES - 1)
extern const struct writable_place writable_places[WRITABLE_PLACES];
