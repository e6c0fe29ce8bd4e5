/* Layers of images: bounds, owners, and marks of what a layer removes from the layers below it. */
#include "wire/tar_layer.h"

#include <sys/sysmacros.h>
#include <sys/xattr.h>

#define MOST_ID 65535u
#define NOBODY 65534u

static int too_much(struct err *e, const char *what)
{
	return err_set(e, ERR_LIMIT, "the layer has too many %s", what);
}

static unsigned depth_of(const char *name)
{
	unsigned depth = 1;

	for (; *name; name++)
		depth += *name == '/';
	return depth;
}

/* Only the last part of a name may be a mark: nothing can be put below what is removed. */
static bool has_mark_above(const char *name)
{
	const char *slash = strrchr(name, '/');

	if (!slash)
		return false;
	for (const char *p = name; p < slash; p = strchr(p, '/') + 1)
		if (str_starts(p, TAR_LAYER_MARK))
			return true;
	return false;
}

int tar_layer_judge(struct tar_layer *l, uint64_t entries, const struct tar_entry *n, struct err *e)
{
	if (entries >= l->max_entries)
		return too_much(e, "entries");
	if (depth_of(n->name) > l->max_depth)
		return too_much(e, "directories inside one another");
	if (n->data_size > l->max_bytes - l->bytes || n->size > l->max_bytes)
		return too_much(e, "bytes");
	l->bytes += n->type == '0' ? n->data_size : 0;
	if (!strchr("0123456", n->type))
		return err_set(e, ERR_UNSUPPORTED, "%.200s is of an unknown kind", n->name);
	if (has_mark_above(n->name))
		return err_set(e, ERR_INVALID, "%.200s lies in what is removed", n->name);
	l->devices += n->type == '3' || n->type == '4';
	l->set_ids += n->type != '5' && n->type != '2' && (n->mode & 06000);
	l->foreign_ids += n->uid > MOST_ID || n->gid > MOST_ID;
	for (size_t i = 0; i < n->xattrs.count; i++)
		l->xattrs += !tar_is_allowed_xattr(n->xattrs.items[i].name);
	return 0;
}

mode_t tar_layer_mode(const struct tar_layer *l, const struct tar_entry *n)
{
	/* A user who owns all of it has no capability to read what its mode denies. */
	mode_t least = l->owners ? 0 : n->type == '5' ? 0700 : 0400;

	return (n->mode & 01777) | least;
}

int tar_layer_own(struct tar_layer *l, int dir, const char *name, const struct tar_entry *n,
		  struct err *e)
{
	bool foreign = n->uid > MOST_ID || n->gid > MOST_ID;
	uid_t uid = foreign ? NOBODY : (uid_t)n->uid;
	gid_t gid = foreign ? NOBODY : (gid_t)n->gid;

	if (!l->owners || (uid == 0 && gid == 0))
		return 0;
	if (fchownat(dir, name, uid, gid, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) < 0)
		return err_sys(e, "cannot chown %.200s", n->name);
	return 0;
}

bool tar_layer_is_mark(const struct stat *st)
{
	return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
}

int tar_layer_hide_lower(int dir)
{
	return fsetxattr(dir, "user.overlay.opaque", "y", 1, 0);
}

static int hide_lower_of(int dir, const char *name, struct err *e)
{
	auto_close int fd =
		openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

	return fd < 0 || tar_layer_hide_lower(fd) < 0
		       ? err_sys(e, "cannot hide what is below %s", name)
		       : 0;
}

int tar_layer_remove(int dir, const char *mark, struct err *e)
{
	const char *name = mark + strlen(TAR_LAYER_MARK);
	struct stat st;

	if (str_equal(name, ".wh..opq"))
		return hide_lower_of(dir, ".", e);
	/* Other names of AUFS's own, which no layer means as files. */
	if (str_starts(name, TAR_LAYER_MARK))
		return 0;
	if (!*name || str_equal(name, ".") || str_equal(name, ".."))
		return err_set(e, ERR_INVALID, "a layer removes '%s'", name);
	if (mknodat(dir, name, S_IFCHR, makedev(0, 0)) == 0)
		return 0;
	/* The layer has a name of its own there: only what is below it goes. */
	if (errno == EEXIST && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return S_ISDIR(st.st_mode) ? hide_lower_of(dir, name, e) : 0;
	return err_sys(e, "cannot mark %s as removed", name);
}
