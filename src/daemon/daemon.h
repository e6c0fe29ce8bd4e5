/*
 * `cloche serve`: the broker, and the roles that it starts.
 *
 * Theory of operation
 *
 *   broker   this process: config, namespaces, cgroups, records, Unix sockets. It understands no
 *            HTTP and no JSON, and checks each request of the front again (rule 6).
 *   cloche-boot   boot workers: each makes one sandbox at a time, so that the broker never waits.
 *            Sandboxes outlive them.
 *   front    `cloched role front`: unprivileged, its database directory is its root. HTTP, SQLite,
 *            the links to the guests.
 *   audit    `cloched role audit`: unprivileged, holds the audit file.
 *   tls      `cloche-tls`: unprivileged, holds the key of the certificate, decrypts for the front.
 *   remote   `cloche-remote`: unprivileged, speaks with an E2B-compatible service.
 *
 * A sandbox has a listening socket, <runtime>/boxes/ID.sock, which its guest inherited, and a record,
 * <runtime>/boxes/ID, from which a later broker finds it again (adopt.c).
 */
#pragma once

#include "base/base.h"

struct serve_options {
	const char *config; /* file; NULL: the usual places are searched */
	struct list listen; /* in place of the file's */
	const char *tls;    /* "CERT,KEY" or "self", in place of the file's; or NULL */
	bool docker;	    /* as the setting of this name */
	bool check_only;
	const char *
		ephemeral_dir; /* of an ephemeral daemon (broker/ephemeral.c); NULL: an ordinary one */
	const char *test_front; /* run this program in the front's place, unconfined */
};

/* Returns the exit status. */
int daemon_serve(const struct serve_options *o);
/* argv of `cloched role NAME ...`; only the broker starts these. */
int daemon_role(int argc, char **argv);

/*
 * `cloche doctor --state`: what the daemon would find at its next start. While a daemon runs, only what does
 * not change under it is looked at, and nothing is repaired.
 */
struct config;

enum state_verdict { STATE_FINE, STATE_NOTE, STATE_REPAIRED, STATE_PROBLEM };

struct state_finding {
	enum state_verdict verdict;
	char subject[64]; /* "database", "sandbox ID", "snapshot ID" */
	char text[512];
};

typedef void state_say(void *arg, const struct state_finding *f);

/* -1: the directories cannot be read. */
int daemon_check_state(const struct config *c, state_say *say, void *arg, struct err *e);
