/* COPY and ADD: files of the context or of other layers, as the tar of a layer. */
#pragma once

#include "image/make/make.h"

struct copy_from {
	int dir;		    /* the context, or a view of layers */
	bool is_context;	    /* links must not lead out of it; otherwise it is a root */
	const struct list *ignored; /* patterns of .dockerignore, or NULL */
	bool unpacks;		    /* archives (ADD) */
	bool keeps_owners;
};

struct copy;

/* view: of the layers below, which says where links lead and what directories are like. The tar goes to file. */
struct copy *copy_start(struct image_maker *m, int view, int file);
/* Of what comes next. mode -1: as it is. */
void copy_own(struct copy *c, uint32_t uid, uint32_t gid, int mode);
/*
 * Copies what a path (or pattern) names. to: absolute, cleaned. `into`: to is a directory. *ret_count is increased by
 * the number of sources.
 */
int copy_add(struct copy *c, const struct copy_from *from, const char *path, const char *to,
	     bool into, struct err *e);
/* A file with this text; name: the last part of its path, if `to` is a directory. */
int copy_add_text(struct copy *c, const char *text, const char *name, const char *to, bool into,
		  struct err *e);
/* A directory, with its parents, if it is not there; opaque: nothing of the layers below shows through. */
int copy_add_directory(struct copy *c, const char *path, bool is_opaque, struct err *e);
/* Has anything been added? */
bool copy_is_empty(const struct copy *c);
/* Ends the tar; hex gets the digest of the content, without times. */
int copy_end(struct copy *c, char hex[IMAGE_HEX + 1], struct err *e);
void copy_free(struct copy *c);

/* Reads .dockerignore of a context; no such file: nothing is ignored. */
int copy_read_ignored(int context, struct list *ret, struct err *e);
