/*
 * Fills the store of images. Who calls runs as the user whose store it is; everything that strangers made is
 * parsed by other processes: cloche-image (image/worker/worker.h) and `cloche-guest unpack`.
 */
#pragma once

#include "image/image.h"

struct image_maker {
	struct image_store store;
	const char *worker; /* path of cloche-image */
	int guest;	    /* cloche-guest, a memfd */
	/* Each line is for the user. */
	void (*note)(const char *text);
	/* Asked before an image gets its name: does anybody still want it? May be NULL. */
	bool (*is_wanted)(void);
	/* Of what is fetched; total 0: not known. May be NULL. */
	void (*progress)(uint64_t done, uint64_t total);
	const char *path;  /* of the store; NULL: the caller's own */
	const char *owner; /* of names; NULL: whose store it is */
	/* How many bytes of layers may be added; 0: no bound. */
	uint64_t room;
	/* private: */
	int work, tmp;
	char tmp_name[32];
	uint64_t added;
	struct list held; /* layers that the owner has */
	bool knows_held;
	unsigned made;
	struct list loose; /* images without a name that a build has made, in hexadecimal digits */
};

/* Opens and locks the store. worker, guest (the path of cloche-guest): see above. */
int image_maker_open(struct image_maker *m, const char *worker, const char *guest, struct err *e);
void image_maker_close(struct image_maker *m);
/* What this machine runs, as images call it: "amd64". */
const char *image_architecture(void);

/*
 * Imports an archive of `docker save` or an OCI layout (as a tar or a directory), or a tar of a root file system,
 * which needs a name. With a name there must be one image. Calls `made` for each.
 */
struct image_import {
	const char *from; /* a path, "-" is stdin */
	const char *name; /* or NULL */
	bool is_files;	  /* whatever is in the tar, it is a root file system */
	void (*made)(const char *hex, const char *name);
};
int image_import(struct image_maker *m, const struct image_import *i, struct err *e);

/* Pulls an image from its registry, or first from mirrors of that. */
struct image_pull {
	const char *name;
	const struct list *mirrors; /* HOST[:PORT], tried in order */
	bool is_plain;		    /* HTTP without TLS; loopback needs no leave */
	const char *auth_file;	    /* logins of the operator's; NULL: the caller's own */
	void (*made)(const char *hex, const char *name);
};
int image_pull(struct image_maker *m, const struct image_pull *p, struct err *e);

/* Writes an OCI layout, with the manifest of docker save beside it, into an empty directory. name: or NULL. */
int image_export(struct image_maker *m, const struct image *image, const char *name, int dir,
		 struct err *e);
/* The same as a tar. */
int image_export_tar(struct image_maker *m, const struct image *image, const char *name, int to,
		     struct err *e);

/* ---- shared by the files here ---- */

/* Runs cloche-image parse over the bytes; *ret gets what it says, NUL-terminated lines. */
struct image_json {
	const void *bytes;
	size_t len;
	const char *arg; /* of the parser; NULL: this machine's architecture */
};
int image_parse(struct image_maker *m, const char *kind, const struct image_json *json,
		struct buf *ret, struct err *e);

/* SHA-256 in hexadecimal digits. */
void image_hash(const void *bytes, size_t len, char ret[IMAGE_HEX + 1]);

/*
 * Is the layer there, and does its owner have it already? If only others have it, who names its digest has not
 * shown to have its bytes, and gets it by bringing them.
 */
bool image_maker_has(struct image_maker *m, const char *hex);

/* A layer on its way into the store. */
struct image_layer {
	int blob;	  /* compressed or not; read from its position */
	const char *want; /* diff_id in hexadecimal digits, or NULL */
	/* results, until image_layer_keep: */
	char hex[IMAGE_HEX + 1];
	char dir[16]; /* in the maker's directory */
	uint64_t size;
};
/* Unpacks into the maker's directory. */
int image_layer_unpack(struct image_maker *m, struct image_layer *l, struct err *e);
/* Moves it into the store. */
int image_layer_keep(struct image_maker *m, struct image_layer *l, struct err *e);
/* Writes the very tar that the layer was made from; fails if it cannot be had any more. */
int image_layer_write(struct image_maker *m, const char *hex, int to, struct err *e);
/* Makes an image of a configuration whose layers are there. digest: of its manifest, or NULL. */
int image_make(struct image_maker *m, const struct image_json *config, char hex[IMAGE_HEX + 1],
	       struct err *e);
/* The layers that a configuration names. */
int image_config_record(struct image_maker *m, const struct image_json *config,
			struct image_record *ret, struct err *e);
