/*
 * /etc inside: an allowlist of the host's, and our own passwd, group, hosts, resolv.conf. Some of the host's
 * /var/lib goes with it.
 */
#pragma once

#include "kern/landlock.h"
#include "sandbox/plan/plan.h"

/* Our own hosts. */
int etc_write_hosts(const char *hostname, int etc, struct err *e);

/*
 * For a template: what is to be shown by a mount gets a place and is named in mounts
 * ("etc/alternatives"); what was looked at is named in seen, to be looked at again.
 */
struct etc_template {
	struct list *mounts, *seen;
};
/* Fills root_fd/etc, which exists and can be written. t: or NULL. */
int etc_build(const char *hostname, const struct etc_template *t, int root_fd, struct err *e);
/*
 * Debian's PHP loads most of its extensions (phar, tokenizer, iconv ...) because a file of /etc/php says so,
 * and composer and phpunit do nothing without them. But these files hold settings as well, among them the
 * keys of monitoring services. So only the lines that load something get in.
 *
 * Makes etc/php, for each version that the host has. seen: gets the directories that decide, or NULL.
 */
int etc_php_build(int etc, struct list *seen, struct err *e);

/* Level process, where the host's own are seen: lets what is on the allowlist be read. */
int etc_grant(struct landlock *l, struct err *e);
