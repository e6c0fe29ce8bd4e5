/*
 * Makes directories and files in a root that is being built, and mounts the scratch file system.
 */
#include "sandbox/inside/skeleton.h"

#include "kern/mount.h"
#include "kern/sys.h"
#include "sandbox/inside/root.h"

#define RESOLVE_COMPONENT (RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_BENEATH)

/* Opens one component of a path, and makes it if it is missing. Most are missing. */
static int make_component(int dir, const char *name, struct err *e)
{
	int made = mkdirat(dir, name, 0755), errnum = errno;
	int fd = sys_openat2(dir, name, O_PATH | O_DIRECTORY | O_CLOEXEC, RESOLVE_COMPONENT);

	if (fd >= 0)
		return fd;
	if (made < 0 && errnum != EEXIST)
		errno = errnum;
	return err_sys(e, "cannot make directory %s in the sandbox's root", name);
}

int skeleton_dir(int dir, const char *path, struct err *e)
{
	auto_close int at = -1; /* -1: still dir */
	char name[NAME_MAX + 1];

	for (;;) {
		size_t len;
		int next;

		path += strspn(path, "/");
		len = strcspn(path, "/");
		if (len == 0)
			break;
		if (len >= sizeof(name))
			return err_set(e, ERR_INVALID, "name too long in %s", path);
		memcpy(name, path, len);
		name[len] = '\0';
		next = make_component(at < 0 ? dir : at, name, e);
		if (next < 0)
			return -1;
		close_fd(&at);
		at = next;
		path += len;
	}
	if (at >= 0)
		return take_fd(&at);
	at = sys_openat2(dir, ".", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	return at < 0 ? err_sys(e, "cannot open a directory") : take_fd(&at);
}

int skeleton_parent(int dir, const char *path, const char **ret_name, struct err *e)
{
	const char *slash = strrchr(path, '/');
	char parent[PATH_MAX];

	snprintf(parent, sizeof(parent), "%.*s", slash ? (int)(slash - path) : 0, path);
	*ret_name = slash ? slash + 1 : path;
	return skeleton_dir(dir, parent, e);
}

int skeleton_point(int dir, const char *name, struct err *e)
{
	if (mknodat(dir, name, S_IFREG | 0444, 0) < 0)
		return err_sys(e, "cannot create %s in the sandbox", name);
	return 0;
}

int skeleton_file(int dir, const char *name, const char *data, size_t size, mode_t mode,
		  struct err *e)
{
	auto_close int fd =
		openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);

	if (fd < 0)
		return err_sys(e, "cannot create %s in the sandbox", name);
	if (io_write_all(fd, data, size) < 0)
		return err_sys(e, "cannot write %s in the sandbox", name);
	return 0;
}

int skeleton_tmpfs(uint64_t bytes, const char *mode, struct err *e)
{
	char size[32], inodes[32];
	const char *options[] = {"size", size, "nr_inodes", inodes, "mode", mode, NULL};

	snprintf(size, sizeof(size), "%" PRIu64, bytes);
	snprintf(inodes, sizeof(inodes), "%" PRIu64, bytes / 1024 + 4096);
	return mount_new("tmpfs", 0, options, e);
}

int skeleton_mount_scratch(const int *disk, uint64_t disk_bytes, struct err *e)
{
	int fd = disk ? fcntl(*disk, F_DUPFD_CLOEXEC, 3)
		      : skeleton_tmpfs(disk_bytes + ROOT_SKELETON_BYTES, "0755", e);

	if (fd < 0 || mount_attach(fd, AT_FDCWD, "/proc", e) < 0)
		return -1;
	return chdir("/proc") < 0 ? err_sys(e, "cannot enter the scratch file system") : 0;
}
