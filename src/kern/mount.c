#include "kern/mount.h"

#include "kern/sys.h"

#include <sys/mount.h>

static uint64_t attributes(unsigned flags)
{
	return MOUNT_ATTR_NOSUID | (flags & MOUNT_READ_ONLY ? MOUNT_ATTR_RDONLY : 0) |
	       (flags & MOUNT_NO_EXEC ? MOUNT_ATTR_NOEXEC : 0) |
	       (flags & MOUNT_DEVICES ? 0 : MOUNT_ATTR_NODEV);
}

int mount_reflag(int fd, unsigned flags, struct err *e)
{
	struct mount_attr attr = {.attr_set = attributes(flags)};
	unsigned at = AT_EMPTY_PATH | (flags & MOUNT_SUBMOUNTS ? AT_RECURSIVE : 0);

	if (sys_mount_setattr(fd, at, &attr) < 0)
		return err_sys(e, "cannot set mount flags");
	return 0;
}

int mount_reflag_named(const char *path, unsigned flags, struct err *e)
{
	struct mount_attr attr = {.attr_set = attributes(flags)};
	unsigned at = AT_SYMLINK_NOFOLLOW | (flags & MOUNT_SUBMOUNTS ? AT_RECURSIVE : 0);

	if (syscall(SYS_mount_setattr, AT_FDCWD, path, at, &attr, sizeof(attr)) < 0)
		return err_sys(e, "cannot set mount flags of %s", path);
	return 0;
}

/* Opens and sets flags in one call where the kernel can (6.15). */
static int clone_with_flags(int dirfd, const char *path, unsigned at, unsigned flags)
{
	struct mount_attr attr = {.attr_set = attributes(flags)};
	int fd = (int)syscall(SYS_open_tree_attr, dirfd, path, at, &attr, sizeof(attr));

	/* An outer filter that does not know the call may answer anything. */
	if (fd >= 0 || (errno != ENOSYS && errno != EPERM && errno != EINVAL))
		return fd;
	fd = sys_open_tree(dirfd, path, at);
	if (fd < 0)
		return -1;
	at = AT_EMPTY_PATH | (at & AT_RECURSIVE);
	if (sys_mount_setattr(fd, at, &attr) == 0)
		return fd;
	close(fd);
	return -1;
}

int mount_clone(int dirfd, const char *path, unsigned flags, struct err *e)
{
	unsigned at = AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC |
		      (flags & MOUNT_SUBMOUNTS ? AT_RECURSIVE : 0);
	int fd = clone_with_flags(dirfd, path, at, flags);

	return fd < 0 ? err_sys(e, "cannot open tree %s", path) : fd;
}

int mount_seal_below(int root, unsigned flags, struct err *e)
{
	struct mount_attr seal = {.attr_set = attributes(MOUNT_READ_ONLY)};
	struct mount_attr self = {.attr_clr = MOUNT_ATTR_RDONLY |
					      (flags & MOUNT_DEVICES ? MOUNT_ATTR_NODEV : 0)};

	if (sys_mount_setattr(root, AT_EMPTY_PATH | AT_RECURSIVE, &seal) < 0 ||
	    sys_mount_setattr(root, AT_EMPTY_PATH, &self) < 0)
		return err_sys(e, "cannot set mount flags");
	return 0;
}

int mount_bind_bare(const char *from, const char *to, unsigned flags, struct err *e)
{
	unsigned long recursive = flags & MOUNT_SUBMOUNTS ? MS_REC : 0;

	if (mount(from, to, NULL, MS_BIND | recursive, NULL) < 0)
		return err_sys(e, "cannot show %s", from);
	return 0;
}

/*
 * What these hold is the host's memory, or counted for the whole host: without a bound of its own,
 * one mount could take all of it.
 */
static bool has_its_bound(const char *type, const char *const *options)
{
	static const char *const bounds[][2] = {{"tmpfs", "size"}, {"devpts", "max"}};
	const char *wanted = NULL;

	for (size_t i = 0; i < ARRAY_LEN(bounds); i++)
		if (str_equal(type, bounds[i][0]))
			wanted = bounds[i][1];
	for (; wanted && options && options[0]; options += 2)
		if (str_equal(options[0], wanted))
			return true;
	return !wanted;
}

int mount_new(const char *type, unsigned flags, const char *const *options, struct err *e)
{
	int fs, fd = -1;

	if (!has_its_bound(type, options))
		return err_set(e, ERR_SYSTEM, "a %s without a bound is not mounted", type);
	fs = sys_fsopen(type);
	if (fs < 0)
		return err_sys(e, "cannot open file system %s", type);
	for (; options && options[0]; options += 2) {
		unsigned cmd = options[1] ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG;

		if (sys_fsconfig(fs, cmd, options[0], options[1]) < 0) {
			err_sys(e, "%s option %s", type, options[0]);
			goto out;
		}
	}
	if (sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL) < 0) {
		err_sys(e, "cannot create %s", type);
		goto out;
	}
	fd = sys_fsmount(fs, (unsigned)attributes(flags));
	if (fd < 0)
		err_sys(e, "cannot mount %s", type);
out:
	close(fs);
	return fd;
}

int mount_terminals(int dirfd, const char *path, struct err *e)
{
	static const char *const options[] = {"newinstance", NULL,  "ptmxmode", "0666", "mode",
					      "0620",	     "max", "256",	NULL};
	int pts = mount_new("devpts", MOUNT_DEVICES | MOUNT_NO_EXEC, options, e);

	return pts < 0 ? -1 : mount_attach(pts, dirfd, path, e);
}

int mount_idmap(int mount, int userns)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)userns};

	return sys_mount_setattr(mount, AT_EMPTY_PATH, &attr);
}

int mount_attach(int mount, int dirfd, const char *path, struct err *e)
{
	unsigned flags = MOVE_MOUNT_F_EMPTY_PATH | (*path ? 0 : MOVE_MOUNT_T_EMPTY_PATH);
	int rc = (int)syscall(SYS_move_mount, mount, "", dirfd, path, flags);

	if (rc < 0)
		err_sys(e, "cannot attach mount at %s", path);
	close(mount);
	return rc;
}

int mount_bind(int from_dirfd, const char *from, int to_dirfd, const char *to, unsigned flags,
	       struct err *e)
{
	int fd = mount_clone(from_dirfd, from, flags, e);

	return fd < 0 ? -1 : mount_attach(fd, to_dirfd, to, e);
}
