/*
 * Reads tar archives in the pax format, in constant memory except for names: long and odd names, hard
 * links, holes (GNU.sparse 1.0), user.* attributes (SCHILY.xattr), nanoseconds, and an overlay's
 * upper directory, where whiteouts are character devices 0:0 and opaque directories have the key
 * CLOCHE.opaque.
 *
 * Extraction never leaves the directory that it writes to. Guests write archives (wire/tar_out.h).
 */
#pragma once

#include "base/base.h"

#define TAR_BLOCK 512
#define TAR_MAX_NAME 8192
#define TAR_MAX_PAX (1u << 20) /* extended header of one entry, attributes included */
#define TAR_MAX_RANGES 65536   /* of a file with holes */

/* ---- reading: entries ---- */

struct tar_range {
	uint64_t offset, size;
};

struct tar_xattrs {
	struct tar_xattr {
		char *name, *value;
		size_t len;
	} * items;
	size_t count;
};

struct tar_entry {
	char type; /* '0' file, '1' hard link, '2' symbolic link, '3' '4' devices, '5' directory, '6' fifo */
	char name[TAR_MAX_NAME], link[TAR_MAX_NAME];
	mode_t mode;
	uint64_t uid, gid;  /* UINT64_MAX: not a number */
	uint64_t size;	    /* of the file */
	uint64_t data_size; /* in the archive */
	struct timespec mtime;
	unsigned major, minor;
	bool opaque;
	struct tar_xattrs xattrs;
	bool sparse;
	struct tar_range *ranges; /* of its data, in order; only if sparse */
	size_t range_count;
};

struct tar_in {
	/* How many bytes, 0 at the end, -1 with errno. */
	ssize_t (*read)(void *arg, void *bytes, size_t len);
	void *arg;
	uint64_t most;	  /* bytes that the archive may have in all; 0: any number */
	uint64_t passed;  /* bytes so far */
	uint64_t left;	  /* of this entry's data */
	uint64_t padding; /* after the data */
};

/*
 * 1: an entry; 0: the end; -1: malformed. Data that was not read is skipped. Free with
 * tar_entry_done.
 */
int tar_in_next(struct tar_in *t, struct tar_entry *ret, struct err *e);
/* Reads data of the entry; 0 at its end. */
ssize_t tar_in_data(struct tar_in *t, void *bytes, size_t len, struct err *e);
void tar_entry_done(struct tar_entry *t);

/* ---- reading: extraction ---- */

struct tar_extract {
	int root;    /* directory */
	bool upper;  /* whiteouts and opaque directories remove existing files */
	bool strict; /* devices, set-id bits, foreign attributes, absolute names are errors */
	bool dry;    /* only checks the archive */
	/*
	 * The directory is one of the caller's, outside of any sandbox, and the archive comes from inside. An
	 * absolute name is an error. Only files, directories and links within the archive are made, without
	 * attributes; modes obey `mask`, and directories that exist keep theirs.
	 */
	bool outside;
	mode_t mask;
	/* Needed with upper: removes a name and all below it; -1 with errno. */
	int (*remove_tree)(int dir, const char *name);
	/* With outside: is told what was not made; may be NULL. */
	void (*skipped)(const char *name, const char *why);
	uint64_t entries;
	struct tar_layer *layer; /* or NULL; needs remove_tree */
};

#define TAR_MAX_ENTRIES 4000000u /* with outside */

/*
 * A layer of an image (OCI's image-spec, layer.md). Marks of removed names become marks of an overlay:
 * character devices 0:0, and user.overlay.opaque. Owners and modes are set; devices, set-id bits and
 * attributes other than user.* are left out and counted. Bounds are the caller's.
 */
struct tar_layer {
	bool owners; /* can be set; otherwise the caller owns all and can read and remove it */
	uint64_t max_entries, max_bytes;
	unsigned max_depth;
	/*
	 * Before and after the reader is asked for content of a file, as it is from then on at this place of
	 * the file. The name lives until the next call.
	 */
	void (*content)(void *arg, const char *name, struct tar_range range);
	void (*content_ends)(void *arg);
	void *arg;
	uint64_t bytes, devices, set_ids, xattrs, foreign_ids; /* counted */
};
#define TAR_MAX_DIR_BYTES                                                                          \
	(256ull << 20) /* names of directories, kept until the end; with outside */

/* May this attribute be seen and set inside? Those of an overlay would change what the overlay shows. */
bool tar_is_allowed_xattr(const char *name);

/* The umask must be 0 unless `outside`. */
int tar_extract(struct tar_extract *x, struct tar_in *t, struct err *e);
