/*
 * A daemon of one's own: state, sockets and sandboxes in a directory that nobody else has, gone when
 * the one who started it is gone. `cloche mcp` uses one where no daemon runs, and always if host
 * directories are to be shown: those are a matter of a daemon's configuration, never of its clients.
 */
#pragma once

#include "base/base.h"
#include "cli/verbs/client_http.h"
#include "model/spec.h"

#include <jansson.h>

struct ephemeral_daemon {
	char dir[96]; /* everything is in here */
	pid_t pid;    /* 0: not started */
	int life;     /* closing it ends the daemon */
	struct http_target target;
};

/* Checks the sources of --workspace and --mount. Done at the start, so that mistakes are seen then. */
int ephemeral_daemon_check(const struct sandbox_spec *s, struct err *e);
/* Does not wait until it serves. */
int ephemeral_daemon_start(struct ephemeral_daemon *d, const struct sandbox_spec *s, struct err *e);
/* Lets it go and waits a moment for its end. */
void ephemeral_daemon_stop(struct ephemeral_daemon *d);
/* True once, if it has ended by itself. */
bool ephemeral_daemon_has_ended(struct ephemeral_daemon *d);
/* The volumes of its configuration, as an option of a session: an array. */
json_t *ephemeral_daemon_volumes(const struct sandbox_spec *s);
