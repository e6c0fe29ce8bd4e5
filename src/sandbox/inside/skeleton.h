/*
 * Makes directories and files in a tree that is being built and may hold hostile names (an image).
 * Every step goes by fd, and no symbolic link is ever followed.
 */
#pragma once

#include "base/base.h"

/* Opens dir/path (relative), making what is missing of it (0755). Returns an O_PATH fd. */
int skeleton_dir(int dir, const char *path, struct err *e);
/* The same for all but the last component of path, which goes to ret_name. */
int skeleton_parent(int dir, const char *path, const char **ret_name, struct err *e);
/* Makes an empty file to mount on, by mknod: call it before a filter is loaded. */
int skeleton_point(int dir, const char *name, struct err *e);
/* Writes a new file; an existing one is an error. */
int skeleton_file(int dir, const char *name, const char *data, size_t size, mode_t mode,
		  struct err *e);
/* A new tmpfs of that size, detached. */
int skeleton_tmpfs(uint64_t bytes, const char *mode, struct err *e);
/*
 * Mounts the disk (a detached mount), or without one (NULL) a tmpfs as large as the disk limit, for all writable
 * files. It covers /proc, which exists
 * everywhere and is mounted anew later, and becomes the working directory.
 */
int skeleton_mount_scratch(const int *disk, uint64_t disk_bytes, struct err *e);
