/*
 * /etc inside: an allowlist of the host's, and our own passwd, group, hosts, resolv.conf. Some of the host's
 * /var/lib goes with it.
 */
#pragma once

#include "kern/landlock.h"
#include "sandbox/plan/plan.h"

/* Fills root_fd/etc, which exists and can be written. */
int etc_build(const struct plan *p, int root_fd, struct err *e);
/* Our own hosts. */
int etc_write_hosts(const char *hostname, int etc, struct err *e);

/*
 * The same, for a template: what is to be shown by a mount gets a place and is named in mounts
 * ("etc/alternatives"); what was looked at is named in seen, to be looked at again.
 */
struct etc_template {
	const char *hostname;
	struct list *mounts, *seen;
};
int etc_build_template(const struct etc_template *t, int root_fd, struct err *e);

/* Level process, where the host's own are seen: lets what is on the allowlist be read. */
int etc_grant(struct landlock *l, struct err *e);
