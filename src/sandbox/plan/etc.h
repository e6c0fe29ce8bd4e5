/*
 * /etc inside: an allowlist of the host's files, and our own passwd, group, hosts, resolv.conf.
 * Also some of the host's /var/lib.
 */
#pragma once

#include "kern/landlock.h"
#include "sandbox/plan/plan.h"

/* Writes our own hosts. */
int etc_write_hosts(const char *hostname, int etc, struct err *e);

/*
 * For a template. `mounts` gets the names that are to be mounted ("etc/alternatives"), for which
 * there is a mount point; `seen` gets the host's files that decide, to be checked again later.
 */
struct etc_template {
	struct list *mounts, *seen;
};
/* Fills root_fd/etc, which exists and can be written. t: or NULL. */
int etc_build(const char *hostname, const struct etc_template *t, int root_fd, struct err *e);
/*
 * In an image: the sandbox's user gets a name, `user`, if /etc/passwd and /etc/group have no line of that name; with
 * may_add also if there are no such files. The image may be hostile: what is not as it should be is left alone. The
 * scratch is the working directory.
 */
void etc_name_user(int root_fd, bool may_add);
/*
 * Debian's PHP loads most of its extensions (phar, tokenizer, iconv ...) because a file of /etc/php says so,
 * and composer and phpunit do nothing without them. But these files hold settings as well, among them the
 * keys of monitoring services. So only the lines that load something get in.
 *
 * Makes etc/php, for each version that the host has. seen: gets the directories that decide, or NULL.
 */
int etc_php_build(int etc, struct list *seen, struct err *e);

/* Level process, which sees the host's own /etc: allows reading the allowlist. */
int etc_grant(struct landlock *l, struct err *e);
