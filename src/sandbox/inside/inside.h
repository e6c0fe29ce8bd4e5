/* From clone to exec. Read inside.c from top to bottom. */
#pragma once

#include "kern/cgroup.h"
#include "sandbox/plan/plan.h"

struct inside_fds {
	int control;	    /* socket to the keeper */
	int keeper_control; /* the keeper's end, which pid 1 closes */
	int in, out, err;   /* the command's standard streams */
	int terminal;	    /* filled in: master of the pty, when spec->tty */
	int scratch;	    /* filled in: the tmpfs that holds all writable files */
	int nested;	    /* filled in: root inside: the command's user namespace */
	int dns; /* filled in: socket of the name server, which refuses and records every name */
};

/*
 * The keeper sends pid 1 two messages while pid 1 builds: first what the mounts need, then the
 * rest. Each carries fds in the order of its members; one that does not apply is left out.
 */
struct mounts_message {
	int owner_count;       /* user namespaces that map p->owners */
	bool workspace_denied; /* the current directory must not be shown */
	bool git_denied;       /* nor the git repository around it */
	struct procfs_masks proc;
};

struct rights_message {
	int join_count;		   /* cgroup v1 `tasks` files */
	int has_userns;		   /* user namespace to enter */
	int has_net;		   /* as root: network namespace */
	int has_dns;		   /* and its name server's socket */
	layer_set cgroup_layers;   /* what the cgroup limits */
	struct namespace_ids host; /* the sandbox's must differ */
};

#define INSIDE_FDS_NONE                                                                            \
	{                                                                                          \
		.control = -1, .keeper_control = -1, .in = -1, .out = -1, .err = -1,               \
		.terminal = -1, .scratch = -1, .nested = -1, .dns = -1                             \
	}

/* pid 1 to the keeper, with the scratch. Then fds of the members that are set, in this order. */
struct back_message {
	bool terminal;	    /* the master */
	bool anchor;	    /* rootless: see struct net_made */
	uint32_t listeners; /* how many */
};

#define KEEPER_MAX_FDS (3 + NET_LISTENERS_MAX)

/* Runs as pid 1 of the new namespaces (or as the subreaper of level process); never returns. */
void inside_main(struct plan *p, struct inside_fds *fds) __attribute__((noreturn));

/* Level process, for the keeper when its init was killed: ends the init's processes, as far as they are found. */
void process_end_left(const struct plan *p, const struct cgroup *c);

/* Sets all 64 signals to their default, and blocks none. */
void command_reset_signals(void);
