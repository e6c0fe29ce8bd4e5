/* RUN --mount=type=...: what a command is shown besides the layers, and what does not become a part of its layer. */
#pragma once

#include "image/build/build.h"

enum mount_type { MOUNT_TYPE_BIND, MOUNT_TYPE_CACHE, MOUNT_TYPE_TMPFS, MOUNT_TYPE_SECRET };

struct run_mount {
	enum mount_type type;
	char *target, *source, *from, *id; /* or NULL; target is as it is written */
	uint32_t uid, gid;
	int mode; /* -1: the usual one */
	bool required;
};

struct run_mounts {
	struct run_mount *items;
	size_t count;
};

/* One value of --mount, whose variables are replaced. */
int run_mounts_add(struct run_mounts *m, const char *text, struct err *e);
void run_mounts_done(struct run_mounts *m);
