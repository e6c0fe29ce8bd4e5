/*
 * Landlock: a second wall behind the mounts (level container), the first one at level process.
 * The ABI is probed and used as far as it goes. Applied once per sandbox, before anything forks.
 */
#pragma once

#include "base/base.h"

enum landlock_grant {
	LANDLOCK_READ,	 /* read files, list directories, execute */
	LANDLOCK_WRITE,	 /* and write, create, remove, rename */
	LANDLOCK_UNPACK, /* the same, and make marks of an overlay, which are devices 0:0 */
	LANDLOCK_DEVICE, /* read, write and ioctl, as for /dev */
};

struct landlock {
	int fd;
	int abi;
};

/* The kernel's ABI, 0 if there is no Landlock. */
int landlock_abi(void);
/* With refuse_tcp no TCP bind and connect either (ABI 4). */
int landlock_open(struct landlock *l, bool refuse_tcp, struct err *e);
/*
 * Restricts this process to signalling itself, its descendants and theirs (ABI 6); nothing else. Its
 * kill(-1) then means just those. Needs no_new_privs or CAP_SYS_ADMIN.
 */
int landlock_scope_signals(struct err *e);
/* Grants below what dirfd/path shows ("" for dirfd itself); a missing path is left out silently. */
int landlock_allow(struct landlock *l, int dirfd, const char *path, enum landlock_grant grant,
		   struct err *e);
/* Restricts this thread for good and closes the ruleset. */
int landlock_apply(struct landlock *l, struct err *e);
