/*
 * Theory of operation: a layer must say of each directory on the way what it is like, because an overlay shows the
 * uppermost layer's. So the parents of all that is copied are written too: as the layers below have them, or new.
 * Where a link of the layers below leads to a directory, files go there, and the link stays.
 *
 * Sources are opened one name after the other below their root and judged by what was opened, so that a link that is
 * put there meanwhile leads nowhere.
 */
#include "image/build/copy.h"

#include "base/glob.h"
#include "image/build/view.h"
#include "kern/dirents.h"
#include "kern/sys.h"
#include "wire/tar_out.h"

#include <search.h>
#include <sodium.h>
#include <sys/mman.h>

#define DEPTH 128
#define IGNORE_MAX (256u << 10)

struct copy {
	struct image_maker *maker;
	int view;
	FILE *file;
	struct tar_out tar;
	crypto_hash_sha256_state hash;
	void *names; /* that were written: a tree of search.h */
	uint32_t uid, gid;
	int mode;
	bool keeps_owners; /* of an archive */
	size_t count;
};

/* One thing to be copied. */
struct thing {
	int fd; /* O_PATH, or for reading */
	struct stat st;
	const char *path; /* below the source's root, for .dockerignore */
	const char *to;
	unsigned depth;
};

static int write_tar(void *arg, const void *bytes, size_t len)
{
	struct copy *c = arg;

	return fwrite(bytes, 1, len, c->file) == len ? 0 : -1;
}

static void hash_bytes(void *arg, const void *bytes, size_t len)
{
	struct copy *c = arg;

	crypto_hash_sha256_update(&c->hash, bytes, len);
}

struct copy *copy_start(struct image_maker *m, int view, int file)
{
	struct copy *c = must_alloc(calloc(1, sizeof(*c)));

	*c = (struct copy){.maker = m, .view = view, .file = fdopen(dup(file), "w"), .mode = -1};
	c->tar = (struct tar_out){.write = write_tar, .saw = hash_bytes, .arg = c, .layer = true};
	crypto_hash_sha256_init(&c->hash);
	return c;
}

void copy_own(struct copy *c, uint32_t uid, uint32_t gid, int mode)
{
	c->uid = uid;
	c->gid = gid;
	c->mode = mode;
}

bool copy_is_empty(const struct copy *c)
{
	return c->count == 0;
}

static int compare(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* ---- entries ---- */

/* False: it is there already. */
static bool is_new(struct copy *c, const char *name)
{
	if (tfind(name, &c->names, compare))
		return false;
	must_alloc(tsearch(str_copy(name), &c->names, compare));
	c->count++;
	return true;
}

static void hash_entry(struct copy *c, const struct tar_new *n)
{
	auto_free char *text = str_format("%s%c%c %o %u %u %lld %s", n->name, 1, n->type,
					  n->st->st_mode & 07777, n->st->st_uid, n->st->st_gid,
					  n->type == '0' ? (long long)n->st->st_size : 0LL,
					  n->link ? n->link : "");

	hash_bytes(c, text, strlen(text) + 1);
}

/* fd: of a regular file, else -1. */
static int put_entry(struct copy *c, struct tar_new *n, int fd, struct err *e)
{
	int rc;

	hash_entry(c, n);
	rc = fd >= 0 ? tar_out_file(&c->tar, n, fd, e) : tar_out_entry(&c->tar, n, e);
	buf_done(&n->pax);
	return rc;
}

/* The owner and mode that it gets. */
static void dress(const struct copy *c, struct stat *st)
{
	if (!c->keeps_owners) {
		st->st_uid = c->uid;
		st->st_gid = c->gid;
	}
	if (c->mode >= 0)
		st->st_mode = (st->st_mode & S_IFMT) | (mode_t)c->mode;
}

/* like: what a new one is like. */
static int put_directory(struct copy *c, const char *to, const struct stat *like, struct err *e)
{
	auto_free char *name = str_format("%s/", to + 1);
	struct stat st;
	struct tar_new n = {.name = name, .st = &st, .type = '5'};

	if (!to[1])
		return 0;
	if (!view_stat(c->view, to, &st)) {
		st = *like;
		dress(c, &st);
	} else if (!S_ISDIR(st.st_mode)) {
		return err_set(e, ERR_INVALID, "%.300s is not a directory", to);
	}
	return is_new(c, name) ? put_entry(c, &n, -1, e) : 0;
}

static int put_parents(struct copy *c, const char *to, struct err *e)
{
	const struct stat like = {.st_mode = S_IFDIR | 0755,
				  .st_mtim.tv_sec = (time_t)(unix_ms() / 1000)};

	for (const char *slash = strchr(to + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		auto_free char *parent = must_alloc(strndup(to, (size_t)(slash - to)));
		int rc, mode = c->mode;

		/* --chmod is for what is copied. */
		c->mode = -1;
		rc = put_directory(c, parent, &like, e);
		c->mode = mode;
		if (rc < 0)
			return -1;
	}
	return 0;
}

/* A file or link in a directory. */
static int put_leaf(struct copy *c, struct tar_new *n, int fd, const char *to, struct err *e)
{
	struct stat below;

	if (to[1] == '\0' || (view_stat(c->view, to, &below) && S_ISDIR(below.st_mode)))
		return err_set(e, ERR_INVALID, "%.300s is a directory in the layers below", to);
	if (put_parents(c, to, e) < 0)
		return -1;
	if (!is_new(c, to + 1))
		return err_set(e, ERR_INVALID, "%.300s is copied twice", to);
	n->name = to + 1;
	return put_entry(c, n, fd, e);
}

static int put_file(struct copy *c, struct thing *t, struct err *e)
{
	auto_close int fd = io_reopen(t->fd, O_RDONLY | O_NONBLOCK);
	struct tar_new n = {.st = &t->st, .type = '0'};

	if (fd < 0)
		return err_sys(e, "cannot read %.300s", t->path);
	dress(c, &t->st);
	return put_leaf(c, &n, fd, t->to, e);
}

static int put_link(struct copy *c, struct thing *t, struct err *e)
{
	char target[PATH_MAX];
	ssize_t len = readlinkat(t->fd, "", target, sizeof(target) - 1);
	struct tar_new n = {.st = &t->st, .type = '2', .link = target};

	if (len < 0)
		return err_sys(e, "cannot read link %.300s", t->path);
	target[len] = '\0';
	dress(c, &t->st);
	t->st.st_mode = S_IFLNK | 0777;
	return put_leaf(c, &n, -1, t->to, e);
}

/* ---- .dockerignore ---- */

/* Does the pattern match this path, or a directory above it? */
static bool matches_above(const char *pattern, const char *path)
{
	auto_free char *start = str_copy(path);

	for (char *slash;; *slash = '\0') {
		/* Unlike a shell's, a pattern without a slash is meant for the top. */
		if ((strchr(pattern, '/') || !strchr(start, '/')) &&
		    glob_match(pattern, start, false))
			return true;
		slash = strrchr(start, '/');
		if (!slash)
			return false;
	}
}

/* The last pattern that matches decides. *ret_again: a file below may be taken all the same. */
static bool is_ignored(const struct copy_from *from, const char *path, bool *ret_again)
{
	bool ignored = false;

	*ret_again = false;
	for (size_t i = 0; from->ignored && i < from->ignored->count; i++) {
		const char *pattern = from->ignored->items[i];
		bool takes = *pattern == '!';

		*ret_again |= takes;
		if (matches_above(pattern + takes, path))
			ignored = !takes;
	}
	return ignored;
}

int copy_read_ignored(int context, struct list *ret, struct err *e)
{
	auto_close int fd = sys_openat2(context, ".dockerignore", O_RDONLY | O_NONBLOCK | O_CLOEXEC,
					RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS);
	auto_free char *text = NULL;
	char *rest, *line;
	size_t len;

	if (fd < 0)
		return errno == ENOENT ? 0 : err_sys(e, "cannot open .dockerignore");
	if (io_read_whole(fd, IGNORE_MAX, &text, &len) < 0)
		return err_sys(e, "cannot read .dockerignore");
	rest = text;
	while ((line = strsep(&rest, "\n"))) {
		bool takes;

		line += strspn(line, " \t");
		for (len = strlen(line); len > 0 && strchr(" \t\r", line[len - 1]); len--)
			line[len - 1] = '\0';
		if (!*line || *line == '#')
			continue;
		takes = *line == '!';
		auto_free char *clean = view_clean("/", line + takes);

		if (clean[1])
			list_take(ret, str_format("%s%s", takes ? "!" : "", clean + 1));
	}
	return 0;
}

/* ---- trees ---- */

static int put_thing(struct copy *c, const struct copy_from *from, struct thing *t, struct err *e);

static int put_child(struct copy *c, const struct copy_from *from, const struct thing *parent,
		     int dir, const char *name, struct err *e)
{
	auto_close int fd = sys_openat2(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC,
					RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS);
	auto_free char *path = str_format("%s%s%s", parent->path, *parent->path ? "/" : "", name);
	auto_free char *to = str_format("%s/%s", parent->to[1] ? parent->to : "", name);
	struct thing t = {.fd = fd, .path = path, .to = to, .depth = parent->depth + 1};

	if (fd < 0)
		return errno == ENOENT ? 0 : err_sys(e, "cannot open %.300s", path);
	if (fstat(fd, &t.st) < 0)
		return err_sys(e, "cannot look at %.300s", path);
	return put_thing(c, from, &t, e);
}

static int put_children(struct copy *c, const struct copy_from *from, const struct thing *t,
			struct err *e)
{
	auto_close int dir = io_reopen(t->fd, O_RDONLY | O_DIRECTORY);
	auto_list struct list names = {0};

	if (dir < 0 || dirents_names(dir, SIZE_MAX, &names, NULL) < 0)
		return err_sys(e, "cannot list %.300s", t->path);
	if (t->depth > DEPTH)
		return err_set(e, ERR_LIMIT, "%.300s: directories are too deep", t->path);
	for (size_t i = 0; i < names.count; i++)
		if (put_child(c, from, t, dir, names.items[i], e) < 0)
			return -1;
	return 0;
}

static int put_tree(struct copy *c, const struct copy_from *from, struct thing *t, bool itself,
		    struct err *e)
{
	bool exists;
	auto_free char *to = view_resolve(c->view, t->to, &exists, e);

	if (!to)
		return -1;
	t->to = to;
	if (itself && (put_parents(c, to, e) < 0 || put_directory(c, to, &t->st, e) < 0))
		return -1;
	return put_children(c, from, t, e);
}

static int put_thing(struct copy *c, const struct copy_from *from, struct thing *t, struct err *e)
{
	bool again, ignored = is_ignored(from, t->path, &again);

	if (ignored && (!S_ISDIR(t->st.st_mode) || !again))
		return 0;
	if (S_ISDIR(t->st.st_mode))
		return put_tree(c, from, t, !ignored, e);
	if (S_ISREG(t->st.st_mode))
		return put_file(c, t, e);
	/* Sockets, pipes and devices have no content. */
	return S_ISLNK(t->st.st_mode) ? put_link(c, t, e) : 0;
}

/* ---- archives ---- */

/* Is it one that ADD unpacks? */
static bool is_archive(int fd, const char *path)
{
	static const struct {
		const char *bytes;
		size_t at, len;
		bool by_name; /* it may as well be something else that is compressed */
	} kinds[] = {{"ustar", 257, 5, false},
		     {"\x1f\x8b", 0, 2, true},
		     {"\x28\xb5\x2f\xfd", 0, 4, true}};
	static const char *const names[] = {"*.tar.*", "*.tgz", "*.tzst"};
	char head[512] = "";
	bool named = false;

	if (pread(fd, head, sizeof(head), 0) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		named = named || glob_match(names[i], path, true);
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		if (memcmp(head + kinds[i].at, kinds[i].bytes, kinds[i].len) == 0 &&
		    (named || !kinds[i].by_name))
			return true;
	return false;
}

static int put_archive(struct copy *c, const struct thing *t, int file, struct err *e)
{
	const struct copy_from unpacked = {.dir = -1, .keeps_owners = true};
	struct image_layer l = {.blob = file};
	struct thing inside = {.path = "", .to = t->to};
	auto_close int fs = -1;

	if (image_layer_unpack(c->maker, &l, e) < 0)
		return err_wrap(e, "%.200s", t->path);
	auto_free char *path = str_format("%s/fs", l.dir);

	fs = openat(c->maker->tmp, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	inside.fd = fs;
	if (fs < 0 || fstat(fs, &inside.st) < 0)
		return err_sys(e, "cannot open the archive");
	inside.st.st_mode = S_IFDIR | 0755;
	inside.st.st_uid = inside.st.st_gid = 0;
	c->keeps_owners = true;
	return put_tree(c, &unpacked, &inside, true, e);
}

/* ---- sources ---- */

static int open_source(const struct copy_from *from, const char *path, struct thing *t,
		       struct err *e)
{
	uint64_t within = from->is_context ? RESOLVE_BENEATH : RESOLVE_IN_ROOT;

	t->fd = sys_openat2(from->dir, *path ? path : ".", O_PATH | O_CLOEXEC,
			    within | RESOLVE_NO_MAGICLINKS);
	if (t->fd < 0 && errno == EXDEV)
		return err_set(e, ERR_DENIED, "'%.200s' leads out of the context", path);
	if (t->fd < 0)
		return err_set(e, ERR_NOT_FOUND, "'%.200s' is not there (%s)", path,
			       strerror(errno));
	return fstat(t->fd, &t->st) < 0 ? err_sys(e, "cannot look at %.200s", path) : 0;
}

static int copy_one(struct copy *c, const struct copy_from *from, const char *path, const char *to,
		    bool into, struct err *e)
{
	auto_close int fd = -1, file = -1;
	struct thing t = {.path = path};
	const char *name = strrchr(path, '/');
	auto_free char *target = NULL, *resolved = NULL;
	bool again, exists;

	c->keeps_owners = from->keeps_owners;
	if (open_source(from, path, &t, e) < 0)
		return -1;
	fd = t.fd;
	if (*path && is_ignored(from, path, &again) && !(again && S_ISDIR(t.st.st_mode)))
		return err_set(e, ERR_NOT_FOUND, "'%.200s' is left out by .dockerignore", path);
	t.to = resolved = view_resolve(c->view, to, &exists, e);
	if (!resolved)
		return -1;
	if (S_ISDIR(t.st.st_mode))
		return put_tree(c, from, &t, true, e);
	if (from->unpacks && S_ISREG(t.st.st_mode) && (file = io_reopen(fd, O_RDONLY)) >= 0 &&
	    is_archive(file, path))
		return put_archive(c, &t, file, e);
	if (into) {
		target = str_format("%s/%s", resolved[1] ? resolved : "", name ? name + 1 : path);
		t.to = target;
	}
	return put_thing(c, from, &t, e);
}

/* Expands the pattern's next part; `done` has no pattern. */
static int copy_matches(struct copy *c, const struct copy_from *from, const char *done,
			const char *rest, const char *to, size_t *found, struct err *e)
{
	size_t len = strcspn(rest, "/");
	auto_free char *part = must_alloc(strndup(rest, len));
	auto_list struct list names = {0};
	auto_close int dir = -1;
	struct thing t = {0};
	struct err ignored;
	bool again;

	if (open_source(from, done, &t, &ignored) < 0)
		return 0;
	dir = S_ISDIR(t.st.st_mode) ? io_reopen(t.fd, O_RDONLY | O_DIRECTORY) : -1;
	close(t.fd);
	if (dir < 0 || dirents_names(dir, SIZE_MAX, &names, NULL) < 0)
		return 0;
	for (size_t i = 0; i < names.count; i++) {
		auto_free char *path = str_format("%s%s%s", done, *done ? "/" : "", names.items[i]);
		int rc;

		if (!glob_match(part, names.items[i], false) ||
		    (is_ignored(from, path, &again) && !again))
			continue;
		if (rest[len]) {
			rc = copy_matches(c, from, path, rest + len + 1, to, found, e);
		} else {
			++*found;
			rc = copy_one(c, from, path, to, true, e);
		}
		if (rc < 0)
			return -1;
	}
	return 0;
}

/* Does it go up more often than down? */
static bool goes_out(const char *path)
{
	int depth = 0;

	for (const char *part = path; *part; part += strcspn(part, "/"), part += *part == '/') {
		size_t len = strcspn(part, "/");

		if (len == 2 && memcmp(part, "..", 2) == 0)
			depth--;
		else if (len > 0 && !(len == 1 && *part == '.'))
			depth++;
		if (depth < 0)
			return true;
	}
	return false;
}

int copy_add(struct copy *c, const struct copy_from *from, const char *path, const char *to,
	     bool into, struct err *e)
{
	auto_free char *clean = view_clean("/", path);
	size_t found = 0;

	if (goes_out(path))
		return err_set(e, ERR_DENIED, "'%.200s' leads out of the context", path);
	if (!strpbrk(clean, "*?["))
		return copy_one(c, from, clean + 1, to, into, e);
	if (copy_matches(c, from, "", clean + 1, to, &found, e) < 0)
		return -1;
	return found ? 0 : err_set(e, ERR_NOT_FOUND, "nothing matches '%.200s'", path);
}

int copy_add_text(struct copy *c, const char *text, const char *name, const char *to, bool into,
		  struct err *e)
{
	auto_close int fd = memfd_create("text", MFD_CLOEXEC);
	bool exists;
	auto_free char *resolved = view_resolve(c->view, to, &exists, e);
	auto_free char *target = NULL;
	struct thing t = {.fd = fd, .path = name};

	if (!resolved)
		return -1;
	if (fd < 0 || io_write_all(fd, text, strlen(text)) < 0 || fstat(fd, &t.st) < 0)
		return err_sys(e, "cannot make a file");
	t.st.st_mode = S_IFREG | 0644;
	target = into ? str_format("%s/%s", resolved[1] ? resolved : "", name) : str_copy(resolved);
	t.to = target;
	return put_file(c, &t, e);
}

int copy_add_directory(struct copy *c, const char *path, bool is_opaque, struct err *e)
{
	static const struct stat none = {.st_mode = S_IFREG | 0644};
	const struct stat like = {.st_mode = S_IFDIR | 0755,
				  .st_mtim.tv_sec = (time_t)(unix_ms() / 1000)};
	bool exists;
	auto_free char *to = view_resolve(c->view, path, &exists, e);

	if (!to || put_parents(c, to, e) < 0 || put_directory(c, to, &like, e) < 0)
		return -1;
	if (!is_opaque)
		return 0;
	auto_free char *mark = str_format("%s/.wh..wh..opq", to + 1);

	return put_entry(c, &(struct tar_new){.name = mark, .st = &none, .type = '0'}, -1, e);
}

int copy_end(struct copy *c, char hex[IMAGE_HEX + 1], struct err *e)
{
	unsigned char hash[crypto_hash_sha256_BYTES];

	if (tar_out_end(&c->tar, e) < 0)
		return -1;
	if (fflush(c->file) != 0)
		return err_sys(e, "cannot write the layer");
	crypto_hash_sha256_final(&c->hash, hash);
	sodium_bin2hex(hex, IMAGE_HEX + 1, hash, sizeof(hash));
	return 0;
}

void copy_free(struct copy *c)
{
	struct err ignored;

	if (!c)
		return;
	if (c->tar.links)
		tar_out_end(&c->tar, &ignored);
	if (c->file)
		fclose(c->file);
	tdestroy(c->names, free);
	free(c);
}
