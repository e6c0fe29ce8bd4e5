/*
 * An ephemeral daemon: state, sockets and sandboxes are in a directory of its own, and it ends
 * with the process that started it. `cloche mcp` uses one if no daemon runs, and always if it
 * shows host directories: only a daemon's configuration can name those, never a client.
 */
#pragma once

#include "base/base.h"
#include "cli/verbs/client_http.h"
#include "model/spec.h"

#include <jansson.h>

struct ephemeral_daemon {
	char dir[96]; /* holds all its files */
	pid_t pid;    /* 0: not started */
	int life;     /* closing it ends the daemon */
	struct http_target target;
};

/* Checks the sources of --workspace and --mount at the start, so that mistakes show early. */
int ephemeral_daemon_check(const struct sandbox_spec *s, struct err *e);
/* Does not wait until the daemon serves. */
int ephemeral_daemon_start(struct ephemeral_daemon *d, const struct sandbox_spec *s, struct err *e);
/* Tells the daemon to end, and waits a moment for that. */
void ephemeral_daemon_stop(struct ephemeral_daemon *d);
/* True once, if the daemon has ended by itself. */
bool ephemeral_daemon_has_ended(struct ephemeral_daemon *d);
/* The volumes of its configuration, as an option of a session: an array. */
json_t *ephemeral_daemon_volumes(const struct sandbox_spec *s);
