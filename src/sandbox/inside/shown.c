/* Shows what the caller names in the new root: the workspace, parts of its git repository, mounts. */
#include "sandbox/inside/shown.h"

#include "kern/mount.h"
#include "kern/sys.h"
#include "sandbox/inside/skeleton.h"
#include "sandbox/workspace/control.h"

#include <sys/mount.h>

#define SAFE_WALK (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)

/* Pins a file or directory of the workspace: a mount point cannot be moved or removed. */
static int pin_name(int workspace, const char *path, unsigned flags, struct err *e)
{
	auto_close int fd = sys_openat2(workspace, path, O_PATH | O_CLOEXEC, SAFE_WALK);

	if (fd >= 0 && mount_bind(fd, "", fd, "", flags, e) < 0)
		return err_wrap(e, "cannot protect %s", path);
	return 0;
}

/* Files that programs outside run or obey later without being asked (rule 10). */
static int protect_control_files(int workspace, struct err *e)
{
	static const char *const git[] = {".git/hooks", ".git/config", ".git/config.worktree",
					  ".git/commondir"};
	const unsigned shut = MOUNT_READ_ONLY | MOUNT_SUBMOUNTS;
	struct stat st;

	/* A file leads to a repository elsewhere (a worktree, a submodule). */
	if (fstatat(workspace, ".git", &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    pin_name(workspace, ".git", S_ISDIR(st.st_mode) ? 0 : shut, e) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(git); i++)
		if (pin_name(workspace, git[i], shut, e) < 0)
			return -1;
	for (size_t i = 0; i < control_row_count; i++)
		if (control_rows[i].where == CONTROL_ANY &&
		    pin_name(workspace, control_rows[i].name, shut, e) < 0)
			return -1;
	return 0;
}

static int workspace_mount(struct plan *p, struct err *e)
{
	unsigned flags = p->workspace_mode == WORKSPACE_COW ? MOUNT_READ_ONLY : 0;
	const struct owned_mount workspace = {
		UNMAPPED_WORKSPACE, p->workspace.path, p->workspace_owner,
		flags ? NULL
		      : "run cloche as the directory's owner instead of root, or use --apply"};
	int fd;

	if (p->workspace_mode == WORKSPACE_EMPTY)
		return mount_clone(AT_FDCWD, "ws", 0, e);
	fd = root_clone_source(&p->workspace, flags, e);
	if (fd < 0 || root_map_owner(p, fd, &workspace, e) < 0)
		return -1;
	if (p->workspace_mode == WORKSPACE_DIRECT)
		return fd;
	p->page->upper_limited = p->rootless && !root_has_user_attributes("ws");
	fd = root_overlay(p, fd, "ws", "work", e);
	if (fd < 0)
		err_wrap(e, "cannot show %s copy-on-write (try --workspace DIR or --empty)",
			 p->workspace.path);
	return fd;
}

/* An image may have something of its own there. */
static int link_workspace(struct plan *p, int root, struct err *e)
{
	if (str_equal(plan_directory(p), "/workspace"))
		return 0;
	p->page->workspace_linked = symlinkat(plan_directory(p), root, "workspace") == 0;
	return p->page->workspace_linked || errno == EEXIST ? 0
							    : err_sys(e, "cannot link /workspace");
}

int shown_views(struct plan *p, int root, struct err *e)
{
	for (size_t i = 0; p->git && i < p->git->view_count; i++) {
		const struct cow_view *v = &p->git->views[i];
		const struct owned_mount view = {UNMAPPED_WORKSPACE, v->source.path, v->owner,
						 NULL};
		auto_close int at = skeleton_dir(root, v->source.path, e);
		int fd = at < 0 ? -1 : root_clone_source(&v->source, MOUNT_READ_ONLY, e);

		if (fd >= 0)
			fd = root_map_owner(p, fd, &view, e) < 0
				     ? -1
				     : root_overlay(p, fd, v->upper, v->work, e);
		if (fd < 0 || mount_attach(fd, at, "", e) < 0)
			return err_wrap(e, "cannot show %s copy-on-write (try --no-git)",
					v->source.path);
	}
	return 0;
}

int shown_workspace(struct plan *p, int root, struct err *e)
{
	auto_close int at = skeleton_dir(root, p->workspace_path, e);
	auto_close int shown = -1;
	int fd = at < 0 ? -1 : workspace_mount(p, e);

	if (fd < 0 || mount_attach(fd, at, "", e) < 0)
		return -1;
	if (link_workspace(p, root, e) < 0)
		return -1;
	if (p->workspace_mode != WORKSPACE_DIRECT)
		return 0;
	shown = sys_openat2(root, p->workspace_path + 1, O_PATH | O_DIRECTORY | O_CLOEXEC,
			    RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS);
	return shown < 0 ? err_sys(e, "cannot open the workspace")
			 : protect_control_files(shown, e);
}

static int new_tmpfs(const struct plan *p, uint64_t bytes, struct err *e)
{
	int fd = skeleton_tmpfs(bytes, "1777", e);

	if (fd < 0 || !p->as_root || plan_give_to_user(p, fd, "", e) == 0)
		return fd;
	close(fd);
	return -1;
}

/*
 * A read-only directory is shown through an overlay of its own: a read-only mount does not prevent
 * connecting to a socket, but an overlay does, because it has its own inodes. Where the file system
 * cannot be a lower layer, the directory itself is mounted.
 */
static int bind_mount(struct plan *p, const struct bind *b, struct err *e)
{
	const char *marks = root_has_user_marks(p) ? "userxattr" : NULL;
	const char *options[] = {"lowerdir", "lower:none", OVERLAY_RULES, marks, NULL, NULL};
	const struct owned_mount mine = {
		UNMAPPED_MOUNT, b->source.path, b->owner,
		b->writable ? "run cloche as its owner instead of root, or mount it read-only"
			    : NULL};
	bool overlay = !b->writable && !b->is_tool && S_ISDIR(b->source.st.st_mode);
	unsigned flags = b->writable ? 0 : MOUNT_READ_ONLY | (overlay ? 0 : MOUNT_SUBMOUNTS);
	int fd, shown;
	struct err ignored;

	if (b->tmpfs_bytes)
		return new_tmpfs(p, b->tmpfs_bytes, e);
	if (b->disk_bytes) {
		fd = fcntl(b->source.fd, F_DUPFD_CLOEXEC, 3);
		return fd < 0 ? err_sys(e, "cannot show a volume") : fd;
	}
	fd = root_clone_source(&b->source, flags, e);
	if (fd < 0 || root_map_owner(p, fd, &mine, e) < 0)
		return -1;
	if (!overlay)
		return fd;
	if (mount_attach(fd, AT_FDCWD, "lower", e) < 0)
		return -1;
	shown = mount_new("overlay", MOUNT_READ_ONLY, options, &ignored);
	if (shown >= 0)
		return shown;
	shown = root_clone_source(&b->source, flags, e);
	return shown < 0 || root_map_owner(p, shown, &mine, e) < 0 ? -1 : shown;
}

/* Does the target lie in a directory of the host that is written to? */
static bool is_shared_target(const struct plan *p, const struct bind *b)
{
	if (plan_bind_goes_first(p, b))
		return false; /* no writable directory is mounted yet */
	if (p->workspace_mode == WORKSPACE_DIRECT && path_below(b->target, p->workspace_path))
		return true;
	for (const struct bind *o = b; o-- > p->binds;)
		if (o->writable && path_below(b->target, o->target))
			return !o->tmpfs_bytes;
	return false;
}

static const char *field_of(const struct bind *b)
{
	return b->tmpfs_bytes ? "tmpfs" : "mount";
}

/*
 * Nothing is created there, because it would stay in the user's tree: the mount point must exist.
 */
static int open_shared_point(int root, const struct bind *b, struct err *e)
{
	int fd = sys_openat2(root, b->target + 1, O_PATH | O_CLOEXEC,
			     RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);

	if (fd < 0)
		return err_field(e, ERR_INVALID, field_of(b),
				 "%s: target '%s' lies in a directory that is shown writable, "
				 "and is not there (%s); create it first, or choose another",
				 field_of(b), b->target, strerror(errno));
	return fd;
}

static int refuse_point(const struct bind *b, struct err *e)
{
	char why[sizeof(e->msg)];

	snprintf(why, sizeof(why), "%s", e->msg);
	return err_field(e, ERR_INVALID, field_of(b),
			 "%s: target '%s' cannot be had (one below /mnt always can): %.300s",
			 field_of(b), b->target, why);
}

static int make_point(const struct bind *b, int root, struct err *e)
{
	auto_close int parent = -1;
	const char *name;
	int at = -1;

	parent = skeleton_parent(root, b->target, &name, e);
	if (parent < 0)
		return refuse_point(b, e);
	if (S_ISDIR(b->source.st.st_mode))
		at = skeleton_dir(parent, name, e);
	else if (faccessat(parent, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
		 skeleton_file(parent, name, "", 0, 0444, e) == 0)
		at = sys_openat2(parent, name, O_PATH | O_CLOEXEC, RESOLVE_NO_SYMLINKS);
	if (at < 0)
		return refuse_point(b, e);
	return at;
}

static int show_bind(struct plan *p, const struct bind *b, int root, struct err *e)
{
	auto_close int at =
		is_shared_target(p, b) ? open_shared_point(root, b, e) : make_point(b, root, e);
	int fd = at < 0 ? -1 : bind_mount(p, b, e);

	return fd < 0 ? -1 : mount_attach(fd, at, "", e);
}

int shown_binds(struct plan *p, bool first, int root, struct err *e)
{
	for (size_t i = 0; i < p->bind_count; i++) {
		const struct bind *b = &p->binds[i];

		if (plan_bind_goes_first(p, b) != first || tools_is_in_workspace(p, b))
			continue;
		if (show_bind(p, b, root, e) < 0)
			return -1;
	}
	return 0;
}
