/* Paths and small file operations, done as the sandbox's user: the kernel says what may be reached. */
#pragma once

#include "base/base.h"
#include "guest/link/server.h"

/* Where commands start and relative paths begin. */
const char *files_workdir(const struct guest *g);
/* An absolute path; empty if it would be too long, which no call accepts. */
void files_absolute(const struct guest *g, const char *path, char *ret, size_t size);
/* Reads a path from a request and makes it absolute. */
void files_unpack(const struct guest *g, struct unpack *u, char *ret);
/* guest_stat; dir and name are for a link's target. */
void files_pack(struct buf *b, const char *path, const struct stat *st, int dir, const char *name);
/* The same as the answer. */
void files_answer_stat(struct stream *s, const char *path, const struct stat *st);
/* mkdir -p; 1: made, 0: was there, -1: errno. */
int files_make_dirs(const char *path, mode_t mode);
/* Makes the directories above a path. */
int files_make_parents(const char *path);
/* Is it something of pid 1 itself in /proc? That is not for the daemon's clients. */
bool files_is_own(int fd);
