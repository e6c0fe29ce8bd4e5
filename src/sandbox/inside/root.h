/* The root that the command sees, built on a tmpfs by real fds; see root.c for the layout. */
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
	const char *path;   /* in the mount namespace of which pid 1 has a copy */
	const char *hosts;  /* the name that its /etc/hosts has */
	struct list mounts; /* of the host's: "etc/alternatives"; there is a place for each in it */
	struct list tops;   /* of the host's: "usr"; what can be written is above each */
	bool user_marks;    /* a tmpfs has room for those of an overlay (root.c) */
};

/* First ret_scratch: the tmpfs that holds all writable places. */
int root_start(const struct plan *p, int *ret_scratch, struct err *e);
/* Then the image, /dev. */
int root_build(struct plan *p, struct err *e);
/*
 * Fills a template at its path, of which root is open; seen gets the names of the host's files and directories
 * that it depends on.
 */
int root_make_template(struct template *t, int root, struct list *seen, struct err *e);
/* At last /proc, workspace, extra mounts, files; then the old root goes away. */
int root_finish(struct plan *p, int scratch, struct err *e);
