/* Roles: our own program once more, with a part of the work and as few rights as that needs. */
#pragma once

#include "base/base.h"
#include "base/loop.h"
#include "wire/role_fds.h"

struct daemon;

enum role_id { ROLE_AUDIT, ROLE_FRONT, ROLE_REMOTE, ROLE_COUNT };

struct role {
	pid_t pid; /* 0: not running */
	int64_t started_ns;
	unsigned failures; /* in a row */
	struct loop_timer again;
};

/* First: what the broker finds is written down. */
void roles_start_audit(struct daemon *d);
void roles_start_front(struct daemon *d);
/* Starts it if the configuration names a service, ends it if not (or no longer, or another). */
void roles_start_remote(struct daemon *d);
void roles_end_remote(struct daemon *d, const char *why);
void roles_stop(struct daemon *d);
/* True if this child was a role; it is started again after a while. */
bool roles_reaped(struct daemon *d, pid_t pid, int status);
/* Ends the front, which then comes up anew. */
void roles_restart_front(struct daemon *d, const char *why);
