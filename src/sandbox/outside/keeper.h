/*
 * The keeper's state, and what the files of sandbox/outside share: keeper.c runs the sandbox, outcome.c says how
 * it ended.
 */
#pragma once

#include "kern/userns.h"
#include "sandbox/inside/inside.h"
#include "sandbox/outside/head_tail.h"

#include <sys/resource.h>
#include <termios.h>

/* Relays between the caller's terminal and that of the command: raw mode, size, bytes both ways. */

/* A pipe that is ready for writing takes as much without blocking. */
#define TERMINAL_ROOM 4096

struct terminal_relay {
	int master;  /* of the command's pty */
	int slave;   /* kept open, so that the pty does not end before the command does */
	int screen;  /* output goes there: stdout, or its terminal opened anew */
	bool is_raw; /* the caller's terminal was switched to raw mode */
	struct termios saved;
	char *in; /* TERMINAL_ROOM bytes: typed, not yet taken by the command */
	size_t in_len;
	bool in_line; /* the last byte typed was no end of a line */
	bool in_ended;
	char *out; /* printed by the command, not yet taken by our stdout */
	size_t out_len;
};

struct keeper {
	struct plan plan;
	struct cgroup cgroup;
	struct cgroup_stats stats;
	pid_t pid; /* of pid 1, or of the init at level process */
	int pidfd;
	int control;
	int signals;
	sigset_t callers_mask;
	int scratch;
	int mounts; /* the sandbox's mount namespace: its teardown takes a while */
	struct netns_maker net;
	struct run_net *network;	   /* NULL: there is none; see run_net.h */
	struct userns userns[PLAN_OWNERS]; /* of p->owners */
	struct stdin_relay stdin_relay;
	struct head_tail out, err;
	struct terminal_relay terminal;
	int64_t started_ns, ended_ns;
	bool told_to_end; /* by a signal */
	bool was_ended;	  /* by the keeper, for this reason: */
	enum status reason;
	int reason_signal;
	int64_t kill_at_ns;
	unsigned interrupts;
	struct rusage usage;
};

#define KEEPER_NONE                                                                                \
	{                                                                                          \
		.cgroup = CGROUP_NONE, .pidfd = -1, .control = -1, .signals = -1, .scratch = -1,   \
		.mounts = -1, .out = {.fd = -1, .relay = -1}, .err = {.fd = -1, .relay = -1},      \
		.terminal = {.master = -1, .slave = -1}, .stdin_relay = {.from = -1, .to = -1},    \
		.net = NET_NETNS_MAKER_NONE                                                        \
	}

/* Maps the status page, which k->plan gets. */
int keeper_init(struct keeper *k, struct err *e);
/* Receives the scratch, the listeners and the terminal (or -1), if pid 1 has sent them. */
int keeper_take_back(struct keeper *k, int *ret_terminal);
/* Releases all that k holds; pid 1 is dead, or lives on without k. */
void keeper_done(struct keeper *k);

/* ---- launch.c: the outside half of making a sandbox ---- */

/* Makes the socket to pid 1, on v2 the cgroup, and pid 1 itself, which begins to build. */
int launch_start(struct keeper *k, struct inside_fds *fds, struct err *e);
/* Sends pid 1 the rest: owners of mounts, cgroup, user and network namespace. */
int launch_send(struct keeper *k, struct err *e);
/* Ends the processes that hold namespaces open until pid 1 has them. */
void launch_release(struct keeper *k);

/* ---- terminal.c ---- */

/* Switches the caller's terminal (if stdin is one) to raw mode and passes its size on. */
void terminal_start(struct terminal_relay *t, int master);
void terminal_resize(const struct terminal_relay *t);
/* Each moves as many bytes as it can without blocking. */
void terminal_read_input(struct terminal_relay *t);
void terminal_write_input(struct terminal_relay *t);
/* False at the end of the command's output, or if there is none now. */
bool terminal_read_output(struct terminal_relay *t);
/* Call it when the screen is ready for writing; false if the screen is gone. */
bool terminal_write_output(struct terminal_relay *t);
/* Restores the caller's terminal. */
void terminal_stop(struct terminal_relay *t);
/* Opens the terminal behind fd anew, so that writes never block; -1: fd is no terminal. */
int terminal_reopen(int fd);

/* ---- outcome.c, hints.c, denials.c: the record ---- */

/* Fills ret from what the kernel, the cgroup and the status page say. Everything inside is dead. */
int outcome_collect(struct keeper *k, struct result *ret, struct err *e);
/* Adds notes that help against the commonest ways to fail, by how the run ended and what was asked for. */
void hints_add(struct plan *p, const struct result *r);
/*
 * Fills r->denials from the status page and from r->limits_hit, in words: what was refused, by which rule,
 * and the smallest change that would allow it.
 */
void denials_list(const struct keeper *k, struct result *r);

/* ---- save_root.c ---- */

/* Writes what the command left in the root of the image; everything inside is dead. */
int save_root(const struct keeper *k, const struct root_saving *s, struct err *e);

/* ---- process_dir.c ---- */

/*
 * Level process has no mounts: its command writes to a directory of the host that is made for the run and
 * removed with it. Layout: canary (Landlock must refuse it), open/home, open/tmp, open/workspace.
 *
 * At level process: makes the directory, opens it as k->scratch and points the environment to it.
 */
int process_dir_make(struct keeper *k, struct err *e);
/* Removes it with all that is in it; an empty path is nothing to do. */
void process_dir_remove(const char *path);
