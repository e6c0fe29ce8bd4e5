/* The root that the command sees, built on a tmpfs; see root.c for the layout. */
#pragma once

#include "sandbox/plan/plan.h"

/* The skeleton's own files (/etc, directories) must not eat into the disk limit. */
#define ROOT_SKELETON_BYTES (512u << 10)

/*
 * What roots of the host that can be written have in common: directories, /etc, /dev. Made once by the boot
 * mounts (provider/ns/worker/boot_mounts.h). Each sandbox has it as the lower layer of an overlay, so that no
 * file is shared between two of them.
 */
struct template
{
	const char *path;  /* in the mount namespace that pid 1 gets a copy of */
	const char *hosts; /* the host name in its /etc/hosts */
	struct list
		mounts; /* from the host: "etc/alternatives"; the template has a mount point for each */
	struct list tops; /* from the host: "usr"; each gets a writable upper layer */
	bool user_marks;  /* a tmpfs has user attributes for an overlay's marks (root.c) */
};

/* First step. *ret_scratch: the tmpfs that holds all writable places. */
int root_start(const struct plan *p, int *ret_scratch, struct err *e);
/* With a nested root inside: a directory of the root, made if it is not there, is its own. */
int root_own_dir(const struct plan *p, int root, const char *dir, struct err *e);
/* Second step: the image and /dev. */
int root_build(struct plan *p, struct err *e);
/*
 * Fills a template at its path, which `root` is an fd of. `seen` gets the host's files and
 * directories that the template depends on.
 */
int root_make_template(struct template *t, int root, struct list *seen, struct err *e);
/* Last step: /proc, workspace, extra mounts, files; then the old root is detached. */
int root_finish(struct plan *p, int scratch, struct err *e);
