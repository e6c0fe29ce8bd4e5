/* Writes files to a workspace before the command starts, and removes unchanged ones at the end. */
#include "sandbox/workspace/inject.h"

#include "kern/sys.h"
#include "sandbox/inside/root.h"
#include "sandbox/workspace/safe_walk.h"
#include "sandbox/inside/skeleton.h"

/* ---- before the command ---- */

/* One directory of the workspace: the one that is written, and the lower layer's (-1: none). */
struct inject_dirs {
	int upper, lower;
};

static int write_injected(const struct plan *p, int dir, const char *name,
			  const struct injected_file *f, struct err *e)
{
	return skeleton_file(dir, name, f->data, f->size, f->mode, e) < 0
		       ? -1
		       : plan_give_to_user(p, dir, name, e);
}

static int refuse_in_the_way(const struct injected_file *f, const char *name, const char *is,
			     struct err *e)
{
	return err_field(e, ERR_INVALID, "file",
			 "file: '%s' cannot be placed: the workspace's '%s' is %s directory",
			 f->path, name, is);
}

static int inject_below(const struct plan *p, struct inject_dirs at, const char *path,
			const struct injected_file *f, struct err *e);

/* Enters one directory of the path, one of the workspace's or a new one. */
static int inject_through(const struct plan *p, struct inject_dirs at, const char *name,
			  const char *rest, const struct injected_file *f, struct err *e)
{
	struct stat st = {.st_mode = S_IFDIR | 0755};
	struct inject_dirs next = {-1, -1};
	int rc = -1;

	if (at.lower >= 0 && safe_walk_stat(at.lower, name, &st)) {
		if (!S_ISDIR(st.st_mode))
			return refuse_in_the_way(f, name, "no", e);
		next.lower = openat(at.lower, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	}
	/* The final mode may deny its owner access, so it is set last. */
	if ((mkdirat(at.upper, name, 0700) < 0 && errno != EEXIST) ||
	    fchmodat(at.upper, name, 0700, 0) < 0 ||
	    (next.upper = safe_walk_open_dir(at.upper, name)) < 0)
		err_sys(e, "cannot make %s", name);
	else
		rc = inject_below(p, next, rest, f, e);
	if (rc == 0 && fchmod(next.upper, st.st_mode & 0777) < 0)
		rc = err_sys(e, "cannot set the mode of %s", name);
	close_fd(&next.upper);
	close_fd(&next.lower);
	return rc < 0 ? -1 : plan_give_to_user(p, at.upper, name, e);
}

static int inject_below(const struct plan *p, struct inject_dirs at, const char *path,
			const struct injected_file *f, struct err *e)
{
	const char *slash = strchr(path, '/');
	auto_free char *name = slash ? must_alloc(strndup(path, (size_t)(slash - path))) : NULL;
	struct stat st;

	if (slash)
		return inject_through(p, at, name, slash + 1, f, e);
	if (at.lower >= 0 && safe_walk_stat(at.lower, path, &st) && S_ISDIR(st.st_mode))
		return refuse_in_the_way(f, path, "a", e);
	return write_injected(p, at.upper, path, f, e);
}

/* In an image that is saved they stay. */
static int own_parents(const struct plan *p, const char *path, struct err *e)
{
	auto_close int root = open("root", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (root < 0)
		return err_sys(e, "cannot open the new root");
	for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		auto_free char *dir = must_alloc(strndup(path, (size_t)(slash - path)));

		if (p->as_root == AS_ROOT_NESTED && root_own_dir(p, root, dir, e) < 0)
			return -1;
	}
	return 0;
}

/* Below /run, apart from all mounts; or anywhere in an image that is saved. */
static int inject_in_root(const struct plan *p, const struct injected_file *f, struct err *e)
{
	auto_close int scratch = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	auto_close int parent = -1;
	char path[PATH_MAX];
	const char *name;

	snprintf(path, sizeof(path), "root%s", f->path);
	if (p->saving && own_parents(p, f->path, e) < 0)
		return -1;
	parent = skeleton_parent(scratch, path, &name, e);
	/* The image may have one; what becomes of its layer does not hold this name. */
	if (parent >= 0 && p->saving)
		unlinkat(parent, name, 0);
	return parent < 0 ? -1 : write_injected(p, parent, name, f, e);
}

/* The file's path in the workspace; the caller frees it. */
static char *path_in_workspace(const struct plan *p, const struct injected_file *f)
{
	const char *inner = plan_inner(p);

	return str_format("%s%s%s", inner, *inner ? "/" : "", f->path);
}

int inject_file(const struct plan *p, const struct injected_file *f, struct err *e)
{
	auto_free char *path = path_in_workspace(p, f);
	auto_close int upper = open("ws", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct inject_dirs at = {upper, p->workspace_mode == WORKSPACE_COW ? p->workspace.fd : -1};

	if (upper < 0)
		return err_sys(e, "cannot open the workspace");
	if ((f->path[0] == '/' ? inject_in_root(p, f, e) : inject_below(p, at, path, f, e)) == 0)
		return 0;
	return e->kind == ERR_INVALID ? -1 : err_wrap(e, "cannot place %s", f->path);
}

/* ---- after the command ---- */

/* Did the workspace have it before? */
static bool was_there(const struct plan *p, const char *path)
{
	auto_close int fd = -1;

	if (p->workspace_mode != WORKSPACE_COW)
		return false;
	fd = sys_openat2(p->workspace.fd, path, O_PATH | O_NOFOLLOW | O_CLOEXEC, RESOLVE_BENEATH);
	return fd >= 0 || errno != ENOENT;
}

static bool unlink_any(int dir, const char *name)
{
	return unlinkat(dir, name, 0) == 0 ||
	       (errno == EISDIR && unlinkat(dir, name, AT_REMOVEDIR) == 0);
}

/* By its parent, which is opened without following links that the command may have left. */
static bool remove_injected(int upper, const char *path)
{
	const char *slash = strrchr(path, '/');
	auto_free char *dir =
		slash ? must_alloc(strndup(path, (size_t)(slash - path))) : str_copy(".");
	auto_close int parent = safe_walk_open_dir(upper, dir);
	struct stat st;
	bool gone;

	if (parent < 0 || fstat(parent, &st) < 0)
		return false;
	/* The mode may deny access to its owner, which we are without root. */
	(void)!fchmod(parent, 0700);
	gone = unlink_any(parent, slash ? slash + 1 : path);
	(void)!fchmod(parent, st.st_mode & 07777);
	return gone;
}

/* Removes the directories that were made for it, unless the command has put something there. */
static void remove_parents(const struct plan *p, int upper, const char *path)
{
	auto_free char *text = str_copy(path);
	char *slash;

	while ((slash = strrchr(text, '/'))) {
		*slash = '\0';
		if (was_there(p, text) || !remove_injected(upper, text))
			return;
	}
}

void inject_remove_points(const struct plan *p, int scratch)
{
	size_t len = strlen(p->workspace_path);
	auto_close int upper = -1;

	if (scratch < 0 || p->workspace_mode == WORKSPACE_DIRECT || p->bind_count == 0)
		return;
	upper = safe_walk_open_dir(scratch, "ws");
	for (size_t i = 0; upper >= 0 && i < p->bind_count; i++) {
		const char *target = p->binds[i].target;

		if (!path_below(target, p->workspace_path) || !target[len] ||
		    was_there(p, target + len + 1))
			continue;
		remove_injected(upper, target + len + 1);
		remove_parents(p, upper, target + len + 1);
	}
}

static bool is_unchanged(int upper, const char *path, const struct injected_file *f)
{
	struct stat st;
	auto_close int fd = safe_walk_open_file(upper, path, &st);
	auto_free char *data = NULL;
	size_t len;

	return fd >= 0 && io_read_whole(fd, f->size, &data, &len) == 0 && len == f->size &&
	       memcmp(data, f->data, len) == 0;
}

void inject_remove_files(const struct plan *p, int scratch)
{
	bool any = scratch >= 0 && p->file_count > 0;
	auto_close int upper = any ? safe_walk_open_dir(scratch, "ws") : -1;

	for (size_t i = 0; upper >= 0 && i < p->file_count; i++) {
		const struct injected_file *f = &p->files[i];
		auto_free char *path = path_in_workspace(p, f);

		if (f->path[0] == '/')
			continue;
		if (is_unchanged(upper, path, f))
			remove_injected(upper, path);
		remove_parents(p, upper, path);
	}
}
