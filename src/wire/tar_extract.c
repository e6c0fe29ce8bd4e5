/* Extracts an archive below one directory, and never follows a link there. */
#include "wire/tar_layer.h"

#include <sys/xattr.h>

#define MODES 01777u /* no set-id bits: the filter refuses them anyway */

/* Directories get their mode and time at the end, because extracting into them changes both. */
struct late {
	char *name;
	mode_t mode;
	struct timespec mtime;
};

struct extraction {
	struct tar_extract *x;
	struct tar_in *tar;
	struct late *late;
	size_t late_count, late_room;
	uint64_t late_bytes;
	/* Of a layer: the directory of the entry before, which is most often this entry's, too. */
	int above;
	char above_name[TAR_MAX_NAME];
};

bool tar_is_allowed_xattr(const char *name)
{
	return str_starts(name, "user.") && !str_starts(name, "user.overlay.");
}

static int open_dir(int dir, const char *name)
{
	return openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
}

/* ---- names ---- */

/*
 * Removes "." parts, doubled and leading slashes; false if there is a ".." or a part that is too
 * long.
 */
static bool clean_name(const char *name, char *ret)
{
	size_t n = 0;

	for (;;) {
		size_t len;

		name += strspn(name, "/");
		len = strcspn(name, "/");
		if (len == 0)
			break;
		if (len > NAME_MAX || (len == 2 && name[0] == '.' && name[1] == '.'))
			return false;
		if (len != 1 || name[0] != '.') {
			if (n)
				ret[n++] = '/';
			memcpy(ret + n, name, len);
			n += len;
		}
		name += len;
	}
	ret[n] = '\0';
	return true;
}

static int judge_name(const struct tar_extract *x, char *name, struct err *e)
{
	char clean[TAR_MAX_NAME];

	if (((x->strict || x->outside) && name[0] == '/') || !clean_name(name, clean))
		return err_set(e, ERR_DENIED, "the archive names '%.200s', which leads out of it",
			       name);
	snprintf(name, TAR_MAX_NAME, "%s", clean);
	return 0;
}

static int judge_xattrs(const struct tar_extract *x, const struct tar_entry *n, struct err *e)
{
	for (size_t i = 0; x->strict && i < n->xattrs.count; i++)
		if (!tar_is_allowed_xattr(n->xattrs.items[i].name))
			return err_set(e, ERR_DENIED,
				       "%.200s has attribute %.100s; only user.* is allowed",
				       n->name, n->xattrs.items[i].name);
	return 0;
}

static bool is_whiteout(const struct tar_extract *x, const struct tar_entry *n)
{
	return x->upper && n->type == '3' && n->major == 0 && n->minor == 0;
}

/* Judges an entry by itself, before it is extracted (rule 11). */
static int judge(const struct tar_extract *x, struct tar_entry *n, struct err *e)
{
	if (judge_name(x, n->name, e) < 0 || (n->type == '1' && judge_name(x, n->link, e) < 0) ||
	    judge_xattrs(x, n, e) < 0)
		return -1;
	if (x->strict && (n->mode & 06000))
		return err_set(e, ERR_DENIED, "%.200s has a set-id bit", n->name);
	if (x->strict && strchr("34", n->type) && !is_whiteout(x, n))
		return err_set(e, ERR_DENIED, "%.200s is a device", n->name);
	if (x->strict && !strchr("0123456", n->type))
		return err_set(e, ERR_DENIED, "%.200s is of an unknown kind", n->name);
	if (!*n->name && n->type != '5')
		return err_set(e, ERR_INVALID, "the archive is malformed: an entry has no name");
	return 0;
}

/*
 * Opens the directory of a name, and makes it if need be; -1: a link is in the way, or it cannot be
 * made.
 */
static int open_above(int root, const char *name, const char **ret_last, struct err *e)
{
	auto_close int at = openat(root, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char part[NAME_MAX + 1];

	for (const char *slash; at >= 0 && (slash = strchr(name, '/')); name = slash + 1) {
		int next;

		memcpy(part, name, (size_t)(slash - name));
		part[slash - name] = '\0';
		next = openat(at, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (next < 0 && errno == ENOENT && mkdirat(at, part, 0755) == 0)
			next = openat(at, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (next < 0)
			return err_sys(e, "cannot go through %s", part);
		close(at);
		at = next;
	}
	if (at < 0)
		return err_sys(e, "cannot open the directory");
	*ret_last = name;
	return take_fd(&at);
}

/* ---- entries ---- */

static mode_t mode_of(const struct tar_extract *x, const struct tar_entry *n)
{
	if (x->layer)
		return tar_layer_mode(x->layer, n);
	return x->outside ? n->mode & 0777 & ~x->mask : n->mode & MODES;
}

static void set_xattrs(const struct tar_extract *x, int fd, const struct tar_entry *n)
{
	for (size_t i = 0; !x->outside && i < n->xattrs.count; i++)
		if (tar_is_allowed_xattr(n->xattrs.items[i].name))
			(void)!fsetxattr(fd, n->xattrs.items[i].name, n->xattrs.items[i].value,
					 n->xattrs.items[i].len, 0);
}

static int copy_range(struct extraction *j, int fd, struct tar_range r, struct err *e)
{
	char bytes[32768];

	while (r.size > 0) {
		size_t want = r.size < sizeof(bytes) ? (size_t)r.size : sizeof(bytes);
		ssize_t got = tar_in_data(j->tar, bytes, want, e), done = 0;

		if (got <= 0)
			return got < 0 ? -1 : err_set(e, ERR_INVALID, "the archive is too short");
		while (done < got) {
			ssize_t n = pwrite(fd, bytes + done, (size_t)(got - done),
					   (off_t)r.offset + done);

			if (n < 0 && errno != EINTR)
				return err_sys(e, "cannot write");
			done += n > 0 ? n : 0;
		}
		r.offset += (uint64_t)got;
		r.size -= (uint64_t)got;
	}
	return 0;
}

static int write_range(struct extraction *j, const struct tar_entry *n, int fd, struct tar_range r,
		       struct err *e)
{
	struct tar_layer *l = j->x->layer;
	int rc;

	if (l && r.size)
		l->content(l->arg, n->name, r);
	rc = copy_range(j, fd, r, e);
	if (l && r.size)
		l->content_ends(l->arg);
	return rc;
}

static int write_contents(struct extraction *j, const struct tar_entry *n, int fd, struct err *e)
{
	if (!n->sparse)
		return write_range(j, n, fd, (struct tar_range){0, n->size}, e);
	for (size_t i = 0; i < n->range_count; i++)
		if (write_range(j, n, fd, n->ranges[i], e) < 0)
			return -1;
	return ftruncate(fd, (off_t)n->size) < 0 ? err_sys(e, "cannot write") : 0;
}

/* Removes what has this name; a directory only if the archive is the state of an overlay. */
static int remove_old(const struct tar_extract *x, int dir, const char *name, struct err *e)
{
	if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
		return 0;
	if ((x->upper || x->layer) && x->remove_tree(dir, name) == 0)
		return 0;
	if (!x->upper && (errno == EISDIR || errno == EPERM))
		errno = EISDIR;
	return err_sys(e, "cannot replace %s", name);
}

static int make_file(struct extraction *j, const struct tar_entry *n, int dir, const char *name,
		     struct err *e)
{
	auto_close int fd = -1;

	if (remove_old(j->x, dir, name, e) < 0)
		return -1;
	fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(e, "cannot make %s", n->name);
	if (write_contents(j, n, fd, e) < 0)
		return err_wrap(e, "%.200s", n->name);
	set_xattrs(j->x, fd, n);
	if (j->x->layer && tar_layer_own(j->x->layer, fd, "", n, e) < 0)
		return -1;
	fchmod(fd, mode_of(j->x, n));
	futimens(fd, (struct timespec[]){{.tv_nsec = UTIME_NOW}, n->mtime});
	return 0;
}

static int do_later(struct extraction *j, const struct tar_entry *n, struct err *e)
{
	j->late_bytes += strlen(n->name) + sizeof(*j->late);
	if (j->x->outside && j->late_bytes > TAR_MAX_DIR_BYTES)
		return err_set(e, ERR_LIMIT, "the archive has too many directories");
	j->late = array_room(j->late, j->late_count, &j->late_room, sizeof(*j->late));
	j->late[j->late_count++] = (struct late){str_copy(n->name), mode_of(j->x, n), n->mtime};
	return 0;
}

static int make_directory(struct extraction *j, const struct tar_entry *n, int dir,
			  const char *name, struct err *e)
{
	auto_close int fd = -1;
	bool is_old = false, was_removed = false;
	struct stat st;

	if (n->opaque && j->x->upper && *name && j->x->remove_tree(dir, name) < 0 &&
	    errno != ENOENT)
		return err_sys(e, "cannot replace %s", n->name);
	if (*name && mkdirat(dir, name, 0700) < 0) {
		if (errno != EEXIST || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return err_sys(e, "cannot make %s", n->name);
		is_old = S_ISDIR(st.st_mode);
		was_removed = j->x->layer && tar_layer_is_mark(&st);
		if (!is_old && (remove_old(j->x, dir, name, e) < 0 || mkdirat(dir, name, 0700) < 0))
			return err_sys(e, "cannot make %s", n->name);
	}
	fd = open_dir(dir, *name ? name : ".");
	if (fd >= 0)
		set_xattrs(j->x, fd, n);
	if (j->x->layer && (fd < 0 || (was_removed && tar_layer_hide_lower(fd) < 0)))
		return err_sys(e, "cannot make %s", n->name);
	if (j->x->layer && tar_layer_own(j->x->layer, fd, "", n, e) < 0)
		return -1;
	/* The directory that a client's archive is unpacked into keeps its own mode. */
	if ((*name || j->x->upper || j->x->layer) && !(j->x->outside && is_old))
		return do_later(j, n, e);
	return 0;
}

static int make_hard_link(struct extraction *j, const struct tar_entry *n, int dir,
			  const char *name, struct err *e)
{
	const char *last;
	auto_close int from = open_above(j->x->root, n->link, &last, e);
	struct stat st;

	/* A symbolic link means something else in another directory: it would lead out there. */
	if (from >= 0 && j->x->outside && fstatat(from, last, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    !S_ISREG(st.st_mode)) {
		if (j->x->skipped)
			j->x->skipped(n->name, "a hard link to what is not a file");
		return 0;
	}
	if (from < 0 || remove_old(j->x, dir, name, e) < 0)
		return -1;
	if (linkat(from, last, dir, name, 0) < 0)
		return err_sys(e, "cannot link %s to %s", n->name, n->link);
	return 0;
}

static int make_other(struct extraction *j, const struct tar_entry *n, int dir, const char *name,
		      struct err *e)
{
	int rc;

	if (remove_old(j->x, dir, name, e) < 0)
		return -1;
	if (n->type == '2')
		rc = symlinkat(n->link, dir, name);
	else
		rc = mkfifoat(dir, name, mode_of(j->x, n));
	if (rc < 0)
		return err_sys(e, "cannot make %s", n->name);
	if (j->x->layer && tar_layer_own(j->x->layer, dir, name, n, e) < 0)
		return -1;
	utimensat(dir, name, (struct timespec[]){{.tv_nsec = UTIME_NOW}, n->mtime},
		  AT_SYMLINK_NOFOLLOW);
	return 0;
}

/* Is it left out of a directory of the caller's? Says so. */
static bool is_skipped(const struct tar_extract *x, const struct tar_entry *n)
{
	const char *why = NULL;
	unsigned depth = 0;

	if (!x->outside)
		return false;
	for (const char *p = n->name; *p; p++)
		depth += *p == '/';
	if (!strchr("0125", n->type))
		why = "neither a file, a directory nor a link";
	else if (n->type == '2' && path_link_leads_out(n->link, depth))
		why = "a link that leads out of the copied directory";
	if (why && x->skipped)
		x->skipped(n->name, why);
	return why;
}

/* The directory of a name, as open_above has it; of a layer it stays open for the next entry. */
static int find_above(struct extraction *j, const char *path, const char **ret_last, struct err *e)
{
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;

	if (j->above >= 0 && strncmp(j->above_name, path, len) == 0 && !j->above_name[len]) {
		*ret_last = slash ? slash + 1 : path;
		return fcntl(j->above, F_DUPFD_CLOEXEC, 0);
	}
	int dir = open_above(j->x->root, path, ret_last, e);

	close_fd(&j->above);
	if (dir >= 0 && j->x->layer && len) {
		j->above = fcntl(dir, F_DUPFD_CLOEXEC, 0);
		snprintf(j->above_name, sizeof(j->above_name), "%.*s", (int)len, path);
	}
	return dir;
}

static int make_entry(struct extraction *j, const struct tar_entry *n, struct err *e)
{
	const char *name;
	auto_close int dir = find_above(j, n->name, &name, e);

	if (dir < 0)
		return err_wrap(e, "%.200s", n->name);
	if (j->x->layer && str_starts(name, TAR_LAYER_MARK))
		return tar_layer_remove(dir, name, e);
	switch (n->type) {
	case '0':
		return make_file(j, n, dir, name, e);
	case '1':
		return make_hard_link(j, n, dir, name, e);
	case '2':
	case '6':
		return make_other(j, n, dir, name, e);
	case '5':
		return make_directory(j, n, dir, name, e);
	default:
		if (is_whiteout(j->x, n) && j->x->remove_tree(dir, name) < 0 && errno != ENOENT)
			return err_sys(e, "cannot remove %s", n->name);
		return 0; /* devices and unknown kinds are left out */
	}
}

static void finish_directories(struct extraction *j)
{
	struct err ignored;

	while (j->late_count > 0) {
		struct late *l = &j->late[--j->late_count];
		const char *name;
		auto_close int dir = open_above(j->x->root, l->name, &name, &ignored);
		auto_close int fd = dir < 0 ? -1 : open_dir(dir, *name ? name : ".");

		if (fd >= 0) {
			fchmod(fd, l->mode);
			futimens(fd, (struct timespec[]){{.tv_nsec = UTIME_NOW}, l->mtime});
		}
		free(l->name);
	}
	free(j->late);
}

int tar_extract(struct tar_extract *x, struct tar_in *t, struct err *e)
{
	struct extraction j = {.x = x, .tar = t, .above = -1};
	struct tar_entry *n = must_alloc(calloc(1, sizeof(*n)));
	int rc;

	while ((rc = tar_in_next(t, n, e)) > 0) {
		rc = judge(x, n, e);
		if (rc == 0 && x->outside && x->entries >= TAR_MAX_ENTRIES)
			rc = err_set(e, ERR_LIMIT, "the archive has too many entries");
		if (rc == 0 && x->layer)
			rc = tar_layer_judge(x->layer, x->entries, n, e);
		if (rc == 0 && !x->dry && !is_skipped(x, n))
			rc = make_entry(&j, n, e);
		tar_entry_done(n);
		if (rc < 0)
			break;
		x->entries++;
	}
	close_fd(&j.above);
	finish_directories(&j);
	free(n);
	return rc;
}
