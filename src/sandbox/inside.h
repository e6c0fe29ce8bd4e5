/* The way from clone to exec; inside.c is meant to be read from top to bottom. */
#pragma once

#include "sandbox/plan.h"

#include <linux/filter.h>

struct inside_fds {
	int control;	    /* socket to the keeper */
	int keeper_control; /* the keeper's end of it, to be closed */
	int in, out, err;   /* the command's standard streams */
	int terminal;	    /* filled in: master of the pty, when spec->tty */
	int scratch;	    /* filled in: the tmpfs that holds all that can be written */
	int dns;	    /* filled in: answers every name with "no such name", and notes it */
};

/* What the keeper sends to pid 1 as fds, in this order; what does not apply is left out. */
struct keeper_message {
	int join_count;	 /* cgroup v1 `tasks` files */
	int has_userns;	 /* user namespace to enter */
	int owner_count; /* user namespaces that map p->owners */
	int has_net; /* as root: the network namespace, and its name server's socket (two fds) */
	bool workspace_denied;	 /* the current directory is not to be shown */
	layer_set cgroup_layers; /* what the cgroup limits */
};

#define KEEPER_MAX_FDS 16

/* Runs as pid 1 of the new namespaces (or as the subreaper of level process); never returns. */
void inside_main(struct plan *p, struct inside_fds *fds) __attribute__((noreturn));
