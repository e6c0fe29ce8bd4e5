/*
 * Mounts by the new mount API: everything is an fd, nothing goes by a name that could be swapped.
 * All functions work in the caller's mount namespace and are async-signal-safe.
 */
#pragma once

#include "base/base.h"

enum mount_flags {
	MOUNT_READ_ONLY = 1,
	MOUNT_NO_EXEC = 2,
	MOUNT_DEVICES = 4,   /* device nodes work; otherwise nodev. nosuid is always on. */
	MOUNT_SUBMOUNTS = 8, /* with all that is mounted below */
};

/* A detached copy of what dirfd/path shows; path may be "" for dirfd itself. */
int mount_clone(int dirfd, const char *path, unsigned flags, struct err *e);
/*
 * A new file system; options are key, value, ..., NULL (value NULL: a flag). A tmpfs without `size` and
 * a devpts without `max` are refused.
 */
int mount_new(const char *type, unsigned flags, const char *const *options, struct err *e);
/*
 * New terminals at dirfd/path: at most 256, since they are counted for the whole host
 * (kernel.pty.max).
 */
int mount_terminals(int dirfd, const char *path, struct err *e);
/* Maps ids of a detached mount through a user namespace; errno EINVAL if its fs cannot. */
int mount_idmap(int mount, int userns);
/* Attaches a detached mount at dirfd/path, "" for dirfd itself. Closes mount in any case. */
int mount_attach(int mount, int dirfd, const char *path, struct err *e);
/* mount_clone + mount_attach. */
int mount_bind(int from_dirfd, const char *from, int to_dirfd, const char *to, unsigned flags,
	       struct err *e);
/*
 * The same by names that only this process and the host's root can change, with the flags of the source:
 * one call instead of three. Of flags only MOUNT_SUBMOUNTS counts; mount_seal_below must follow.
 */
int mount_bind_bare(const char *from, const char *to, unsigned flags, struct err *e);
/*
 * All that is mounted below root becomes read-only, root itself not (fd on its root). Of flags only
 * MOUNT_DEVICES counts: whether device nodes work in root.
 */
int mount_seal_below(int root, unsigned flags, struct err *e);
/* Changes flags of an attached mount (fd on its root); or by a name, as with mount_bind_bare. */
int mount_reflag(int fd, unsigned flags, struct err *e);
int mount_reflag_named(const char *path, unsigned flags, struct err *e);
