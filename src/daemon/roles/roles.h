/* Roles: processes that do a part of the daemon's work with as few rights as that needs. */
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

/* Comes first, so that the broker's decisions at the start are recorded. */
void roles_start_audit(struct daemon *d);
void roles_start_front(struct daemon *d);
/* Starts the role if the configuration names a service; ends it if its settings have changed. */
void roles_start_remote(struct daemon *d);
void roles_end_remote(struct daemon *d, const char *why);
void roles_stop(struct daemon *d);
/* True if this child was a role; it is started again after a while. */
bool roles_reaped(struct daemon *d, pid_t pid, int status);
/* Ends the front, which is then started again. */
void roles_restart_front(struct daemon *d, const char *why);
