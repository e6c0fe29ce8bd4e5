/*
 * Theory of operation
 *
 * git looks for `.git` in the directory and in those above it. A `.git` directory makes the directory that
 * holds it the work tree. A `.git` file names a git directory elsewhere, and such a file may come from
 * anybody: from an archive, or from code that ran in a sandbox before. What it names is shown only if that
 * place confirms it:
 *
 *  - A linked worktree: the named directory is COMMON/worktrees/NAME, its file `commondir` leads to COMMON,
 *    its file `gitdir` leads back to this very `.git` file, and COMMON is a git directory. Whoever can only
 *    write to the work tree cannot write these files, except to a COMMON in the same work tree, which is
 *    shown anyway.
 *  - A submodule has no such pointer back. Its git directory must lie in what the repository around it
 *    shows (SUPER/.git/modules/NAME), and then all of that repository is shown.
 *  - Anything else (`git init --separate-git-dir`) is not shown.
 *
 * The directory, the work tree, `.git` and COMMON must belong to one user, who is the caller unless the caller
 * is root: anybody may make a `.git` in /tmp, and git itself refuses the repositories of others.
 */
#include "policy/paths/repository.h"

#include "kern/sys.h"

#define ALONE                                                                                      \
	" Only the directory itself is shown, and git does not work there (--no-git: without "     \
	"this note)."

const char repository_forbidden[] = "The git repository around the directory is or contains a "
				    "place that is never shown (such as "
				    "a home directory)." ALONE;

/* One `.git` on the way up. */
struct candidate {
	const struct source *dir; /* where the search began */
	struct source tree;
	struct stat git; /* of .git */
};

/* ---- files of git ---- */

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Joins a path that is relative to base, as git does. */
static bool join(const char *base, const char *path, char ret[PATH_MAX])
{
	return snprintf(ret, PATH_MAX, "%s%s%s", path[0] == '/' ? "" : base,
			path[0] == '/' ? "" : "/", path) < PATH_MAX;
}

/* Reads a file of one line. It must be a plain file of this owner. */
static bool read_line(int dir, const char *name, uid_t owner, char ret[PATH_MAX])
{
	auto_close int fd = sys_openat2(dir, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
					RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != owner)
		return false;
	n = io_read_all(fd, ret, PATH_MAX);
	if (n <= 0 || n == PATH_MAX || memchr(ret, '\0', (size_t)n))
		return false;
	while (n > 0 && (ret[n - 1] == '\n' || ret[n - 1] == '\r'))
		n--;
	ret[n] = '\0';
	return n > 0 && !strchr(ret, '\n');
}

static bool has_entry(int dir, const char *name, mode_t type)
{
	struct stat st;

	return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && (st.st_mode & S_IFMT) == type;
}

/* As git decides it, but HEAD must be a file. */
static bool is_git_directory(int fd)
{
	return has_entry(fd, "HEAD", S_IFREG) && has_entry(fd, "objects", S_IFDIR) &&
	       has_entry(fd, "refs", S_IFDIR);
}

static bool open_directory(const char *path, uid_t owner, struct source *ret)
{
	struct err ignored;

	if (source_look("git", path, ret, &ignored) < 0)
		return false;
	if (S_ISDIR(ret->st.st_mode) && ret->st.st_uid == owner)
		return true;
	close_fd(&ret->fd);
	return false;
}

/* ---- the parts ---- */

/* Are the tree and its .git of the user whose directory it is, and is the directory seen through the tree? */
static const char *judge_tree(const struct candidate *c)
{
	const char *inner = c->dir->path + strlen(c->tree.path);
	auto_close int fd = -1;
	struct stat st;

	if (c->tree.st.st_uid != c->dir->st.st_uid || c->git.st_uid != c->dir->st.st_uid ||
	    (geteuid() != 0 && c->dir->st.st_uid != geteuid()))
		return "The git repository around the directory belongs to another user." ALONE;
	inner += strspn(inner, "/");
	fd = sys_openat2(c->tree.fd, *inner ? inner : ".", O_PATH | O_DIRECTORY | O_CLOEXEC,
			 RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV);
	if (fd < 0 || fstat(fd, &st) < 0 || !same_file(&st, &c->dir->st))
		return "The directory is on another mount than the git repository around it." ALONE;
	return NULL;
}

/* Does gitdir/gitdir lead back to the .git file? */
static bool points_back(const struct candidate *c, const struct source *gitdir)
{
	char text[PATH_MAX], path[PATH_MAX];
	struct stat st;

	return read_line(gitdir->fd, "gitdir", c->git.st_uid, text) &&
	       join(gitdir->path, text, path) && lstat(path, &st) == 0 && same_file(&st, &c->git);
}

/* A linked worktree: finds COMMON from COMMON/worktrees/NAME. */
static bool open_common(const struct candidate *c, const struct source *gitdir, const char *text,
			struct source *ret)
{
	char path[PATH_MAX], *slash;
	struct stat st;

	if (!join(gitdir->path, text, path) || stat(path, &st) < 0)
		return false;
	snprintf(path, sizeof(path), "%s", gitdir->path);
	slash = strrchr(path, '/');
	*slash = '\0';
	slash = strrchr(path, '/');
	if (!slash || slash == path || !str_equal(slash, "/worktrees"))
		return false;
	*slash = '\0';
	if (!open_directory(path, c->git.st_uid, ret))
		return false;
	if (str_equal(ret->path, path) && same_file(&st, &ret->st) && is_git_directory(ret->fd))
		return true;
	close_fd(&ret->fd);
	return false;
}

/* ---- the search ---- */

enum step { STEP_DONE, STEP_UP };

/*
 * A .git file. inner: the git directory of the first submodule that was met, which must be seen in the end.
 */
static enum step take_git_file(struct candidate *c, char inner[PATH_MAX], struct repository *ret)
{
	static const char unproven[] =
		"The directory's .git file leads to a place that does not lead back to it." ALONE;
	char text[PATH_MAX], path[PATH_MAX];
	struct source gitdir = {.fd = -1};

	ret->refused = unproven;
	if (!read_line(c->tree.fd, ".git", c->git.st_uid, text) || !str_starts(text, "gitdir: ") ||
	    !join(c->tree.path, text + strlen("gitdir: "), path) ||
	    !open_directory(path, c->git.st_uid, &gitdir))
		return STEP_DONE;
	if (path_below(gitdir.path, c->tree.path)) {
		if (!str_equal(gitdir.path, c->tree.path))
			ret->refused = NULL;
	} else if (!read_line(gitdir.fd, "commondir", c->git.st_uid, text)) {
		if (!*inner)
			memcpy(inner, gitdir.path, PATH_MAX);
		close(gitdir.fd);
		return STEP_UP;
	} else if (points_back(c, &gitdir) && open_common(c, &gitdir, text, &ret->common)) {
		ret->refused = NULL;
		if (path_below(ret->common.path, c->tree.path))
			close_fd(&ret->common.fd);
	}
	close(gitdir.fd);
	return STEP_DONE;
}

/* Looks at the .git of one directory. */
static enum step take_candidate(struct candidate *c, char inner[PATH_MAX], struct repository *ret)
{
	auto_close int git = -1;
	enum step step = STEP_DONE;
	bool top = c->tree.st.st_ino == c->dir->st.st_ino && c->tree.st.st_dev == c->dir->st.st_dev;

	if (S_ISDIR(c->git.st_mode)) {
		git = openat(c->tree.fd, ".git", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		/* git goes on above, too. */
		if (git < 0 || !is_git_directory(git))
			return STEP_UP;
	}
	/* Nothing more is shown. */
	if (top && S_ISDIR(c->git.st_mode)) {
		ret->found = true;
		return STEP_DONE;
	}
	ret->refused = judge_tree(c);
	if (ret->refused)
		return STEP_DONE;
	if (S_ISREG(c->git.st_mode))
		step = take_git_file(c, inner, ret);
	else if (!S_ISDIR(c->git.st_mode))
		ret->refused =
			"The .git of the repository is neither a directory nor a file." ALONE;
	if (step == STEP_UP || ret->refused)
		return step;
	if (*inner && !path_below(inner, c->tree.path) &&
	    (ret->common.fd < 0 || !path_below(inner, ret->common.path))) {
		ret->refused =
			"The submodule's git directory does not lie in the repository around "
			"it." ALONE;
		return STEP_DONE;
	}
	ret->found = true;
	if (!top) {
		ret->tree = c->tree;
		c->tree.fd = -1;
	}
	return STEP_DONE;
}

/* Opens the directory whose name is the first len bytes of path, if it has a .git. */
static bool open_candidate(const char *path, size_t len, struct candidate *ret)
{
	char name[PATH_MAX + 8];
	struct err ignored;

	snprintf(name, sizeof(name), "%.*s/.git", (int)len, path);
	if (lstat(name, &ret->git) < 0)
		return false;
	name[len ? len : 1] = '\0';
	if (source_look("git", name, &ret->tree, &ignored) < 0)
		return false;
	if (str_equal(ret->tree.path, name) &&
	    fstatat(ret->tree.fd, ".git", &ret->git, AT_SYMLINK_NOFOLLOW) == 0)
		return true;
	close_fd(&ret->tree.fd);
	return false;
}

void repository_find(const struct source *dir, struct repository *ret)
{
	size_t len = str_equal(dir->path, "/") ? 0 : strlen(dir->path);
	char inner[PATH_MAX];
	struct candidate c;
	enum step step = STEP_UP;

	ret->found = false;
	ret->tree.fd = ret->common.fd = -1;
	ret->refused = NULL;
	c.dir = dir;
	*inner = '\0';
	for (;;) {
		if (open_candidate(dir->path, len, &c)) {
			step = take_candidate(&c, inner, ret);
			close_fd(&c.tree.fd);
		}
		if (step == STEP_DONE || len == 0)
			break;
		while (dir->path[--len] != '/')
			;
	}
	if (ret->refused)
		repository_done(ret);
}

void repository_done(struct repository *r)
{
	close_fd(&r->tree.fd);
	close_fd(&r->common.fd);
}
