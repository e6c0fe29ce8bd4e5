/* The store's directory: opened and judged, locked, searched. */
#include "image/image.h"

#include "base/id.h"
#include "image/store_internal.h"

#include <sys/file.h>

static int state_path(char *ret, size_t size, struct err *e)
{
	const char *state = getenv("CLOCHE_STATE_DIR"), *data = getenv("XDG_DATA_HOME");
	const char *home = getenv("HOME");
	int n;

	if (state && *state == '/')
		n = snprintf(ret, size, "%s/images", state);
	else if (geteuid() == 0)
		n = snprintf(ret, size, "/var/lib/cloche/images");
	else if (data && *data == '/')
		n = snprintf(ret, size, "%s/cloche/images", data);
	else
		n = snprintf(ret, size, "%s/.local/share/cloche/images", home ? home : "");
	return n < (int)size ? 0 : err_set(e, ERR_INVALID, "the path of the images is too long");
}

static void make_parents(const char *path)
{
	char part[PATH_MAX];

	for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
		mkdir(part, 0755);
	}
}

static int make_store(const char *path, struct err *e)
{
	static const char *const parts[] = {"images", "configs", "layers", "uses", "tmp"};
	auto_close int dir = -1;

	make_parents(path);
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_sys(e, "cannot make %s", path);
	dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	for (size_t i = 0; i < ARRAY_LEN(parts); i++)
		if (dir < 0 || (mkdirat(dir, parts[i], 0700) < 0 && errno != EEXIST))
			return err_sys(e, "cannot make %s/%s", path, parts[i]);
	return 0;
}

int image_store_open_at(const char *path, bool make, struct image_store *ret, struct err *e)
{
	struct image_store s = {.dir = -1, .owner = IMAGE_OWNER_ALL};
	struct stat st;

	snprintf(s.path, sizeof(s.path), "%s", path);
	if (make && make_store(s.path, e) < 0)
		return -1;
	s.dir = open(s.path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (s.dir < 0 && errno == ENOENT)
		return err_set(e, ERR_NOT_FOUND,
			       "there is no image here yet; `cloche image pull` gets one");
	if (s.dir < 0 || fstat(s.dir, &st) < 0)
		return err_sys(e, "cannot open %s", s.path);
	/* Its content is believed and mounted. */
	if (st.st_uid != geteuid() || (st.st_mode & 022)) {
		close(s.dir);
		return err_set(e, ERR_DENIED, "%s must belong to the caller alone", s.path);
	}
	*ret = s;
	return 0;
}

int image_store_open(struct image_store *ret, bool make, struct err *e)
{
	char path[PATH_MAX];

	if (state_path(path, sizeof(path), e) < 0)
		return -1;
	return image_store_open_at(path, make, ret, e);
}

void image_store_close(struct image_store *s)
{
	close_fd(&s->dir);
}

/* ---- locks ---- */

int image_lock_file(const struct image_store *s, const char *name, int how, struct err *e)
{
	auto_close int fd = openat(s->dir, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return err_sys(e, "cannot open %s/%s", s->path, name);
	while (flock(fd, how) < 0) {
		if (errno == EWOULDBLOCK)
			return err_set(e, ERR_CONFLICT,
				       "an image is being made right now; try again later");
		if (errno != EINTR)
			return err_sys(e, "cannot lock %s/%s", s->path, name);
	}
	return take_fd(&fd);
}

int image_work_lock(const struct image_store *s, bool exclusive, struct err *e)
{
	return image_lock_file(s, "work", exclusive ? LOCK_EX | LOCK_NB : LOCK_SH, e);
}

/* ---- finding ---- */

static int not_found(const char *what, struct err *e)
{
	return err_field(e, ERR_NOT_FOUND, "image",
			 "image: there is no image '%.200s' here; get it by `cloche image pull "
			 "%.200s`, list them by `cloche image ls`",
			 what, what);
}

int image_open(const struct image_store *s, const char *hex, struct image *ret, struct err *e)
{
	auto_close int dir = openat(s->dir, "images", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_close int fd = dir < 0 ? -1 : openat(dir, hex, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct image i = {.lock = -1};
	char bytes[IMAGE_RECORD_MAX];
	struct stat st;
	ssize_t n;

	if (fd < 0 && errno == ENOENT)
		return not_found(hex, e);
	/* Whoever removes it holds the lock, and it has no link afterwards. */
	if (fd < 0 || flock(fd, LOCK_SH) < 0 || fstat(fd, &st) < 0)
		return err_sys(e, "cannot open image %s", hex);
	if (st.st_nlink == 0)
		return not_found(hex, e);
	n = io_read_all(fd, bytes, sizeof(bytes));
	if (n < 0)
		return err_sys(e, "cannot read image %s", hex);
	if (image_record_parse(bytes, (size_t)n, &i.record, e) < 0)
		return err_wrap(e, "image %s", hex);
	snprintf(i.hex, sizeof(i.hex), "%s", hex);
	i.lock = take_fd(&fd);
	*ret = i;
	return 0;
}

static int several(const char *start, struct err *e)
{
	return err_field(e, ERR_INVALID, "image",
			 "image: several ids begin with %s; give more digits", start);
}

/* 1: exactly one id begins like this. Whose store it is may have any image in it. */
static int find_by_id(const struct image_store *s, const char *start, char hex[IMAGE_HEX + 1],
		      struct err *e)
{
	auto_close int dir = openat(s->dir, "images", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_list struct list names = {0};
	int found = 0;

	if (!str_only(start, STR_DIGITS "abcdef", 12, IMAGE_HEX))
		return 0;
	if (dir < 0 || dirents_names(dir, SIZE_MAX, &names, NULL) < 0)
		return err_sys(e, "cannot list images");
	for (size_t i = 0; i < names.count; i++)
		if (image_is_hex(names.items[i]) && str_starts(names.items[i], start)) {
			snprintf(hex, IMAGE_HEX + 1, "%s", names.items[i]);
			found++;
		}
	return found < 2 ? found : several(start, e);
}

const struct image_ref *image_refs_find_id(const struct image_refs *r, const char *owner,
					   const char *id)
{
	const char *start = str_starts(id, "sha256:") ? id + strlen("sha256:") : id;
	const struct image_ref *found = NULL;

	if (!str_only(start, STR_DIGITS "abcdef", 12, IMAGE_HEX))
		return NULL;
	for (size_t i = 0; i < r->count; i++) {
		const struct image_ref *f = &r->items[i];

		if (!str_equal(f->owner, owner) || !str_starts(f->hex, start))
			continue;
		if (found && !str_equal(found->hex, f->hex))
			return NULL;
		found = f;
	}
	return found;
}

/* 1: found. Others have only what a name of theirs leads to. */
static int find_hex(const struct image_store *s, const struct image_refs *refs, const char *what,
		    char hex[IMAGE_HEX + 1], struct err *e)
{
	const char *id = str_starts(what, "sha256:") ? what + strlen("sha256:") : what;
	const struct image_ref *ref = NULL;
	struct image_reference name;

	if (id == what) {
		if (image_reference_parse(what, &name, e) < 0)
			return -1;
		ref = image_refs_find(refs, s->owner, name.name);
	}
	if (!ref && str_equal(s->owner, IMAGE_OWNER_ALL))
		return find_by_id(s, id, hex, e);
	if (!ref)
		ref = image_refs_find_id(refs, s->owner, id);
	if (ref)
		memcpy(hex, ref->hex, sizeof(ref->hex));
	return ref != NULL;
}

int image_find(const struct image_store *s, const char *what, struct image *ret, struct err *e)
{
	struct image_refs refs;
	char hex[IMAGE_HEX + 1];
	int rc;

	if (image_refs_read(s, &refs, e) < 0)
		return -1;
	rc = find_hex(s, &refs, what, hex, e);
	image_refs_done(&refs);
	if (rc <= 0)
		return rc < 0 ? -1 : not_found(what, e);
	return image_open(s, hex, ret, e);
}

int image_find_mine(const char *what, struct image_store *ret_store, struct image *ret,
		    struct err *e)
{
	struct image_store s = {.dir = -1};

	if (image_store_open(&s, false, e) < 0)
		return e->kind == ERR_NOT_FOUND ? not_found(what, e) : -1;
	if (image_find(&s, what, ret, e) < 0) {
		image_store_close(&s);
		return -1;
	}
	*ret_store = s;
	return 0;
}

bool image_is_stored(const char *image)
{
	struct image_store s = {.dir = -1};
	struct image_reference name;
	struct image_refs refs = {0};
	struct err ignored;
	struct stat st;
	bool known = false;

	if (str_equal(image, "host") || !*image || strchr("/.", *image))
		return false;
	if (stat(image, &st) < 0 || !S_ISDIR(st.st_mode))
		return true;
	if (image_reference_parse(image, &name, &ignored) == 0 &&
	    image_store_open(&s, false, &ignored) == 0 && image_refs_read(&s, &refs, &ignored) == 0)
		known = image_refs_find(&refs, s.owner, name.name) != NULL;
	image_refs_done(&refs);
	image_store_close(&s);
	return known;
}

void image_done(struct image *i)
{
	image_record_done(&i->record);
	close_fd(&i->lock);
}

/* ---- references ---- */

static bool parse_ref(char *line, struct image_ref *ret)
{
	char hex[80], time[24];
	struct err ignored;

	if (sscanf(line, "%39s %383s %79s %71s %23s", ret->owner, ret->name, hex, ret->digest,
		   time) != 5 ||
	    !image_is_digest(hex) || parse_count(time, &ret->unix_ms, &ignored) < 0)
		return false;
	memcpy(ret->hex, hex + strlen("sha256:"), sizeof(ret->hex));
	return true;
}

int image_refs_parse(const char *text, size_t len, struct image_refs *ret, struct err *e)
{
	auto_free char *copy = must_alloc(strndup(text, len));
	char *rest = copy, *line;
	struct image_refs r = {0};

	while ((line = strsep(&rest, "\n"))) {
		r.items = array_room(r.items, r.count, &r.room, sizeof(*r.items));
		if (!*line)
			continue;
		/* A store of a newer version, or a damaged one: nothing of it may be lost. */
		if (!parse_ref(line, &r.items[r.count])) {
			image_refs_done(&r);
			return err_set(e, ERR_SYSTEM,
				       "the store of images has a reference that is unknown here");
		}
		r.count++;
	}
	*ret = r;
	return 0;
}

int image_refs_read(const struct image_store *s, struct image_refs *ret, struct err *e)
{
	auto_close int fd = openat(s->dir, "refs", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	auto_free char *text = NULL;
	size_t len;

	*ret = (struct image_refs){0};
	if (fd < 0)
		return errno == ENOENT ? 0 : err_sys(e, "cannot open %s/refs", s->path);
	if (io_read_whole(fd, IMAGE_REFS_MAX, &text, &len) < 0)
		return err_sys(e, "cannot read %s/refs", s->path);
	return image_refs_parse(text, len, ret, e);
}

void image_refs_done(struct image_refs *r)
{
	free(r->items);
	*r = (struct image_refs){0};
}

const struct image_ref *image_refs_find(const struct image_refs *r, const char *owner,
					const char *name)
{
	for (size_t i = 0; i < r->count; i++)
		if (str_equal(r->items[i].owner, owner) && str_equal(r->items[i].name, name))
			return &r->items[i];
	return NULL;
}
