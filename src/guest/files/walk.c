/* Walks trees by directory fd, for listing, searching, watching and removing. */
#include "guest/files/walk.h"

#include "guest/files/files.h"
#include "guest/link/request.h"
#include "guest/link/worker.h"
#include "kern/dirents.h"

#include <dirent.h>
#include <linux/magic.h>
#include <sys/vfs.h>

int walk_open_dir(int dir, const char *name)
{
	return openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
}

int walk_open_parent(const char *path, const char **ret_name)
{
	char parent[GUEST_MAX_PATH];

	*ret_name = files_parent(path, parent);
	if (!*ret_name)
		return errno = EINVAL, -1;
	return open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

bool walk_is_virtual(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 &&
	       (fs.f_type == PROC_SUPER_MAGIC || fs.f_type == SYSFS_MAGIC ||
		fs.f_type == DEVPTS_SUPER_MAGIC || fs.f_type == 0x19800202 /* mqueue */);
}

static bool go_into(const struct walk *w, const struct walk_entry *n, char *path, unsigned levels)
{
	auto_close int fd =
		levels > 1 && S_ISDIR(n->st->st_mode) ? walk_open_dir(n->dir, n->name) : -1;

	if (fd < 0 || (w->skips_virtual && walk_is_virtual(fd)))
		return true;
	return walk_below(w, fd, path, levels - 1);
}

bool walk_below(const struct walk *w, int dir, char *path, unsigned levels)
{
	size_t len = strlen(path), at = len == 1 ? 0 : len;
	auto_list struct list names = {0};
	bool goes_on = true;

	if (dirents_names(dir, SIZE_MAX, &names, NULL) < 0)
		return true;
	for (size_t i = 0; goes_on && i < names.count; i++) {
		struct stat st;
		struct walk_entry n = {dir, names.items[i], path, &st};
		enum walk_next next;

		if (at + strlen(n.name) + 2 > GUEST_MAX_PATH ||
		    fstatat(dir, n.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		snprintf(path + at, GUEST_MAX_PATH - at, "/%s", n.name);
		next = w->visit(w->arg, &n);
		goes_on = next == WALK_INTO ? go_into(w, &n, path, levels) : next != WALK_STOP;
	}
	path[len] = '\0';
	return goes_on;
}

/* ---- removing ---- */

static int remove_below(int dir, int depth);

static int remove_name(int dir, const char *name, int depth)
{
	auto_close int fd = -1;

	if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -1;
	if (unlinkat(dir, name, AT_REMOVEDIR) == 0)
		return 0;
	if (errno != ENOTEMPTY && errno != EEXIST)
		return -1;
	fd = walk_open_dir(dir, name);
	/* A directory of ours that its mode forbids to list. */
	if (fd < 0 && errno == EACCES && fchmodat(dir, name, 0700, 0) == 0)
		fd = walk_open_dir(dir, name);
	if (fd < 0 || remove_below(fd, depth + 1) < 0)
		return -1;
	return unlinkat(dir, name, AT_REMOVEDIR);
}

static int remove_below(int dir, int depth)
{
	auto_list struct list names = {0};
	int rc = 0;

	if (depth > WALK_MAX_DEPTH) {
		errno = ELOOP;
		return -1;
	}
	if (dirents_names(dir, SIZE_MAX, &names, NULL) < 0)
		return -1;
	for (size_t i = 0; i < names.count; i++) {
		if (remove_name(dir, names.items[i], depth) == 0)
			continue;
		/* A directory of ours that its mode forbids to change. */
		if (errno != EACCES || fchmod(dir, 0700) < 0 ||
		    remove_name(dir, names.items[i], depth) < 0) {
			rc = -1;
			break;
		}
	}
	return rc;
}

int walk_remove_at(int dir, const char *name)
{
	return remove_name(dir, name, 0);
}

void remove_work(struct work *w, const struct unpacked_request *r)
{
	const char *path = r->text[0], *name;
	auto_close int parent = walk_open_parent(path, &name);

	if (parent < 0 || walk_remove_at(parent, name) < 0)
		work_error(w, errno, "cannot remove %s: %m", path);
	work_ok(w, NULL);
}

/* ---- listing ---- */

int walk_open_top(struct work *w, const char *what, const char *named, char ret[GUEST_MAX_PATH])
{
	int dir = open(named, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);

	if (dir < 0)
		work_error(w, errno, "cannot %s %s: %m", what, named);
	/* "/a/" and "/a" are the same; the root stays "/". */
	snprintf(ret, GUEST_MAX_PATH, "%s", named);
	for (size_t n = strlen(ret); n > 1 && ret[n - 1] == '/'; n--)
		ret[n - 1] = '\0';
	return dir;
}

static enum walk_next send_entry(void *work, const struct walk_entry *n)
{
	auto_buf struct buf b = {0};

	files_pack(&b, n->path, n->st, n->dir, n->name);
	work_frame(work, G_ITEM, buf_head(&b), b.len);
	return WALK_INTO;
}

void list_work(struct work *w, const struct unpacked_request *r)
{
	uint32_t depth = r->number[0] < WALK_MAX_DEPTH ? (uint32_t)r->number[0] : WALK_MAX_DEPTH;
	char path[GUEST_MAX_PATH];
	auto_close int dir = walk_open_top(w, "list", r->text[0], path);

	work_ok(w, NULL);
	walk_below(&(struct walk){.visit = send_entry, .arg = w}, dir, path, depth ? depth : 1);
	work_end(w, NULL, 0);
}
