/*
 * Paths and small file operations, done as the sandbox's user: the kernel decides what may be
 * reached.
 */
#pragma once

#include "base/base.h"
#include "guest/link/server.h"

/* The directory in which commands start and relative paths begin. */
const char *files_workdir(const struct guest *g);
/* An absolute path; empty if it would be too long, which no call accepts. */
void files_absolute(const struct guest *g, const char *path, char *ret, size_t size);
/* Reads a path from a request and makes it absolute. */
void files_unpack(const struct guest *g, struct unpack *u, char *ret);
/* Packs a guest_stat; dir and name are for a link's target. */
void files_pack(struct buf *b, const char *path, const struct stat *st, int dir, const char *name);
/* Answers with a guest_stat. */
void files_answer_stat(struct guest_stream *s, const char *path, const struct stat *st);
/*
 * With root inside: whose a new file at this path is to be. One that was there keeps its owner, another belongs to
 * its directory's. False: whoever makes it.
 */
bool files_new_owner(const char *path, struct stat *ret);
/* mkdir -p; 1: made, 0: existed, -1: errno. */
int files_make_dirs(const char *path, mode_t mode);
/*
 * The directory of an absolute path, "/" at least. Returns the last part of the path; NULL: it has
 * none.
 */
const char *files_parent(const char *path, char ret[GUEST_MAX_PATH]);
/* Makes the directories above a path. */
int files_make_parents(const char *path);
/* Is it a /proc file of pid 1 itself? Clients of the daemon must not reach those. */
bool files_is_own(int fd);
