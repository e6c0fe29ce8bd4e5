/*
 * The mount namespace that a boot worker works in: every pid 1 starts with a copy of it, and pays for each mount
 * in there. It is the host's without /sys; the template of writable roots (sandbox/plan/template.h) is there
 * instead.
 */
#pragma once

#include "base/base.h"
#include "sandbox/inside/root.h"

struct boot_mounts {
	int host;	 /* the host's mount namespace, -1: we never left it */
	int host_mounts; /* tells when something is mounted there */
	bool is_behind;	 /* it did, and we have not caught up */
	struct template template;
	bool has_template;
	struct list seen;     /* what the template was made of */
	uint64_t fingerprint; /* of that; 0: to be made anew */
};

/* Where that is not possible, in the host's. */
void boot_mounts_enter(struct boot_mounts *w);
/*
 * Until there is something to be read from sock. What was unmounted on the host is not to be kept busy by us
 * for long.
 */
void boot_mounts_wait(struct boot_mounts *w, int sock);
/* Before each sandbox: catches up with what is mounted on the host. */
void boot_mounts_follow(struct boot_mounts *w);
/* Catches up with what it was made of. NULL: there is none. */
const struct template *boot_mounts_template(struct boot_mounts *w);
