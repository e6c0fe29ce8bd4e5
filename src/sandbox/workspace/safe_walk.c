/* Opens, stats and removes names below a directory without following a link or entering a mount. */
#include "sandbox/workspace/safe_walk.h"

#include "kern/caps.h"
#include "kern/dirents.h"
#include "kern/sys.h"

#include <sys/sysmacros.h>
#include <sys/xattr.h>

enum { RESOLVE_STRICT = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV };

bool safe_walk_push(struct safe_walk_path *p, const char *name, size_t *ret_mark)
{
	size_t len = strlen(name), slash = p->len > 0;

	if (len + slash >= sizeof(p->text) - p->len)
		return false;
	*ret_mark = p->len;
	if (slash)
		p->text[p->len++] = '/';
	memcpy(p->text + p->len, name, len + 1);
	p->len += len;
	return true;
}

void safe_walk_pop(struct safe_walk_path *p, size_t mark)
{
	p->len = mark;
	p->text[mark] = '\0';
}

int safe_walk_open_dir(int dir, const char *name)
{
	return sys_openat2(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
			   RESOLVE_STRICT);
}

int safe_walk_open_file(int dir, const char *name, struct stat *ret_st)
{
	uint64_t flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	auto_close int fd = -1;
	struct stat st;

	/* Opening a device may have an effect (a tape rewinds), so stat, open, stat again. */
	if (!safe_walk_stat(dir, name, &st))
		return -1;
	if (!S_ISREG(st.st_mode)) {
		errno = S_ISLNK(st.st_mode) ? ELOOP : EINVAL;
		return -1;
	}
	fd = sys_openat2(dir, name, flags, RESOLVE_STRICT);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -1;
	if (!S_ISREG(st.st_mode)) {
		errno = EINVAL;
		return -1;
	}
	*ret_st = st;
	return take_fd(&fd);
}

int safe_walk_create_file(int dir, const char *name)
{
	struct open_how how = {
		.flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		.mode = 0600,
		.resolve = RESOLVE_STRICT,
	};

	return (int)syscall(SYS_openat2, dir, name, &how, sizeof(how));
}

bool safe_walk_stat(int dir, const char *name, struct stat *ret)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	*ret = st;
	return true;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

bool safe_walk_has_name(const struct list *names, const char *name)
{
	return names->count > 0 &&
	       bsearch(&name, names->items, names->count, sizeof(*names->items), compare_names);
}

/*
 * The kernel uses trusted.overlay.* when root mounts, and user.overlay.* with `userxattr`. If code
 * inside sets the other one, that only says about its own tree what it could have done to it.
 */
bool safe_walk_is_whiteout(const struct stat *st)
{
	return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
}

bool safe_walk_is_opaque(int dir)
{
	/* As root the overlay keeps its marks in trusted.*, and user.overlay.* is plain data. */
	const char *name = caps_can_administer() ? "trusted.overlay.opaque" : "user.overlay.opaque";
	char value = 0;

	return fgetxattr(dir, name, &value, 1) == 1 && value == 'y';
}

static int remove_entries(int dir, unsigned depth);

static int remove_name(int dir, const char *name, unsigned depth)
{
	auto_close int below = -1;
	struct stat st;

	if (!safe_walk_stat(dir, name, &st))
		return errno == ENOENT ? 0 : -1;
	if (!S_ISDIR(st.st_mode))
		return unlinkat(dir, name, 0);
	below = safe_walk_open_dir(dir, name);
	if (below < 0 || remove_entries(below, depth + 1) < 0)
		return -1;
	return unlinkat(dir, name, AT_REMOVEDIR);
}

static int remove_entries(int dir, unsigned depth)
{
	auto_list struct list names = {0};
	int result = 0;

	if (depth >= SAFE_WALK_MAX_DEPTH) {
		errno = ENAMETOOLONG;
		return -1;
	}
	if (dirents_names(dir, SIZE_MAX, &names, NULL) < 0)
		return -1;
	for (size_t i = 0; i < names.count && result == 0; i++)
		result = remove_name(dir, names.items[i], depth);
	return result;
}

int safe_walk_remove(int dir, const char *name)
{
	return remove_name(dir, name, 0);
}
