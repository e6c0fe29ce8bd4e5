/*
 * Changes of the store. What is new is made under another name, written to disk and renamed, so that at any
 * moment a crash leaves either the old state or the new one; `refs` comes last, since only it makes an image
 * visible.
 */
#include "image/store_internal.h"

#include "base/id.h"

#include <sys/file.h>

/* ---- removing ---- */

#define DEPTH 200

static int remove_below(int dir, const char *name, unsigned depth)
{
	auto_list struct list names = {0};
	auto_close int at = -1;
	struct stat st;

	if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -1;
	at = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (at < 0 || depth == 0 || fstat(at, &st) < 0 ||
	    dirents_names(at, SIZE_MAX, &names, NULL) < 0)
		return -1;
	/* Directories of an image may deny writing to their owner. */
	if ((st.st_mode & 0700) != 0700 && fchmod(at, 0700) < 0)
		return -1;
	for (size_t i = 0; i < names.count; i++)
		if (remove_below(at, names.items[i], depth - 1) < 0)
			return -1;
	return unlinkat(dir, name, AT_REMOVEDIR);
}

int image_remove_tree(int dir, const char *name)
{
	return remove_below(dir, name, DEPTH);
}

/* ---- files ---- */

int image_write_file(int dir, const char *name, const void *bytes, size_t len, struct err *e)
{
	char part[IMAGE_HEX + 32], letters[9];
	auto_close int fd = -1;

	if (id_letters(letters, 8) < 0)
		return err_sys(e, "cannot get random bytes");
	snprintf(part, sizeof(part), ".%s-%s", name, letters);
	fd = openat(dir, part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd >= 0 && io_write_all(fd, bytes, len) == 0 && fsync(fd) == 0 &&
	    renameat(dir, part, dir, name) == 0 && fsync(dir) == 0)
		return 0;
	err_sys(e, "cannot write %s of the images", name);
	unlinkat(dir, part, 0);
	return -1;
}

static int write_refs(const struct image_store *s, const struct image_refs *r, struct err *e)
{
	auto_buf struct buf text = {0};
	char line[700];

	for (size_t i = 0; i < r->count; i++) {
		const struct image_ref *f = &r->items[i];

		if (!f->name[0])
			continue;
		snprintf(line, sizeof(line), "%s %s sha256:%s %s %llu\n", f->owner, f->name, f->hex,
			 f->digest, (unsigned long long)f->unix_ms);
		buf_add(&text, line, strlen(line));
	}
	return image_write_file(s->dir, "refs", text.len ? buf_head(&text) : "", text.len, e);
}

int image_tag(const struct image_store *s, const char *name, const char *hex, const char *digest,
	      struct err *e)
{
	auto_close int lock = image_lock_file(s, "lock", LOCK_EX, e);
	struct image_refs refs;
	struct image_ref *f;
	int rc;

	if (lock < 0 || image_refs_read(s, &refs, e) < 0)
		return -1;
	f = (struct image_ref *)image_refs_find(&refs, s->owner, name);
	if (!f) {
		refs.items = array_room(refs.items, refs.count, &refs.room, sizeof(*refs.items));
		f = &refs.items[refs.count++];
	}
	*f = (struct image_ref){.unix_ms = unix_ms()};
	snprintf(f->owner, sizeof(f->owner), "%s", s->owner);
	snprintf(f->name, sizeof(f->name), "%s", name);
	snprintf(f->hex, sizeof(f->hex), "%s", hex);
	snprintf(f->digest, sizeof(f->digest), "%s", digest && *digest ? digest : "-");
	rc = write_refs(s, &refs, e);
	image_refs_done(&refs);
	return rc;
}

int image_untag(const struct image_store *s, const char *what, char hex[IMAGE_HEX + 1],
		struct err *e)
{
	auto_close int lock = image_lock_file(s, "lock", LOCK_EX, e);
	struct image found = {.lock = -1};
	struct image_reference name;
	struct image_refs refs;
	struct err ignored;
	bool by_name;
	int rc;

	if (lock < 0 || image_find(s, what, &found, e) < 0)
		return -1;
	memcpy(hex, found.hex, sizeof(found.hex));
	image_done(&found);
	if (image_refs_read(s, &refs, e) < 0)
		return -1;
	by_name = image_reference_parse(what, &name, &ignored) == 0 &&
		  image_refs_find(&refs, s->owner, name.name);
	for (size_t i = 0; i < refs.count; i++) {
		struct image_ref *f = &refs.items[i];

		if (str_equal(f->owner, s->owner) &&
		    (by_name ? str_equal(f->name, name.name) : str_equal(f->hex, hex)))
			f->name[0] = '\0';
	}
	rc = write_refs(s, &refs, e);
	image_refs_done(&refs);
	return rc;
}

/* ---- half-made ---- */

/* The lock of tmp's own directories says whether their maker lives. */
static void sweep_tmp(int tmp)
{
	auto_list struct list names = {0};

	if (dirents_names(tmp, SIZE_MAX, &names, NULL) < 0)
		return;
	for (size_t i = 0; i < names.count; i++) {
		auto_close int dir = openat(tmp, names.items[i],
					    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		if (dir >= 0 && flock(dir, LOCK_EX | LOCK_NB) == 0)
			image_remove_tree(tmp, names.items[i]);
	}
}

int image_tmp_make(const struct image_store *s, char name[32], struct err *e)
{
	auto_close int lock = image_lock_file(s, "lock", LOCK_EX, e);
	auto_close int tmp = openat(s->dir, "tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;

	if (lock < 0)
		return -1;
	if (tmp < 0 || id_letters(name, ID_LETTERS) < 0)
		return err_sys(e, "cannot open %s/tmp", s->path);
	sweep_tmp(tmp);
	if (mkdirat(tmp, name, 0700) == 0)
		fd = openat(tmp, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || flock(fd, LOCK_EX) < 0)
		return err_sys(e, "cannot make a directory in %s/tmp", s->path);
	return take_fd(&fd);
}

void image_tmp_remove(const struct image_store *s, const char *name)
{
	auto_close int tmp = openat(s->dir, "tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (tmp >= 0)
		image_remove_tree(tmp, name);
}

/* ---- adding ---- */

bool image_has_layer(const struct image_store *s, const char *hex)
{
	char path[128];

	snprintf(path, sizeof(path), "layers/%s/fs", hex);
	return faccessat(s->dir, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int image_move_layer(const struct image_store *s, int tmp, const char *from, const char *hex,
		     struct err *e)
{
	auto_close int layers = openat(s->dir, "layers", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (layers < 0 || syncfs(layers) < 0)
		return err_sys(e, "cannot write a layer");
	if (renameat(tmp, from, layers, hex) < 0 && errno != EEXIST && errno != ENOTEMPTY)
		return err_sys(e, "cannot move a layer to its place");
	return fsync(layers) < 0 ? err_sys(e, "cannot write a layer") : 0;
}

int image_add(const struct image_store *s, const char *hex, const struct image_record *r,
	      const char *config, size_t config_len, struct err *e)
{
	auto_close int configs = openat(s->dir, "configs", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_close int images = openat(s->dir, "images", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_buf struct buf text = {0};

	if (configs < 0 || images < 0)
		return err_sys(e, "cannot open %s", s->path);
	for (size_t i = 0; i < r->layers.count; i++)
		if (!image_has_layer(s, r->layers.items[i]))
			return err_set(e, ERR_SYSTEM, "layer %s is not there", r->layers.items[i]);
	image_record_format(r, &text);
	if (text.len > IMAGE_RECORD_MAX)
		return err_set(e, ERR_LIMIT, "the image's configuration is too large");
	/* Somebody may use this record and hold its lock: it stays the same file. */
	if (faccessat(images, hex, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	if (image_write_file(configs, hex, config, config_len, e) < 0)
		return -1;
	return image_write_file(images, hex, buf_head(&text), text.len, e);
}

/* ---- pruning ---- */

static bool has_name(const struct image_refs *refs, const char *hex)
{
	for (size_t i = 0; i < refs->count; i++)
		if (str_equal(refs->items[i].hex, hex))
			return true;
	return false;
}

/* Something of the daemon's has the image; if that cannot be known, it is taken for true. */
static bool is_used(const struct image_store *s, const char *hex)
{
	auto_list struct list ids = {0};
	char used[IMAGE_HEX + 1];
	struct err ignored;

	if (image_uses(s, &ids, &ignored) < 0)
		return true;
	for (size_t i = 0; i < ids.count; i++)
		if (image_use_find(s, ids.items[i], used) && str_equal(used, hex))
			return true;
	return false;
}

/*
 * Removes an image that nobody uses. Uses are looked at while nobody can lock it: who began to use it holds a
 * lock until its file is there.
 */
static bool remove_image(const struct image_store *s, int images, const char *hex)
{
	auto_close int fd = openat(images, hex, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char config[IMAGE_HEX + 16];

	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || is_used(s, hex) ||
	    unlinkat(images, hex, 0) < 0)
		return false;
	snprintf(config, sizeof(config), "configs/%s", hex);
	unlinkat(s->dir, config, 0);
	return true;
}

/* Adds the layers of all images that are left. */
static int list_used(const struct image_store *s, const struct list *images, struct list *used,
		     struct err *e)
{
	for (size_t i = 0; i < images->count; i++) {
		struct image image;

		if (!image_is_hex(images->items[i]))
			continue;
		/* Without knowing its layers none can be removed. */
		if (image_open(s, images->items[i], &image, e) < 0)
			return -1;
		for (size_t n = 0; n < image.record.layers.count; n++)
			list_add(used, image.record.layers.items[n]);
		image_done(&image);
	}
	return 0;
}

static bool is_in(const struct list *l, const char *s)
{
	for (size_t i = 0; i < l->count; i++)
		if (str_equal(l->items[i], s))
			return true;
	return false;
}

static uint64_t layer_size(int layers, const char *hex)
{
	char path[IMAGE_HEX + 8], text[32];
	uint64_t size = 0;
	struct err ignored;

	snprintf(path, sizeof(path), "%s/size", hex);
	if (io_read_at(layers, path, text, sizeof(text)) > 0)
		parse_count(text, &size, &ignored);
	return size;
}

/* The record goes first: from then on nobody finds the layer, and what is left is removed the next time. */
static int remove_layers(const struct image_store *s, const struct list *used,
			 struct image_pruned *ret, struct err *e)
{
	auto_close int layers = openat(s->dir, "layers", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_close int tmp = openat(s->dir, "tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_list struct list names = {0};

	if (layers < 0 || tmp < 0 || dirents_names(layers, SIZE_MAX, &names, NULL) < 0)
		return err_sys(e, "cannot list layers");
	for (size_t i = 0; i < names.count; i++) {
		uint64_t size = layer_size(layers, names.items[i]);

		if (is_in(used, names.items[i]))
			continue;
		if (renameat(layers, names.items[i], tmp, names.items[i]) < 0)
			return err_sys(e, "cannot remove layer %s", names.items[i]);
		fsync(layers);
		if (image_remove_tree(tmp, names.items[i]) < 0)
			return err_sys(e, "cannot remove layer %s", names.items[i]);
		ret->layers++;
		ret->bytes += size;
	}
	return 0;
}

int image_prune(const struct image_store *s, const char *only, struct image_pruned *ret,
		struct err *e)
{
	auto_close int lock = image_lock_file(s, "lock", LOCK_EX, e);
	auto_close int images = openat(s->dir, "images", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_list struct list names = {0}, left = {0}, used = {0};
	struct image_pruned done = {0};
	struct image_refs refs;

	if (lock < 0 || image_refs_read(s, &refs, e) < 0)
		return -1;
	if (images < 0 || dirents_names(images, SIZE_MAX, &names, NULL) < 0) {
		image_refs_done(&refs);
		return err_sys(e, "cannot list images");
	}
	for (size_t i = 0; i < names.count; i++) {
		const char *hex = names.items[i];
		bool wanted = !only || str_equal(only, hex);

		if (wanted && image_is_hex(hex) && !has_name(&refs, hex) &&
		    remove_image(s, images, hex))
			done.images++;
		else
			list_add(&left, hex);
	}
	fsync(images);
	image_refs_done(&refs);
	if (list_used(s, &left, &used, e) < 0 || remove_layers(s, &used, &done, e) < 0)
		return -1;
	*ret = done;
	return 0;
}
