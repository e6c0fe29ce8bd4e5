/* Imports archives and layouts. An archive is unpacked like a layer first: what it holds tells what it is. */
#include "image/make/make.h"

#include "image/make/lines.h"
#include "kern/sys.h"

#include <sys/stat.h>

#define MANIFEST_MAX (4u << 20)
#define IMAGES_MAX 64

/* A file of an archive or layout, whose names and links are a stranger's. */
static int open_inside(int dir, const char *path, struct err *e)
{
	auto_close int fd = sys_openat2(dir, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
					RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, "the archive's %.200s cannot be opened", path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, ERR_INVALID, "the archive's %.200s is not a file", path);
	return take_fd(&fd);
}

static int read_inside(int dir, const char *path, size_t max, struct buf *ret, struct err *e)
{
	auto_close int fd = open_inside(dir, path, e);
	auto_free char *bytes = NULL;
	size_t len;

	if (fd < 0)
		return -1;
	if (io_read_whole(fd, max, &bytes, &len) < 0)
		return err_sys(e, "the archive's %.200s cannot be read", path);
	buf_add(ret, bytes, len);
	return 0;
}

/* The path of a blob in a layout. */
static int blob_path(const char *digest, char ret[96], struct err *e)
{
	if (!image_is_digest(digest))
		return err_set(e, ERR_INVALID, "the archive is malformed: '%.100s' is no digest",
			       digest);
	snprintf(ret, 96, "blobs/sha256/%s", digest + strlen("sha256:"));
	return 0;
}

static int read_blob(int dir, const char *digest, size_t max, struct buf *ret, struct err *e)
{
	char path[96], hex[IMAGE_HEX + 1];

	if (blob_path(digest, path, e) < 0 || read_inside(dir, path, max, ret, e) < 0)
		return -1;
	image_hash(ret->len ? buf_head(ret) : "", ret->len, hex);
	if (!str_equal(hex, digest + strlen("sha256:")))
		return err_set(e, ERR_INVALID, "the archive is damaged: %s has another digest",
			       digest);
	return 0;
}

/* ---- one image ---- */

static int take_layer(struct image_maker *m, int dir, const char *path, const char *hex,
		      struct err *e)
{
	struct image_layer l = {.want = hex};
	auto_close int blob = -1;

	if (image_maker_has(m, hex))
		return 0;
	blob = open_inside(dir, path, e);
	if (blob < 0)
		return -1;
	l.blob = blob;
	return image_layer_unpack(m, &l, e) < 0 ? -1 : image_layer_keep(m, &l, e);
}

static int take_image(struct image_maker *m, int dir, const struct buf *config,
		      const struct list *paths, char hex[IMAGE_HEX + 1], struct err *e)
{
	const struct image_json json = {config->len ? buf_head(config) : "", config->len, NULL};
	struct image_record r;
	int rc = 0;

	if (image_config_record(m, &json, &r, e) < 0)
		return -1;
	if (r.layers.count != paths->count)
		rc = err_set(e, ERR_INVALID, "the image is malformed: %zu layers, %zu digests",
			     paths->count, r.layers.count);
	for (size_t i = 0; rc == 0 && i < paths->count; i++)
		rc = take_layer(m, dir, paths->items[i], r.layers.items[i], e);
	image_record_done(&r);
	return rc < 0 ? -1 : image_make(m, &json, hex, e);
}

static int name_image(struct image_maker *m, const struct image_import *i, const char *name,
		      const char *hex, const char *digest, struct err *e)
{
	struct image_reference r = {0};

	if (m->is_wanted && !m->is_wanted())
		return err_set(e, ERR_CONFLICT, "the import was given up");
	if (!name && !str_equal(m->store.owner, IMAGE_OWNER_ALL))
		return err_field(e, ERR_INVALID, "name",
				 "name: the archive names no image; say what it is to be called");
	if (name && (image_reference_parse(name, &r, e) < 0 ||
		     image_tag(&m->store, r.name, hex, digest, e) < 0))
		return -1;
	i->made(hex, name ? r.name : NULL);
	return 0;
}

/* ---- layouts of OCI ---- */

/* A name in a layout is often a tag alone, which is no name here. */
static const char *useful_name(const struct image_import *i, const char *name)
{
	struct image_reference r;
	struct err ignored;

	if (i->name)
		return i->name;
	return strpbrk(name, ":/") && image_reference_parse(name, &r, &ignored) == 0 ? name : NULL;
}

static int take_manifest(struct image_maker *m, const struct image_import *i, int dir,
			 const struct line *child, unsigned depth, struct err *e)
{
	auto_buf struct buf bytes = {0}, says = {0}, config = {0};
	auto_list struct list layers = {0};
	char hex[IMAGE_HEX + 1], path[96];
	struct line l;
	size_t at = 0;

	if (read_blob(dir, child->a, MANIFEST_MAX, &bytes, e) < 0 ||
	    image_parse(m, "manifest", &(struct image_json){buf_head(&bytes), bytes.len, NULL},
			&says, e) < 0)
		return -1;
	while (lines_next(&says, &at, &l)) {
		if (str_equal(l.key, "child")) {
			if (depth == 0)
				return err_set(e, ERR_INVALID, "the index is too deep");
			memcpy(l.c, child->c, sizeof(l.c));
			return take_manifest(m, i, dir, &l, depth - 1, e);
		}
		if (str_equal(l.key, "config") && !config.len &&
		    read_blob(dir, l.a, IMAGE_CONFIG_MAX, &config, e) < 0)
			return -1;
		if (str_equal(l.key, "layer")) {
			if (blob_path(l.a, path, e) < 0)
				return -1;
			list_add(&layers, path);
		}
	}
	if (take_image(m, dir, &config, &layers, hex, e) < 0)
		return -1;
	return name_image(m, i, useful_name(i, child->c), hex, child->a, e);
}

static int import_layout(struct image_maker *m, const struct image_import *i, int dir,
			 struct err *e)
{
	auto_buf struct buf bytes = {0}, says = {0};
	struct line l;
	size_t at = 0, count = 0;

	if (read_inside(dir, "index.json", MANIFEST_MAX, &bytes, e) < 0 ||
	    image_parse(m, "manifest", &(struct image_json){buf_head(&bytes), bytes.len, NULL},
			&says, e) < 0)
		return -1;
	while (lines_next(&says, &at, &l)) {
		if (!str_equal(l.key, "child"))
			return err_set(e, ERR_INVALID, "the layout's index.json is no index");
		if (i->name && count++)
			return err_set(e, ERR_INVALID,
				       "it holds several images; import it without a name");
		if (take_manifest(m, i, dir, &l, 2, e) < 0)
			return -1;
	}
	return 0;
}

/* ---- archives of docker save ---- */

struct saved {
	char config[512];
	struct list tags, layers;
};

static void saved_done(struct saved *s)
{
	list_done(&s->tags);
	list_done(&s->layers);
	*s = (struct saved){0};
}

static int take_saved(struct image_maker *m, const struct image_import *i, int dir,
		      const struct saved *s, struct err *e)
{
	auto_buf struct buf config = {0};
	char hex[IMAGE_HEX + 1];

	if (read_inside(dir, s->config, IMAGE_CONFIG_MAX, &config, e) < 0 ||
	    take_image(m, dir, &config, &s->layers, hex, e) < 0)
		return -1;
	if (i->name || s->tags.count == 0)
		return name_image(m, i, i->name, hex, NULL, e);
	for (size_t n = 0; n < s->tags.count; n++)
		if (name_image(m, i, s->tags.items[n], hex, NULL, e) < 0)
			return -1;
	return 0;
}

static int import_saved(struct image_maker *m, const struct image_import *i, int dir, struct err *e)
{
	auto_buf struct buf bytes = {0}, says = {0};
	struct saved images[IMAGES_MAX] = {0}, *now = NULL;
	size_t at = 0, count = 0;
	struct line l;
	int rc = 0;

	if (read_inside(dir, "manifest.json", MANIFEST_MAX, &bytes, e) < 0 ||
	    image_parse(m, "docker", &(struct image_json){buf_head(&bytes), bytes.len, NULL}, &says,
			e) < 0)
		return -1;
	while (lines_next(&says, &at, &l)) {
		if (str_equal(l.key, "image") && count < IMAGES_MAX)
			now = &images[count++];
		else if (now && str_equal(l.key, "config"))
			snprintf(now->config, sizeof(now->config), "%s", l.a);
		else if (now && str_equal(l.key, "tag"))
			list_add(&now->tags, l.a);
		else if (now && str_equal(l.key, "layer"))
			list_add(&now->layers, l.a);
	}
	if (i->name && count > 1)
		rc = err_set(e, ERR_INVALID, "it holds %zu images; import it without a name",
			     count);
	for (size_t n = 0; n < count; n++) {
		if (rc == 0)
			rc = take_saved(m, i, dir, &images[n], e);
		saved_done(&images[n]);
	}
	return rc;
}

/* ---- what is it? ---- */

static bool has(int dir, const char *name)
{
	struct stat st;

	return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

/* 1: it is one of them, and was imported. */
static int import_known(struct image_maker *m, const struct image_import *i, int dir, struct err *e)
{
	if (has(dir, "oci-layout") && has(dir, "index.json"))
		return import_layout(m, i, dir, e) < 0 ? -1 : 1;
	if (has(dir, "manifest.json"))
		return import_saved(m, i, dir, e) < 0 ? -1 : 1;
	return 0;
}

/* A root file system becomes an image of one layer. Equal bytes make an equal id: no time is in it. */
static int import_root(struct image_maker *m, const struct image_import *i, struct image_layer *l,
		       struct err *e)
{
	auto_free char *config = str_format(
		"{\"architecture\":\"%s\",\"os\":\"linux\",\"config\":{},\"rootfs\":{\"type\":"
		"\"layers\",\"diff_ids\":[\"sha256:%s\"]},\"history\":[{\"created_by\":\"cloche "
		"image import\"}]}",
		image_architecture(), l->hex);
	char hex[IMAGE_HEX + 1];

	if (!i->name)
		return err_set(e, ERR_INVALID,
			       "this is a root file system; give a name: cloche image import %s "
			       "NAME",
			       i->from);
	if (image_layer_keep(m, l, e) < 0 ||
	    image_make(m, &(struct image_json){config, strlen(config), NULL}, hex, e) < 0)
		return -1;
	return name_image(m, i, i->name, hex, NULL, e);
}

static int import_archive(struct image_maker *m, const struct image_import *i, int file,
			  struct err *e)
{
	struct image_layer l = {.blob = file};
	int rc;

	if (image_layer_unpack(m, &l, e) < 0)
		return -1;
	auto_free char *fs = str_format("%s/fs", l.dir);
	auto_close int dir = openat(m->tmp, fs, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		return err_sys(e, "cannot open what was unpacked");
	rc = i->is_files ? 0 : import_known(m, i, dir, e);
	return rc != 0 ? (rc < 0 ? -1 : 0) : import_root(m, i, &l, e);
}

int image_import(struct image_maker *m, const struct image_import *i, struct err *e)
{
	auto_close int fd = str_equal(i->from, "-")
				    ? dup(STDIN_FILENO)
				    : open(i->from, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	struct stat st;
	int rc;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, "cannot open %s", i->from);
	if (!S_ISDIR(st.st_mode))
		return import_archive(m, i, fd, e);
	rc = import_known(m, i, fd, e);
	if (rc == 0)
		return err_set(
			e, ERR_INVALID,
			"%s is no OCI layout; of a root file system make a tar first: tar -C "
			"%s -c . | cloche image import - NAME",
			i->from, i->from);
	return rc < 0 ? -1 : 0;
}
