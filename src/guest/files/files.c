/* Answers requests about single files: status, directories, names, modes, attributes. */
#include "guest/files/files.h"

#include "guest/files/walk.h"
#include "wire/tar.h"
#include "guest/link/worker.h"

#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

#define NO_MODE 0xffffffffu
#define MODES 01777u /* no set-id bits: the filter would notify us about such a call */

/* ---- paths ---- */

const char *files_workdir(const struct guest *g)
{
	if (g->workdir && *g->workdir)
		return g->workdir;
	return access("/workspace", X_OK) == 0 ? "/workspace" : "/";
}

void files_absolute(const struct guest *g, const char *path, char *ret, size_t size)
{
	const char *base = path[0] == '/' ? "" : files_workdir(g);
	const char *between = path[0] == '/' || str_equal(base, "/") ? "" : "/";
	int n = snprintf(ret, size, "%s%s%s", base, between, path);

	if (n < 0 || (size_t)n >= size || !*path)
		ret[0] = '\0';
}

void files_unpack(const struct guest *g, struct unpack *u, char *ret)
{
	char path[GUEST_MAX_PATH];

	unpack_str(u, path, sizeof(path));
	files_absolute(g, path, ret, GUEST_MAX_PATH);
}

bool files_is_own(int fd)
{
	char link[64], path[64];
	struct statfs fs;
	ssize_t n;

	if (fstatfs(fd, &fs) < 0 || fs.f_type != PROC_SUPER_MAGIC)
		return false;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	path[n > 0 ? n : 0] = '\0';
	snprintf(link, sizeof(link), "/proc/%d/", (int)getpid());
	return n <= 0 || str_starts(path, link);
}

bool files_new_owner(const char *path, struct stat *ret)
{
	char parent[GUEST_MAX_PATH];
	struct stat st;

	if (geteuid() != 0)
		return false;
	if (lstat(path, &st) < 0 && (!files_parent(path, parent) || stat(parent, &st) < 0))
		return false;
	*ret = st;
	return true;
}

/* 0, or -1 with errno. */
static int make_dir(const char *path, mode_t mode)
{
	struct stat owner;
	bool is_given = files_new_owner(path, &owner);

	if (mkdir(path, mode) < 0)
		return -1;
	if (is_given)
		(void)!lchown(path, owner.st_uid, owner.st_gid);
	return 0;
}

int files_make_dirs(const char *path, mode_t mode)
{
	char part[GUEST_MAX_PATH];
	struct stat st;

	for (const char *at = path; *at;) {
		size_t len;

		at += strspn(at, "/");
		at += strcspn(at, "/");
		len = (size_t)(at - path);
		snprintf(part, sizeof(part), "%.*s", (int)len, path);
		if (make_dir(part, at[strspn(at, "/")] ? 0755 : mode & MODES) == 0) {
			if (!at[strspn(at, "/")])
				return 1;
			continue;
		}
		if (errno != EEXIST && errno != EROFS && errno != EACCES && errno != EISDIR)
			return -1;
		/* It may exist: as a link to a directory, or on a read-only file system. */
		if (stat(part, &st) < 0)
			return -1;
		if (!S_ISDIR(st.st_mode)) {
			errno = at[strspn(at, "/")] ? ENOTDIR : EEXIST;
			return -1;
		}
	}
	return 0;
}

const char *files_parent(const char *path, char ret[GUEST_MAX_PATH])
{
	const char *slash = strrchr(path, '/');

	snprintf(ret, GUEST_MAX_PATH, "%.*s",
		 slash == path ? 1
		 : slash       ? (int)(slash - path)
			       : 0,
		 path);
	return slash && slash[1] ? slash + 1 : NULL;
}

int files_make_parents(const char *path)
{
	char parent[GUEST_MAX_PATH];

	files_parent(path, parent);
	return *parent && files_make_dirs(parent, 0755) < 0 ? -1 : 0;
}

/* ---- status ---- */

static void pack_owner(struct buf *b, unsigned id)
{
	static const struct {
		unsigned id;
		const char *name;
	} rows[] = {{0, "root"}, {1000, "user"}, {65534, "nobody"}};
	char number[16];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		if (rows[i].id == id) {
			pack_str(b, rows[i].name);
			return;
		}
	}
	snprintf(number, sizeof(number), "%u", id);
	pack_str(b, number);
}

void files_pack(struct buf *b, const char *path, const struct stat *st, int dir, const char *name)
{
	char target[GUEST_MAX_PATH] = "";
	char kind = S_ISREG(st->st_mode)   ? 'f'
		    : S_ISDIR(st->st_mode) ? 'd'
		    : S_ISLNK(st->st_mode) ? 'l'
					   : 'o';

	if (kind == 'l') {
		ssize_t n = readlinkat(dir, name, target, sizeof(target) - 1);

		target[n > 0 ? n : 0] = '\0';
	}
	pack_str(b, path);
	pack_u8(b, (uint8_t)kind);
	pack_u32(b, st->st_mode);
	pack_u32(b, st->st_uid);
	pack_u32(b, st->st_gid);
	pack_u64(b, (uint64_t)st->st_size);
	pack_u64(b, (uint64_t)st->st_mtim.tv_sec * 1000000000ull + (uint64_t)st->st_mtim.tv_nsec);
	pack_owner(b, st->st_uid);
	pack_owner(b, st->st_gid);
	pack_str(b, target);
}

void files_answer_stat(struct guest_stream *s, const char *path, const struct stat *st)
{
	auto_buf struct buf b = {0};

	files_pack(&b, path, st, AT_FDCWD, path);
	stream_ok(s, &b);
}

static void look_and_answer(struct guest_stream *s, const char *path, bool follow)
{
	struct stat st;

	if (fstatat(AT_FDCWD, path, &st, follow ? 0 : AT_SYMLINK_NOFOLLOW) < 0)
		stream_error(s, errno, "cannot look at %s: %m", path);
	else
		files_answer_stat(s, path, &st);
}

void stat_request(struct guest_stream *s, const struct unpacked_request *r)
{
	look_and_answer(s, r->text[0], r->number[0]);
}

/* ---- changing names ---- */

void mkdir_request(struct guest_stream *s, const struct unpacked_request *r)
{
	const char *path = r->text[0];
	uint32_t mode = (uint32_t)r->number[0];
	bool parents = r->number[1];
	auto_buf struct buf b = {0};
	int rc;

	if (mode == NO_MODE || mode == 0)
		mode = 0755;
	rc = parents ? files_make_dirs(path, mode) : make_dir(path, mode & MODES) < 0 ? -1 : 1;
	/* The umask is for programs; a request that names a mode gets that mode. */
	if (rc == 1)
		chmod(path, mode & MODES);
	pack_u8(&b, rc == 1);
	if (rc < 0)
		stream_error(s, errno, "cannot make directory %s: %m", path);
	else
		stream_ok(s, &b);
}

void move_request(struct guest_stream *s, const struct unpacked_request *r)
{
	const char *from = r->text[0], *to = r->text[1];
	bool overwrite = r->number[0];

	if (syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to,
		    overwrite ? 0u : (unsigned)RENAME_NOREPLACE) == 0)
		look_and_answer(s, to, false);
	else if (errno == EXDEV)
		/* Another file system, or a directory of the image: copy, then remove. */
		work_start(s, r, &(struct worker_job){.run = move_work});
	else
		stream_error(s, errno, "cannot move %s to %s: %m", from, to);
}

void remove_request(struct guest_stream *s, const struct unpacked_request *r)
{
	const char *path = r->text[0];
	bool recursive = r->number[0];

	if (unlink(path) == 0 || (errno == EISDIR && rmdir(path) == 0))
		stream_ok(s, NULL);
	else if (errno == ENOTEMPTY && recursive)
		work_start(s, r, &(struct worker_job){.run = remove_work});
	else
		stream_error(s, errno, "cannot remove %s: %m", path);
}

void chmod_request(struct guest_stream *s, const struct unpacked_request *r)
{
	const char *path = r->text[0];
	uint32_t mode = (uint32_t)r->number[0], uid = (uint32_t)r->number[1],
		 gid = (uint32_t)r->number[2];

	if (mode != NO_MODE && (mode & ~MODES))
		stream_error(s, EPERM, "%s: set-id bits are not allowed inside", path);
	else if ((uid != NO_MODE || gid != NO_MODE) && chown(path, uid, gid) < 0)
		stream_error(s, errno, "cannot change the owner of %s: %m", path);
	else if (mode != NO_MODE && chmod(path, mode) < 0)
		stream_error(s, errno, "cannot change the mode of %s: %m", path);
	else
		stream_ok(s, NULL);
}

/* ---- extended attributes ---- */

void xattr_set_request(struct guest_stream *s, const struct unpacked_request *r)
{
	const char *path = r->text[0], *name = r->text[1];
	bool drop = r->number[0];

	if (!tar_is_allowed_xattr(name))
		stream_error(s, EPERM, "%s: only attributes user.* can be set", name);
	else if ((drop ? removexattr(path, name) : setxattr(path, name, r->bytes, r->len, 0)) < 0)
		stream_error(s, errno, "cannot set %s of %s: %m", name, path);
	else
		stream_ok(s, NULL);
}

/* Packs the attributes that may be seen; false with errno. */
static bool pack_xattrs(const char *path, struct buf *b)
{
	char names[4096], value[4096];
	ssize_t n = listxattr(path, names, sizeof(names));
	auto_buf struct buf rows = {0};
	uint32_t count = 0;

	for (const char *name = names; n > 0 && name < names + n; name += strlen(name) + 1) {
		ssize_t len = tar_is_allowed_xattr(name)
				      ? getxattr(path, name, value, sizeof(value))
				      : -1;

		if (len < 0 || rows.len + (size_t)len + strlen(name) + 16 > GUEST_MAX_PAYLOAD)
			continue;
		pack_str(&rows, name);
		pack_bytes(&rows, value, (size_t)len);
		count++;
	}
	pack_u32(b, count);
	buf_add(b, rows.len ? buf_head(&rows) : NULL, rows.len);
	return n >= 0 || errno == ENOTSUP;
}

void xattr_list_request(struct guest_stream *s, const struct unpacked_request *r)
{
	auto_buf struct buf b = {0};

	if (pack_xattrs(r->text[0], &b))
		stream_ok(s, &b);
	else
		stream_error(s, errno, "cannot list the attributes of %s: %m", r->text[0]);
}
