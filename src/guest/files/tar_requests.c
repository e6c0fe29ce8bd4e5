/* The work of G_TAR_OUT, of G_TAR_IN, and of a move between file systems, all by tar.h. */
#include "guest/files/files.h"
#include "guest/link/request.h"
#include "guest/files/tar_tree.h"
#include "guest/files/walk.h"
#include "guest/link/worker.h"

#include <sys/wait.h>

static int errno_of(const struct err *e)
{
	static const int numbers[ERR_KIND_COUNT] = {
		[ERR_INVALID] = EINVAL, [ERR_DENIED] = EPERM,		[ERR_NOT_FOUND] = ENOENT,
		[ERR_LIMIT] = E2BIG,	[ERR_UNSUPPORTED] = EOPNOTSUPP,
	};

	if (e->errnum)
		return e->errnum;
	return numbers[e->kind] ? numbers[e->kind] : EIO;
}

/* ---- out ---- */

/* "/", "DIR/" and "DIR/." have no name of their own. */
static bool ends_in_itself(const char *path)
{
	size_t len = strlen(path);

	return len == 0 || path[len - 1] == '/' || (len > 1 && str_equal(path + len - 2, "/."));
}

void tar_out_work(struct work *w, const struct unpacked_request *r)
{
	const char *path = r->text[0];
	struct tar_tree t = {.out = {.write = work_data, .arg = w},
			     .upper = r->number[0] & GUEST_TAR_UPPER};
	bool is_named = r->number[0] & GUEST_TAR_NAMED && !ends_in_itself(path);
	auto_close int fd = open(path, O_PATH | O_CLOEXEC | (is_named ? O_NOFOLLOW : 0));
	auto_close int dir = -1;
	const char *name = ".", *as = ".";
	struct err e = {0};
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		work_error(w, errno, "cannot open %s: %m", path);
	if (S_ISDIR(st.st_mode) && !is_named) {
		dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	} else {
		dir = walk_open_parent(path, &name);
		as = name;
	}
	if (dir < 0)
		work_error(w, errno, "cannot open %s: %m", path);
	work_ok(w, NULL);
	if (tar_tree_write(&t, dir, name, as, &e) < 0 || tar_out_end(&t.out, &e) < 0)
		work_error(w, errno_of(&e), "%s", e.msg);
	work_end(w, NULL, 0);
}

/* ---- in ---- */

void tar_in_work(struct work *w, const struct unpacked_request *r)
{
	const char *path = r->text[0];
	struct tar_in t = {.read = work_read, .arg = w};
	struct tar_extract x = {.upper = r->number[0] & GUEST_TAR_UPPER,
				.remove_tree = walk_remove_at,
				.strict = r->number[0] & GUEST_TAR_STRICT};
	struct buf b = {0};
	struct err e = {0};
	char rest[4096];

	if (files_make_dirs(path, 0755) < 0)
		work_error(w, errno, "cannot make %s: %m", path);
	x.root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (x.root < 0)
		work_error(w, errno, "cannot open %s: %m", path);
	work_ok(w, NULL);
	/* The umask is for programs; an archive names its modes. */
	umask(0);
	if (tar_extract(&x, &t, &e) < 0)
		work_error(w, errno_of(&e), "%s", e.msg);
	/* Blocks after the end marker belong to the archive. */
	while (work_read(w, rest, sizeof(rest)) > 0)
		;
	pack_u64(&b, x.entries);
	work_frame(w, G_DONE, buf_head(&b), b.len);
	work_end(w, NULL, 0);
}

/* ---- moving by copying ---- */

static int write_fd(void *fd, const void *bytes, size_t len)
{
	return io_write_all(*(int *)fd, bytes, len);
}

/* A child packs, this process unpacks. */
static int copy_tree(struct work *w, int from_dir, const char *from, int to_dir, const char *to)
{
	int ends[2], status = 0;
	struct err e = {0};
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0 || (pid = fork()) < 0)
		return -1;
	if (pid == 0) {
		struct tar_tree t = {.out = {.write = write_fd, .arg = &ends[1]}, .upper = true};

		_exit(tar_tree_write(&t, from_dir, from, to, &e) < 0 ||
		      tar_out_end(&t.out, &e) < 0);
	}
	close(ends[1]);

	struct work reader = {.in = ends[0]};
	struct tar_in t = {.read = work_read, .arg = &reader};
	struct tar_extract x = {.root = to_dir};
	int rc = tar_extract(&x, &t, &e);

	close(ends[0]);
	waitpid(pid, &status, 0);
	if (rc < 0)
		work_error(w, errno_of(&e), "%s", e.msg);
	if (status)
		work_error(w, EIO, "cannot read all of %s", from);
	return 0;
}

/* A move that rename cannot do: copies, then removes. */
void move_work(struct work *w, const struct unpacked_request *r)
{
	const char *from_path = r->text[0], *to_path = r->text[1], *from, *to;
	auto_close int from_dir = walk_open_parent(from_path, &from);
	auto_close int to_dir = from_dir < 0 ? -1 : walk_open_parent(to_path, &to);
	struct buf b = {0};
	struct stat st;

	if (to_dir < 0)
		work_error(w, errno, "cannot move %s: %m", from_path);
	if (fstatat(to_dir, to, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		if (!r->number[0])
			work_error(w, EEXIST, "%s is there already", to_path);
		if (unlinkat(to_dir, to, 0) < 0 && unlinkat(to_dir, to, AT_REMOVEDIR) < 0)
			work_error(w, errno, "cannot replace %s: %m", to_path);
	}
	umask(0);
	if (copy_tree(w, from_dir, from, to_dir, to) < 0 || walk_remove_at(from_dir, from) < 0 ||
	    fstatat(to_dir, to, &st, AT_SYMLINK_NOFOLLOW) < 0)
		work_error(w, errno, "cannot move %s to %s: %m", from_path, to_path);
	files_pack(&b, to_path, &st, to_dir, to);
	work_ok(w, &b);
}
