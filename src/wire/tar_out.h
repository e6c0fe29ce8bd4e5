/*
 * Writes tar archives in the format that wire/tar.h reads, entry by entry; guest/files/tar_tree.h writes trees.
 */
#pragma once

#include "wire/tar.h"

struct tar_out {
	/* 0, or -1 with errno. */
	int (*write)(void *arg, const void *bytes, size_t len);
	void *arg;
	bool layer; /* of an image: keeps set-id bits, has no names of owners, and removed names as layers have them */
	void (*saw)(void *arg, const void *bytes,
		    size_t len); /* content of files, and where it is; may be NULL */
	void *links;		 /* kept by tar_out_link, freed by tar_out_end */
};

struct tar_new {
	const char *name, *link; /* link may be NULL */
	const struct stat *st;
	char type;	    /* see struct tar_entry */
	uint64_t data_size; /* set by tar_out_file */
	struct buf pax;	    /* freed by the caller */
};

/* The name that the inode has in the archive already, or NULL: then this one is remembered. */
const char *tar_out_link(struct tar_out *t, const struct stat *st, const char *name);
/* One entry without content. */
int tar_out_entry(struct tar_out *t, struct tar_new *n, struct err *e);
/* A regular file with its content and attributes. */
int tar_out_file(struct tar_out *t, struct tar_new *n, int fd, struct err *e);
/* In front of an entry: attributes of the file behind fd; a key of the extended header. */
void tar_out_xattrs(struct tar_new *n, int fd);
void tar_out_note(struct tar_new *n, const char *key, const char *value);
/* The end of the archive. */
int tar_out_end(struct tar_out *t, struct err *e);
