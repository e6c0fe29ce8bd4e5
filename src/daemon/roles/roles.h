/* Roles: processes that do a part of the daemon's work with as few rights as that needs. */
#pragma once

#include "base/base.h"
#include "base/loop.h"
#include "wire/role_fds.h"

struct config;
struct daemon;

enum role_id {
	ROLE_AUDIT,
	ROLE_FRONT,
	ROLE_REMOTE,
	ROLE_SIGNER,
	ROLE_TLS,
	ROLE_EGRESS,
	ROLE_COUNT
};

struct role {
	pid_t pid; /* 0: not running */
	int64_t started_ns;
	unsigned failures; /* in a row */
	struct loop_timer again;
	/* watch.c: */
	bool was_asked;	   /* a ping is not answered yet */
	bool has_answered; /* since its start */
	unsigned missed;   /* rounds since that ping */
};

/* Comes first, so that the broker's decisions at the start are recorded. */
void roles_start_audit(struct daemon *d);
void roles_start_front(struct daemon *d);
/* Can the audit role work with these settings? */
int roles_check_audit(const struct config *c, struct err *e);
/* Starts the audit role again if its settings have changed. */
void roles_renew_audit(struct daemon *d);
/* Starts the role if the configuration names a service; ends it if its settings have changed. */
void roles_start_remote(struct daemon *d);
/* Starts the role if the settings name a key or secrets; a role that runs is started again and reads them anew. */
void roles_start_signer(struct daemon *d);
/* Starts the role if the configuration has a certificate. */
void roles_start_tls(struct daemon *d);
/* With the first sandbox that has a network. */
int roles_start_egress(struct daemon *d, struct err *e);
void roles_stop(struct daemon *d);
/* True if this child was a role; it is started again after a while. */
bool roles_reaped(struct daemon *d, pid_t pid, int status);
/* Kills a role, which is then started again. */
void roles_end(struct daemon *d, enum role_id id, const char *why);

/* ---- watch.c: roles are pinged, and ended if they do not answer ---- */
/* From now on, at the interval of the settings. */
void roles_watch(struct daemon *d);
void roles_unwatch(struct daemon *d);
/* A ping, or one round more without an answer to the last. */
void roles_ping(struct daemon *d, enum role_id id);
void roles_answered(struct daemon *d, enum role_id id);
const char *role_name(enum role_id id);
