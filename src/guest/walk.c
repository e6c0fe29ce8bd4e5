#include "guest/walk.h"

#include "base/auto.h"
#include "base/str.h"
#include "guest/files.h"
#include "guest/request.h"
#include "guest/worker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

int walk_open_dir(int dir, const char *name)
{
	return openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
}

int walk_open_parent(const char *path, const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	char parent[GUEST_MAX_PATH];

	if (!slash || !slash[1]) {
		errno = EINVAL;
		return -1;
	}
	snprintf(parent, sizeof(parent), "%.*s", slash == path ? 1 : (int)(slash - path), path);
	*ret_name = slash + 1;
	return open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int walk_names(int dir, struct list *ret)
{
	int fd = fcntl(dir, F_DUPFD_CLOEXEC, 3);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!d) {
		close_fd(&fd);
		return -1;
	}
	rewinddir(d);
	while ((entry = readdir(d)))
		if (!str_equal(entry->d_name, ".") && !str_equal(entry->d_name, ".."))
			list_add(ret, entry->d_name);
	closedir(d);
	if (ret->count)
		qsort(ret->items, ret->count, sizeof(*ret->items), compare);
	return 0;
}

int walk_write_fd(void *fd, const void *bytes, size_t len)
{
	const char *p = bytes;

	while (len > 0) {
		ssize_t n = write(*(int *)fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

bool walk_is_virtual(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 &&
	       (fs.f_type == PROC_SUPER_MAGIC || fs.f_type == SYSFS_MAGIC ||
		fs.f_type == DEVPTS_SUPER_MAGIC || fs.f_type == 0x19800202 /* mqueue */);
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
	/* Ours, but without the right to look into it. */
	if (fd < 0 && errno == EACCES && fchmodat(dir, name, 0700, 0) == 0)
		fd = walk_open_dir(dir, name);
	if (fd < 0 || remove_below(fd, depth + 1) < 0)
		return -1;
	return unlinkat(dir, name, AT_REMOVEDIR);
}

static int remove_below(int dir, int depth)
{
	struct list names = {0};
	int rc = 0;

	if (depth > WALK_MAX_DEPTH) {
		errno = ELOOP;
		return -1;
	}
	if (walk_names(dir, &names) < 0)
		return -1;
	for (size_t i = 0; i < names.count; i++) {
		if (remove_name(dir, names.items[i], depth) == 0)
			continue;
		/* One of its owner's directories that cannot be written to. */
		if (errno != EACCES || fchmod(dir, 0700) < 0 ||
		    remove_name(dir, names.items[i], depth) < 0) {
			rc = -1;
			break;
		}
	}
	list_done(&names);
	return rc;
}

int walk_remove_at(int dir, const char *name)
{
	return remove_name(dir, name, 0);
}

static void run_remove(struct work *w, const void *arg)
{
	const char *path = arg, *name;
	auto_close int parent = walk_open_parent(path, &name);

	if (parent < 0 || walk_remove_at(parent, name) < 0)
		work_error(w, errno, "cannot remove %s: %m", path);
	work_ok(w, NULL);
}

void walk_remove(struct guest *g, struct stream *s, const char *path)
{
	worker_start(g, s, &(struct worker_job){.run = run_remove, .arg = path});
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

static void send_stat(struct work *w, const char *path, const struct stat *st, int dir,
		      const char *name)
{
	struct buf b = {0};

	files_pack(&b, path, st, dir, name);
	work_frame(w, G_ITEM, buf_head(&b), b.len);
	buf_done(&b);
}

static void list_below(struct work *w, int dir, char *path, uint32_t depth)
{
	size_t len = strlen(path), at = len == 1 ? 0 : len;
	struct list names = {0};

	if (walk_names(dir, &names) < 0)
		return;
	for (size_t i = 0; i < names.count; i++) {
		struct stat st;

		if (at + strlen(names.items[i]) + 2 > GUEST_MAX_PATH ||
		    fstatat(dir, names.items[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		snprintf(path + at, GUEST_MAX_PATH - at, "/%s", names.items[i]);
		send_stat(w, path, &st, dir, names.items[i]);
		if (depth > 1 && S_ISDIR(st.st_mode)) {
			auto_close int fd = walk_open_dir(dir, names.items[i]);

			if (fd >= 0)
				list_below(w, fd, path, depth - 1);
		}
	}
	path[len] = '\0';
	list_done(&names);
}

static void run_list(struct work *w, const void *arg)
{
	const struct request *r = arg;
	uint32_t depth = r->number[0] < WALK_MAX_DEPTH ? (uint32_t)r->number[0] : WALK_MAX_DEPTH;
	char path[GUEST_MAX_PATH];
	auto_close int dir = walk_open_top(w, "list", r->text[0], path);

	work_ok(w, NULL);
	list_below(w, dir, path, depth ? depth : 1);
	work_end(w, NULL, 0);
}

void list_request(struct guest *g, struct stream *s, const struct request *r)
{
	worker_start(g, s, &(struct worker_job){.run = run_list, .arg = r, .goes_on = true});
}
