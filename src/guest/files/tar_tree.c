/* Writes a tree as a pax archive. */
#include "guest/files/tar_tree.h"

#include "guest/files/walk.h"
#include "kern/dirents.h"
#include "wire/tar_layer.h"

#include <sys/sysmacros.h>
#include <sys/xattr.h>

static bool is_opaque(int fd)
{
	static const char *const names[] = {"user.overlay.opaque", "trusted.overlay.opaque"};
	char value = 0;

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (fgetxattr(fd, names[i], &value, 1) == 1 && value == 'y')
			return true;
	return false;
}

/* Opens a file of ours even if its mode forbids reading. */
static int open_anyhow(int dir, const char *name, mode_t mode, int flags)
{
	int fd = openat(dir, name, flags);

	if (fd < 0 && errno == EACCES && fchmodat(dir, name, (mode & 01777) | 0500, 0) == 0) {
		fd = openat(dir, name, flags);
		(void)!fchmodat(dir, name, mode & 01777, 0);
	}
	return fd;
}

struct tree_place {
	int dir;
	const char *name;
	char *as; /* TAR_MAX_NAME bytes */
	int depth;
};

#define TAR_OWNER 1000u /* the user inside, plan.h */

static int put_tree(struct tar_tree *t, const struct tree_place *p, struct err *e);

static int put_children(struct tar_tree *t, int fd, const struct tree_place *p, struct err *e)
{
	size_t len = strlen(p->as), at = len && !str_equal(p->as, ".") ? len + 1 : 0;
	auto_list struct list names = {0};
	int rc = 0;

	if (p->depth >= WALK_MAX_DEPTH)
		return err_set(e, ERR_LIMIT, "%s: directories are too deep", p->as);
	if (dirents_names(fd, SIZE_MAX, &names, NULL) < 0)
		return err_sys(e, "cannot list %s", p->as);
	for (size_t i = 0; rc == 0 && i < names.count; i++) {
		if (at + strlen(names.items[i]) + 2 > TAR_MAX_NAME) {
			rc = err_set(e, ERR_LIMIT, "%s: the path is too long", p->as);
			break;
		}
		if (at)
			p->as[len] = '/';
		strcpy(p->as + at, names.items[i]);
		rc = put_tree(t, &(struct tree_place){fd, names.items[i], p->as, p->depth + 1}, e);
		if (at)
			p->as[len] = '\0';
	}
	if (!at)
		strcpy(p->as, len ? "." : "");
	return rc;
}

/* An empty file whose name says that a name of the layers below is gone; in dir, "" for the top. */
static int put_mark(struct tar_tree *t, const char *dir, const char *name, struct err *e)
{
	auto_free char *mark = str_format("%s%s" TAR_LAYER_MARK "%s", dir, *dir ? "/" : "", name);
	static const struct stat none = {.st_mode = 0644};
	struct tar_new n = {.name = mark, .st = &none, .type = '0'};
	int rc = tar_out_entry(&t->out, &n, e);

	buf_done(&n.pax);
	return rc;
}

static int put_removed(struct tar_tree *t, const char *name, struct err *e)
{
	const char *slash = strrchr(name, '/');
	auto_free char *dir = must_alloc(strndup(name, slash ? (size_t)(slash - name) : 0));

	return put_mark(t, dir, slash ? slash + 1 : name, e);
}

static int put_directory(struct tar_tree *t, struct tar_new *n, const struct tree_place *p,
			 struct err *e)
{
	auto_close int fd =
		open_anyhow(p->dir, p->name, n->st->st_mode,
			    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	char shown[TAR_MAX_NAME + 2];
	bool hides;
	int rc = 0;

	if (fd < 0)
		return t->upper ? err_sys(e, "cannot open %s", p->as) : 0;
	if (walk_is_virtual(fd))
		return 0;
	if (*p->as) {
		snprintf(shown, sizeof(shown), "%s/", p->as);
		n->name = shown;
		n->type = '5';
		hides = t->upper && is_opaque(fd);
		if (hides && !t->out.layer)
			tar_out_note(n, "CLOCHE.opaque", "1");
		tar_out_xattrs(n, fd);
		rc = tar_out_entry(&t->out, n, e);
		if (rc == 0 && hides && t->out.layer)
			rc = put_mark(t, p->as, ".wh..opq", e);
	}
	return rc < 0 ? -1 : put_children(t, fd, p, e);
}

static int put_regular(struct tar_tree *t, struct tar_new *n, const struct tree_place *p,
		       struct err *e)
{
	auto_close int fd = -1;
	struct stat st;

	fd = open_anyhow(p->dir, p->name, n->st->st_mode,
			 O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return t->upper ? err_sys(e, "cannot open %s", p->as) : 0;
	st.st_mode = n->st->st_mode;
	n->st = &st;
	n->type = '0';
	return tar_out_file(&t->out, n, fd, e);
}

static int put_symlink(struct tar_tree *t, struct tar_new *n, const struct tree_place *p,
		       struct err *e)
{
	char target[TAR_MAX_NAME];
	ssize_t len;

	len = readlinkat(p->dir, p->name, target, sizeof(target) - 1);
	if (len < 0)
		return 0;
	target[len] = '\0';
	n->link = target;
	n->type = '2';
	return tar_out_entry(&t->out, n, e);
}

/* The entries of a directory that is not in the archive itself. */
static int put_below(struct tar_tree *t, const struct tree_place *p, struct err *e)
{
	auto_close int fd =
		openat(p->dir, p->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? 0 : put_children(t, fd, p, e);
}

static int put_tree(struct tar_tree *t, const struct tree_place *p, struct err *e)
{
	struct stat st;
	struct tar_new n = {.name = p->as, .st = &st};
	int rc = 0;

	/* The entry may be gone by now. */
	if (fstatat(p->dir, p->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	if (t->takes && *p->as && !t->takes(t->arg, p->as))
		return 0;
	if (t->only_own && st.st_uid != TAR_OWNER) {
		rc = S_ISDIR(st.st_mode) ? put_below(t, p, e) : 0;
	} else if (S_ISDIR(st.st_mode)) {
		rc = put_directory(t, &n, p, e);
	} else if ((S_ISREG(st.st_mode) || S_ISLNK(st.st_mode)) &&
		   (n.link = tar_out_link(&t->out, &st, p->as))) {
		n.type = '1';
		rc = tar_out_entry(&t->out, &n, e);
	} else if (S_ISREG(st.st_mode)) {
		rc = put_regular(t, &n, p, e);
	} else if (S_ISLNK(st.st_mode)) {
		rc = put_symlink(t, &n, p, e);
	} else if (S_ISFIFO(st.st_mode)) {
		n.type = '6';
		rc = tar_out_entry(&t->out, &n, e);
	} else if (t->upper && S_ISCHR(st.st_mode) && st.st_rdev == makedev(0, 0)) {
		n.type = '3';
		rc = t->out.layer ? put_removed(t, p->as, e) : tar_out_entry(&t->out, &n, e);
	}
	buf_done(&n.pax);
	return rc;
}

int tar_tree_write(struct tar_tree *t, int dir, const char *name, const char *as, struct err *e)
{
	char *path = must_alloc(calloc(1, TAR_MAX_NAME));
	int rc;

	snprintf(path, TAR_MAX_NAME, "%s", as);
	rc = put_tree(t, &(struct tree_place){dir, name, path, 0}, e);
	free(path);
	return rc;
}
