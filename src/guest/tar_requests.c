/* G_TAR_OUT, G_TAR_IN, and moves that need a copy: workers that use tar.h. */
#include "base/auto.h"
#include "base/str.h"
#include "guest/files.h"
#include "guest/tar.h"
#include "guest/walk.h"
#include "guest/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct tar_args {
	char path[GUEST_MAX_PATH];
	uint8_t flags;
};

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

static void run_tar_out(struct work *w, const void *arg)
{
	const struct tar_args *a = arg;
	struct tar_out t = {.write = work_data, .arg = w, .upper = a->flags & GUEST_TAR_UPPER};
	auto_close int fd = open(a->path, O_PATH | O_CLOEXEC);
	auto_close int dir = -1;
	const char *name = ".", *as = ".";
	struct err e = {0};
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		work_error(w, errno, "cannot open %s: %s", a->path, strerror(errno));
	if (S_ISDIR(st.st_mode)) {
		dir = open(a->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	} else {
		dir = walk_open_parent(a->path, &name);
		as = name;
	}
	if (dir < 0)
		work_error(w, errno, "cannot open %s: %s", a->path, strerror(errno));
	work_ok(w, NULL);
	if (tar_out_tree(&t, dir, name, as, &e) < 0 || tar_out_end(&t, &e) < 0)
		work_error(w, errno_of(&e), "%s", e.msg);
	work_end(w, NULL, 0);
}

bool tar_out_request(struct guest *g, struct stream *s, struct unpack *u)
{
	struct tar_args a = {0};

	files_unpack(g, u, a.path);
	a.flags = unpack_u8(u);
	if (!unpack_is_done(u))
		return false;
	worker_start(g, s, &(struct worker_job){.run = run_tar_out, .arg = &a, .goes_on = true});
	return true;
}

/* ---- in ---- */

static void run_tar_in(struct work *w, const void *arg)
{
	const struct tar_args *a = arg;
	struct tar_in t = {.read = work_read, .arg = w};
	struct tar_extract x = {.upper = a->flags & GUEST_TAR_UPPER,
				.strict = a->flags & GUEST_TAR_STRICT};
	struct buf b = {0};
	struct err e = {0};
	char rest[4096];

	if (files_make_dirs(a->path, 0755) < 0)
		work_error(w, errno, "cannot make %s: %s", a->path, strerror(errno));
	x.root = open(a->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (x.root < 0)
		work_error(w, errno, "cannot open %s: %s", a->path, strerror(errno));
	work_ok(w, NULL);
	/* The umask is for programs; an archive says what it means. */
	umask(0);
	if (tar_extract(&x, &t, &e) < 0)
		work_error(w, errno_of(&e), "%s", e.msg);
	/* What stands behind its end belongs to it. */
	while (work_read(w, rest, sizeof(rest)) > 0)
		;
	pack_u64(&b, x.entries);
	work_frame(w, G_DONE, buf_head(&b), b.len);
	work_end(w, NULL, 0);
}

bool tar_in_request(struct guest *g, struct stream *s, struct unpack *u)
{
	struct tar_args a = {0};

	files_unpack(g, u, a.path);
	a.flags = unpack_u8(u);
	if (!unpack_is_done(u))
		return false;
	worker_start(g, s,
		     &(struct worker_job){
			     .run = run_tar_in, .arg = &a, .goes_on = true, .takes_input = true});
	return true;
}

/* ---- moving by copying ---- */

struct move_args {
	char from[GUEST_MAX_PATH], to[GUEST_MAX_PATH];
	bool overwrite;
};

/* One process packs, the other unpacks. */
static int copy_tree(struct work *w, int from_dir, const char *from, int to_dir, const char *to)
{
	int ends[2], status = 0;
	struct err e = {0};
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0 || (pid = fork()) < 0)
		return -1;
	if (pid == 0) {
		struct work packer = {.out = ends[1]};
		struct tar_out t = {.write = walk_write_fd, .arg = &packer.out, .upper = true};

		_exit(tar_out_tree(&t, from_dir, from, to, &e) < 0 || tar_out_end(&t, &e) < 0);
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

static void run_move(struct work *w, const void *arg)
{
	const struct move_args *a = arg;
	const char *from, *to;
	auto_close int from_dir = walk_open_parent(a->from, &from);
	auto_close int to_dir = from_dir < 0 ? -1 : walk_open_parent(a->to, &to);
	struct buf b = {0};
	struct stat st;

	if (to_dir < 0)
		work_error(w, errno, "cannot move %s: %s", a->from, strerror(errno));
	if (fstatat(to_dir, to, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		if (!a->overwrite)
			work_error(w, EEXIST, "%s is there already", a->to);
		if (unlinkat(to_dir, to, 0) < 0 && unlinkat(to_dir, to, AT_REMOVEDIR) < 0)
			work_error(w, errno, "cannot replace %s: %s", a->to, strerror(errno));
	}
	umask(0);
	if (copy_tree(w, from_dir, from, to_dir, to) < 0 || walk_remove_at(from_dir, from) < 0 ||
	    fstatat(to_dir, to, &st, AT_SYMLINK_NOFOLLOW) < 0)
		work_error(w, errno, "cannot move %s to %s: %s", a->from, a->to, strerror(errno));
	files_pack(&b, a->to, &st, to_dir, to);
	work_ok(w, &b);
}

void walk_move(struct guest *g, struct stream *s, const char *from, const char *to, bool overwrite)
{
	struct move_args a = {.overwrite = overwrite};

	snprintf(a.from, sizeof(a.from), "%s", from);
	snprintf(a.to, sizeof(a.to), "%s", to);
	worker_start(g, s, &(struct worker_job){.run = run_move, .arg = &a});
}
