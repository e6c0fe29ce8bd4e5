/* Makes the files of disks: reserves, formats, copies. For processes that may wait. */
#include "disk/disk.h"

#include "kern/sys.h"

#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#define KB ((uint64_t)1 << 10)
#define MB ((uint64_t)1 << 20)
#define JOURNAL_MB 8
#define BYTES_PER_INODE 8192 /* an inode has 256 bytes: 1/32 of the disk */
#define FIXED (20 * MB)	     /* the journal, bitmaps, and what a sandbox's skeleton takes */
#define KEEP_FREE 20	     /* of the host's file system one part in so many is not given away */

uint64_t disk_file_bytes(uint64_t limit)
{
	uint64_t bytes = limit + limit / 28 + FIXED;

	return bytes - bytes % MB;
}

bool disk_is_bounded(const struct statfs *fs, uint64_t limit)
{
	return fs->f_type == EXT4_SUPER_MAGIC && fs->f_blocks > 0 &&
	       fs->f_blocks * (uint64_t)fs->f_bsize <= disk_file_bytes(limit);
}

/* ---- space ---- */

/* The host's own programs need some: nobody may take the last of it. */
static int check_space(int file, uint64_t bytes, struct err *e)
{
	struct statvfs fs;
	uint64_t left;

	if (fstatvfs(file, &fs) < 0)
		return err_sys(e, "cannot look at the file system of the state directory");
	left = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (left >= bytes && left - bytes >= (uint64_t)fs.f_blocks * fs.f_frsize / KEEP_FREE)
		return 0;
	return err_field(e, ERR_LIMIT, "disk",
			 "disk: the file system of the state directory has no room for %" PRIu64
			 " MB more",
			 bytes / MB);
}

static int reserve(int file, uint64_t bytes, struct err *e)
{
	if (check_space(file, bytes, e) < 0)
		return -1;
	if (fallocate(file, 0, 0, (off_t)bytes) == 0)
		return 0;
	if (errno == ENOSPC)
		return err_field(e, ERR_LIMIT, "disk",
				 "disk: the file system of the state directory is full");
	if (errno == EOPNOTSUPP)
		return err_field(e, ERR_UNSUPPORTED, "disk_type",
				 "disk_type: the file system of the state directory cannot "
				 "reserve space; ext4, xfs and btrfs can");
	return err_sys(e, "cannot reserve a disk's space");
}

/* ---- formatting ---- */

static const char *const makers[] = {"/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4",
				     "/usr/local/sbin/mkfs.ext4"};

int disk_probe(struct err *e)
{
	bool has_maker = false;

	for (size_t i = 0; i < ARRAY_LEN(makers); i++)
		has_maker = has_maker || access(makers[i], X_OK) == 0;
	if (!has_maker)
		return err_field(e, ERR_UNSUPPORTED, "disk_type",
				 "disk_type: mkfs.ext4 is not there; install e2fsprogs");
	if (access("/dev/loop-control", R_OK | W_OK) < 0)
		return err_field(e, ERR_UNSUPPORTED, "disk_type",
				 "disk_type: there are no loop devices (/dev/loop-control: %s)",
				 strerror(errno));
	return 0;
}

/* All features are named, because the host's mke2fs.conf may have others. */
static const char features[] = "none,has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,"
			       "dir_index,dir_nlink,extra_isize,filetype,large_file,sparse_super,"
			       "ext_attr,encrypt";

static void exec_maker(int file)
{
	char path[32], inodes[16];
	const char *argv[] = {"mkfs.ext4",
			      "-q",
			      "-F",
			      "-O",
			      features,
			      "-b",
			      "4096",
			      "-i",
			      inodes,
			      "-I",
			      "256",
			      "-m",
			      "0",
			      "-J",
			      "size=8",
			      "-E",
			      "lazy_itable_init=1,lazy_journal_init=1,nodiscard",
			      path,
			      NULL};
	char *env[] = {NULL};
	int null = open("/dev/null", O_RDWR);

	_Static_assert(JOURNAL_MB == 8, "as in -J");
	snprintf(inodes, sizeof(inodes), "%d", BYTES_PER_INODE);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	for (int fd = 0; fd < 3; fd++)
		if (dup2(null, fd) < 0)
			_exit(126);
	if (fcntl(file, F_SETFD, 0) < 0)
		_exit(126);
	for (size_t i = 0; i < ARRAY_LEN(makers); i++)
		execve(makers[i], (char **)argv, env);
	_exit(127);
}

int disk_format(int file, uint64_t limit, struct err *e)
{
	int status = 0;
	pid_t pid;

	if (reserve(file, disk_file_bytes(limit), e) < 0)
		return -1;
	pid = fork();
	if (pid == 0)
		exec_maker(file);
	if (pid < 0)
		return err_sys(e, "cannot create a process");
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return err_sys(e, "cannot wait");
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	return err_set(e, ERR_SYSTEM, "mkfs.ext4 failed (%s %d)",
		       WIFSIGNALED(status) ? "signal" : "status",
		       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* ---- copies ---- */

static int copy_range(struct disk_copy *c, off_t at, off_t end, struct err *e)
{
	c->bytes += (uint64_t)(end - at);
	if (c->max_bytes && c->bytes > c->max_bytes)
		return err_set(e, ERR_LIMIT, "the snapshot is larger than this daemon allows");
	while (at < end) {
		off_t in = at, out = at;
		ssize_t n = copy_file_range(c->from, &in, c->to, &out, (size_t)(end - at), 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return err_sys(e, "cannot copy a disk");
		at += n;
	}
	return 0;
}

/* Space that is reserved and was never written is a hole for this purpose. */
static int copy_data(struct disk_copy *c, off_t size, struct err *e)
{
	off_t at = 0;

	while (at < size) {
		off_t end;

		at = lseek(c->from, at, SEEK_DATA);
		if (at < 0 && errno == ENXIO)
			return 0;
		end = at < 0 ? -1 : lseek(c->from, at, SEEK_HOLE);
		if (end < 0)
			return err_sys(e, "cannot read a disk");
		if (copy_range(c, at, end, e) < 0)
			return -1;
		at = end;
	}
	return 0;
}

int disk_copy(struct disk_copy *c, struct err *e)
{
	struct stat st;

	if (fstat(c->from, &st) < 0)
		return err_sys(e, "cannot look at a disk");
	c->bytes = 0;
	c->shared = ioctl(c->to, FICLONE, c->from) == 0;
	if (c->shared) {
		/* What is written anew on either side cannot be reserved, but there must be room for it now. */
		c->bytes = (uint64_t)st.st_blocks * 512;
		return c->reserves ? check_space(c->to, c->bytes, e) : 0;
	}
	if (c->reserves && reserve(c->to, (uint64_t)st.st_size, e) < 0)
		return -1;
	if (ftruncate(c->to, st.st_size) < 0 || copy_data(c, st.st_size, e) < 0 ||
	    fdatasync(c->to) < 0)
		return e->kind ? -1 : err_sys(e, "cannot write a disk");
	return 0;
}
