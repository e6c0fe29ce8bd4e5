/*
 * The mount namespace of a boot worker. Every pid 1 starts with a copy of it, and each mount in it costs time.
 * It is the host's without /sys; the template of writable roots (sandbox/plan/template.h) is mounted there
 * instead.
 */
#pragma once

#include "base/base.h"
#include "sandbox/inside/root.h"

struct boot_mounts {
	int host;	 /* the host's mount namespace; -1: the boot worker is still in it */
	int host_mounts; /* poll reports changes of the host's mounts */
	bool is_behind;	 /* the host's mounts have changed since */
	struct template template;
	bool has_template;
	struct list seen;     /* files that the template was made of */
	uint64_t fingerprint; /* of those files; 0: the template is to be made again */
};

/* Stays in the host's mount namespace if it cannot make another. */
void boot_mounts_enter(struct boot_mounts *w);
/*
 * Waits until sock can be read. Follows the host meanwhile, so that file systems which were unmounted there
 * do not stay busy for long.
 */
void boot_mounts_wait(struct boot_mounts *w, int sock);
/* Before each sandbox: follows the changes of the host's mounts. */
void boot_mounts_follow(struct boot_mounts *w);
/* Makes the template again if its files have changed. NULL: there is none. */
const struct template *boot_mounts_template(struct boot_mounts *w);
