/*
 * What the files of sandbox/inside share: the steps that inside.c takes one after the other, and init.
 */
#pragma once

#include "kern/seccomp.h"
#include "sandbox/inside/inside.h"

#include <sched.h>

/* ---- dev.c: /dev inside ---- */

/* null, zero, full, random, urandom, tty, ptmx, pts, shm, links to fds. Nothing else. */
int dev_build(const struct plan *p, int root_fd, struct err *e);
/* The last step: a /dev/pts of the sandbox's own. */
int dev_show_terminals(int root_fd, struct err *e);

/* ---- command.c: the last steps of the command's process ---- */

struct command_start {
	struct plan *plan;
	const struct inside_fds *fds;
	bool pinned; /* to one processor, until now */
	cpu_set_t cpus;
};

/*
 * Attaches the standard streams, proves the layers, execs. Runs in a process that shares memory with its
 * parent until the exec (CLONE_VM | CLONE_VFORK): straight-line system calls only. Never returns; an error
 * goes to the status page.
 */
void command_exec(const struct command_start *c) __attribute__((noreturn));
int command_attach_streams(int in, int out, int err, struct err *e);
/* Unblocks every signal. An exec resets the rest, unless a signal is ignored. */
void command_unblock_signals(void);

/* ---- guest_exec.c: the last steps of pid 1 of a sandbox that lives on ---- */

/* notify: listener of the seccomp filter, or -1. Never returns; an error goes to the status page. */
void guest_exec(struct plan *p, struct inside_fds *fds, int notify) __attribute__((noreturn));

/* ---- init.c ---- */

/* Blocks all signals; returns a signalfd for them. */
int init_block_signals(struct err *e);
/* v1: joins the cgroups by their own `tasks` files. Notes on the status page what then holds. */
void init_join_cgroups(struct status_page *b, const struct rights_message *m, const int *fds);

struct supervisor {
	struct status_page *page;
	const struct limits *limits;
	const struct seccomp_profile *profile; /* of the filter behind `listener` */
	pid_t command;
	pid_t keeper;			     /* as seen from here: its signals are passed on */
	bool anyone_ends_it;		     /* by SIGTERM */
	pid_t watched;			     /* where memory is watched: see struct watch */
	int signals, listener, dns, control; /* the only fds that stay open; -1: none */
};

/* Returns when the command has ended, is to end, or has passed a limit; or when the keeper is gone. */
void init_supervise(const struct supervisor *s);
/*
 * pid 1 of a run: serves until the command has ended, then ends all other processes. It has no privilege,
 * lives under the same filter as the command, and cannot be traced (rule 15).
 */
void init_serve(struct plan *p, const struct inside_fds *fds, pid_t command, int listener,
		int signals);

/* ---- process.c ---- */

/*
 * Level process: no namespace at all, for hosts that forbid them. Landlock, seccomp, rlimits, and an init
 * that is the subreaper of all processes of the command (rule 17).
 *
 * The init stays outside of the command's Landlock domain and filter, so that the command can neither signal
 * nor trace it. It ends everything when the command has ended, when the keeper says so (SIGTERM) or is gone.
 */
void process_main(struct plan *p, struct inside_fds *fds) __attribute__((noreturn));
