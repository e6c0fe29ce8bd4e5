/*
 * What roots of the host's that can be written have in common, made once by whoever makes many such
 * sandboxes (provider/ns/worker/boot_mounts.h): directories, /etc, /dev. Each sandbox has it as the lower layer of an
 * overlay, so that no file is shared between two of them.
 */
#pragma once

#include "base/base.h"

struct template
{
	const char *path;   /* in the mount namespace of which pid 1 has a copy */
	const char *hosts;  /* the name that its /etc/hosts has */
	struct list mounts; /* of the host's: "etc/alternatives"; there is a place for each in it */
	struct list tops;   /* of the host's: "usr"; what can be written is above each */
	bool user_marks;    /* a tmpfs has room for those of an overlay (root.c) */
};
