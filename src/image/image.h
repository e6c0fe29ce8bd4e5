/*
 * Images: root file systems in a store, and what the launcher needs to know of them. No library is needed to
 * read the store; image/make fills it.
 *
 *   images/             0700, of one user
 *     refs              "OWNER NAME IMAGE_ID MANIFEST_DIGEST UNIX_MS" lines, rewritten whole
 *     lock              held while refs or images change
 *     work              shared while something is made, exclusive while something is removed
 *     images/HEX        the record of an image, by the digest of its configuration
 *     configs/HEX       that configuration as it came
 *     layers/HEX/fs     a layer unpacked, by the digest of its tar; with ids as in the tar if root made it
 *     layers/HEX/tar    what else is needed to write the same tar again
 *     uses/ID           the digits of the image that a sandbox or a snapshot of the daemon has
 *     build/KEY         "HEX TIME": a layer by what it was built from, see image/build/layers.c
 *     tmp/              half-made, each directory locked by its maker
 *
 * Whoever uses an image holds a shared lock on its record (image_find), or has a file in uses/, which outlives
 * the process. What has neither, and no name, can be removed. Names belong to an owner: "*" is the user whose
 * store it is, or the operator of the daemon; others are owners of sandboxes. Layers are shared by all.
 */
#pragma once

#include "image/reference.h"

#define IMAGE_LAYERS 90 /* names of all of them fit into one mount option (show_layers) */
#define IMAGE_RECORD_MAX (64u << 10)
#define IMAGE_CONFIG_MAX (1u << 20)
#define IMAGE_REFS_MAX (64u << 20)
#define IMAGE_LAYER_MAX (20ull << 30) /* bytes, compressed or not; see guest/files/layer.c */

/* What a run needs of an image: keys and values, "KEY VALUE" and a NUL each. */
struct image_record {
	struct list layers; /* diff_ids as hexadecimal digits, lowest first */
	struct list env;    /* K=V */
	struct list entrypoint, cmd;
	char *workdir, *user, *platform, *created;	/* or NULL */
	char *template, *start, *ready, *cpus, *memory; /* of labels, see below; or NULL */
	uint64_t size;					/* bytes of all layers */
};

/* Labels of images that are templates: what runs in their sandboxes, when they are ready, what they get. */
#define IMAGE_LABEL_TEMPLATE "cloche.template" /* it is one: its working directory counts */
#define IMAGE_LABEL_START "cloche.start"
#define IMAGE_LABEL_READY "cloche.ready"
#define IMAGE_LABEL_CPUS "cloche.cpus"
#define IMAGE_LABEL_MEMORY "cloche.memory"
#define IMAGE_LABEL_MAX 4096 /* a longer one counts for nothing */

int image_record_parse(const char *bytes, size_t len, struct image_record *ret, struct err *e);
void image_record_format(const struct image_record *r, struct buf *to);
void image_record_done(struct image_record *r);
/* Its USER is root, or it names none. */
bool image_user_is_root(const struct image_record *r);
/* Adds what runs in it if nobody says what: its entrypoint and command. */
void image_command(const struct image_record *r, struct list *argv);

#define IMAGE_OWNER 40
#define IMAGE_OWNER_ALL "*" /* whose store it is */

struct image_store {
	int dir;
	char owner[IMAGE_OWNER]; /* whose names are meant */
	char path[PATH_MAX];
};

/*
 * This user's store. With `make` it is made if it is not there; otherwise ERR_NOT_FOUND.
 */
int image_store_open(struct image_store *ret, bool make, struct err *e);
/* The same for the store at this path. */
int image_store_open_at(const char *path, bool make, struct image_store *ret, struct err *e);
void image_store_close(struct image_store *s);

/* A found image; stays there until lock is closed. */
struct image {
	char hex[IMAGE_HEX + 1];
	struct image_record record;
	int lock;
};

/*
 * By name, by "sha256:HEX" or by the beginning of that (12 digits at least). ERR_NOT_FOUND: there is none.
 */
int image_find(const struct image_store *s, const char *what, struct image *ret, struct err *e);
/* The same in this user's store, which is opened. */
int image_find_mine(const char *what, struct image_store *ret_store, struct image *ret,
		    struct err *e);
int image_open(const struct image_store *s, const char *hex, struct image *ret, struct err *e);
void image_done(struct image *i);

/*
 * Does --image mean an image of the store? Not "host", not a path that begins with '/' or '.', and not a
 * directory that is there, unless the store has the name.
 */
bool image_is_stored(const char *image);

/* ---- references ---- */

struct image_ref {
	char owner[IMAGE_OWNER];
	char name[384];
	char hex[IMAGE_HEX + 1];
	char digest[IMAGE_DIGEST]; /* of the manifest; "-" if it is not known */
	uint64_t unix_ms;
};

struct image_refs {
	struct image_ref *items;
	size_t count, room;
};

int image_refs_read(const struct image_store *s, struct image_refs *ret, struct err *e);
int image_refs_parse(const char *text, size_t len, struct image_refs *ret, struct err *e);
void image_refs_done(struct image_refs *r);
const struct image_ref *image_refs_find(const struct image_refs *r, const char *owner,
					const char *name);
/* Of this owner, the image that this is the id of, or the beginning of one; NULL: none or several. */
const struct image_ref *image_refs_find_id(const struct image_refs *r, const char *owner,
					   const char *id);
/* Lets name lead to the image; digest may be NULL. */
int image_tag(const struct image_store *s, const char *name, const char *hex, const char *digest,
	      struct err *e);
/* Removes a name, or by id all names of an image, which hex gets. */
int image_untag(const struct image_store *s, const char *what, char hex[IMAGE_HEX + 1],
		struct err *e);

/* ---- uses ---- */

/* What has this id uses the image; to_disk: also after a crash of the host. */
int image_use(const struct image_store *s, const char *id, const char *hex, bool to_disk,
	      struct err *e);
void image_unuse(const struct image_store *s, const char *id);
/* Which image has it? False: none. */
bool image_use_find(const struct image_store *s, const char *id, char hex[IMAGE_HEX + 1]);
/* The ids of all that use something. */
int image_uses(const struct image_store *s, struct list *ret, struct err *e);

/* ---- making and removing ---- */

/* Held by whoever adds to the store, or (exclusive) removes from it. Returns an fd. */
int image_work_lock(const struct image_store *s, bool exclusive, struct err *e);
/* A new directory in tmp/, locked; what dead makers left there is removed. Returns an fd; name has 32 bytes. */
int image_tmp_make(const struct image_store *s, char name[32], struct err *e);
void image_tmp_remove(const struct image_store *s, const char *name);
bool image_has_layer(const struct image_store *s, const char *hex);
/* Writes images/HEX and configs/HEX; the layers must be there. */
int image_add(const struct image_store *s, const char *hex, const struct image_record *r,
	      const char *config, size_t config_len, struct err *e);
/* A new file that replaces the old one as a whole, on disk when this returns. */
int image_write_file(int dir, const char *name, const void *bytes, size_t len, struct err *e);
/* Moves a finished tree to its place; 0 as well if somebody else was faster. */
int image_move_layer(const struct image_store *s, int tmp, const char *from, const char *hex,
		     struct err *e);

struct image_pruned {
	uint64_t images, layers, bytes;
};
/*
 * Removes images without a name that nobody uses, and layers of no image. With `only`, just that image (and
 * layers). Needs the exclusive work lock.
 */
int image_prune(const struct image_store *s, const char *only, struct image_pruned *ret,
		struct err *e);
