/* What pid 1 and the init of level process of level process have in common. */
#pragma once

#include "kern/seccomp.h"
#include "sandbox/inside/inside.h"

/* Reaps all that has died; true once the command is among it: then its status is on the status page. */
bool supervise_reap(struct status_page *b, pid_t command);
/* v1: joins the cgroups by their own `tasks` files. Notes on the status page what then holds. */
void supervise_join(struct status_page *b, const struct rights_message *m, const int *fds);

struct supervisor {
	struct status_page *page;
	const struct limits *limits;
	const struct seccomp_profile *profile; /* that listener belongs to */
	pid_t command;
	pid_t keeper;			     /* as we see it: whose signals are passed on */
	bool anyone_ends_it;		     /* by SIGTERM */
	pid_t watched;			     /* where memory is watched: see struct watch */
	int signals, listener, dns, control; /* the only fds that are kept; -1: none */
};

/* Until the command has ended, is to end, or has passed a limit; or the keeper is gone. */
void supervise_serve(const struct supervisor *s);
