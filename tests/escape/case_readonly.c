/* Changing what was shown read-only. Each case looks at the file afterwards. */
#include "probe.h"

#include "base/auto.h"
#include "numbers.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define CALM ERRS(EROFS, EACCES, EPERM)

/* "RO/file": mode 0666 in a directory of mode 0777, so that it is not the mode that refuses. */
static const char *ro_file(struct probe *p)
{
	const char *ro = need(p, "ro");

	return ro ? fmt_path("%s/file", ro) : NULL;
}

static void ro_write(struct probe *p)
{
	const char *f = ro_file(p);

	for (int i = 0; f && i < 3; i++) {
		static const int flags[] = {O_WRONLY, O_RDWR, O_WRONLY | O_APPEND};
		auto_close int fd = open(f, flags[i] | O_CLOEXEC);

		judge(p, "open for writing", fd, CALM);
	}
}

static void ro_reopen(struct probe *p)
{
	const char *f = ro_file(p);
	auto_close int fd = f ? open(f, O_RDONLY | O_CLOEXEC) : -1;
	auto_close int path_fd = f ? open(f, O_PATH | O_CLOEXEC) : -1;
	auto_close int a = -1, b = -1;

	if (!f)
		return;
	if (fd < 0) {
		cannot_tell(p, "open for reading: %s", errno_name(errno));
		return;
	}
	a = open(fmt_path("/proc/self/fd/%d", fd), O_RDWR | O_CLOEXEC);
	judge(p, "reopening a read-only fd", a, ERRS(EROFS, EACCES, EPERM, ENOENT));
	b = open(fmt_path("/proc/self/fd/%d", path_fd), O_RDWR | O_CLOEXEC);
	judge(p, "reopening a path fd", b, ERRS(EROFS, EACCES, EPERM, ENOENT));
}

static void check_same(struct probe *p, const char *f, const char *before, const char *how)
{
	char now[256];

	if (read_text(f, now, sizeof(now)) >= 0 && strcmp(now, before))
		got_through(p, "%s changed the file", how);
}

static void ro_mmap(struct probe *p)
{
	const char *f = ro_file(p);
	auto_close int fd = f ? open(f, O_RDONLY | O_CLOEXEC) : -1;
	char before[256];
	void *m;

	if (!f || read_text(f, before, sizeof(before)) <= 0 || fd < 0) {
		cannot_tell(p, "cannot read the file");
		return;
	}
	m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	judge(p, "shared writable mmap", m == MAP_FAILED ? -1 : 0, ERRS(EACCES, EPERM));
	m = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	if (m == MAP_FAILED) {
		cannot_tell(p, "mmap: %s", errno_name(errno));
		return;
	}
	judge(p, "mprotect to writable", mprotect(m, 4096, PROT_READ | PROT_WRITE),
	      ERRS(EACCES, EPERM));
	{
		/* Through /proc/self/mem a read-only mapping can be written, but must be a copy. */
		auto_close int mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);

		if (mem >= 0 && pwrite(mem, "X", 1, (off_t)(size_t)m) == 1)
			check_same(p, f, before, "/proc/self/mem");
	}
	check_same(p, f, before, "mmap");
	if (p->control) {
		auto_close int w = open(f, O_RDWR | O_CLOEXEC);

		judge(p, "open for a writable mmap", w, CALM);
	}
}

/* Pages of a pipe that came from the file must not be merged into (the "dirty pipe" of 2022). */
static void ro_splice(struct probe *p)
{
	const char *f = ro_file(p);
	auto_close int fd = f ? open(f, O_RDONLY | O_CLOEXEC) : -1;
	auto_close int w = -1;
	char before[256], fill[4096] = {0};
	loff_t at = 0;
	int pipes[2];

	if (!f || fd < 0 || read_text(f, before, sizeof(before)) <= 0 || pipe(pipes) < 0) {
		cannot_tell(p, "cannot read the file");
		return;
	}
	for (int i = 0; i < 16; i++)
		if (write(pipes[1], fill, sizeof(fill)) < 0 ||
		    read(pipes[0], fill, sizeof(fill)) < 0)
			cannot_tell(p, "pipe: %s", errno_name(errno));
	if (splice(fd, &at, pipes[1], NULL, 1, 0) != 1 || write(pipes[1], "PWNED", 5) != 5)
		refused(p, "splice: %s", errno_name(errno));
	check_same(p, f, before, "splice and write");
	refused(p, "the page cache is unchanged");
	if (p->control) {
		w = open(f, O_WRONLY | O_CLOEXEC);
		judge(p, "open for writing", w, CALM);
	}
}

static void ro_chmod(struct probe *p)
{
	const char *f = ro_file(p);
	struct stat st;

	if (!f)
		return;
	judge(p, "chmod", chmod(f, 0640), CALM);
	if (stat(f, &st) == 0 && (st.st_mode & 07777) == 0640)
		chmod(f, 0666);
}

static void ro_chown(struct probe *p)
{
	const char *f = ro_file(p);

	if (f)
		judge(p, "chown", lchown(f, getuid(), getgid()), CALM);
}

static void ro_utimes(struct probe *p)
{
	const struct timespec t[2] = {{1000000000, 0}, {1000000000, 0}};
	const char *f = ro_file(p);

	if (f) {
		judge(p, "utimensat", utimensat(AT_FDCWD, f, t, 0), CALM);
		judge(p, "utimensat now", utimensat(AT_FDCWD, f, NULL, 0), CALM);
	}
}

static void ro_truncate(struct probe *p)
{
	const char *f = ro_file(p);
	auto_close int fd = f ? open(f, O_RDONLY | O_CLOEXEC) : -1;
	auto_close int t = -1;

	if (!f)
		return;
	/* To its own length, so that nothing is lost when it gets through. */
	judge(p, "truncate", truncate(f, lseek(fd, 0, SEEK_END)), CALM);
	judge(p, "ftruncate", ftruncate(fd, lseek(fd, 0, SEEK_END)),
	      ERRS(EROFS, EACCES, EPERM, EINVAL, EBADF));
	if (!p->control) {
		t = open(f, O_RDONLY | O_TRUNC | O_CLOEXEC);
		judge(p, "open with O_TRUNC", t, CALM);
	}
}

static void ro_fallocate(struct probe *p)
{
	const char *f = ro_file(p);
	auto_close int fd = f ? open(f, (p->control ? O_RDWR : O_RDONLY) | O_CLOEXEC) : -1;

	if (f)
		judge(p, "fallocate", fallocate(fd, 1 /* keep the size */, 0, 4096),
		      ERRS(EROFS, EACCES, EPERM, EBADF));
}

static void ro_xattr(struct probe *p)
{
	const char *f = ro_file(p);

	if (!f)
		return;
	judge(p, "setxattr", setxattr(f, "user.cloche", "x", 1, 0),
	      ERRS(EROFS, EACCES, EPERM, EOPNOTSUPP));
	removexattr(f, "user.cloche");
}

static void ro_names(struct probe *p)
{
	const char *ro = need(p, "ro");
	auto_close int fd = -1;

	if (!ro)
		return;
	fd = open(fmt_path("%s/new", ro), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	judge(p, "create", fd, CALM);
	judge(p, "mkdir", mkdir(fmt_path("%s/newdir", ro), 0755), CALM);
	judge(p, "symlink", symlink("/", fmt_path("%s/newlink", ro)), CALM);
	if (!p->control) {
		judge(p, "rename", rename(fmt_path("%s/file", ro), fmt_path("%s/x", ro)),
		      ERRS(EROFS, EACCES, EPERM, EXDEV));
		judge(p, "unlink", unlink(fmt_path("%s/file", ro)), CALM);
	}
	unlink(fmt_path("%s/new", ro));
	rmdir(fmt_path("%s/newdir", ro));
	unlink(fmt_path("%s/newlink", ro));
}

static void ro_flags(struct probe *p)
{
	const char *f = ro_file(p);
	auto_close int fd = f ? open(f, O_RDONLY | O_CLOEXEC) : -1;
	int flags = 0;

	if (!f)
		return;
	if (ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0) {
		judge(p, "reading the flags", -1, ERRS(EPERM, EACCES, ENOTTY));
		return;
	}
	judge(p, "FS_IOC_SETFLAGS", ioctl(fd, FS_IOC_SETFLAGS, &flags),
	      ERRS(EROFS, EACCES, EPERM, ENOTTY));
}

/* A lease makes the host's writers wait for us, up to 45 seconds each. */
static void ro_lease(struct probe *p)
{
	const char *f = ro_file(p);
	auto_close int fd = f ? open(f, O_RDONLY | O_CLOEXEC) : -1;

	if (!f)
		return;
	judge(p, "F_SETLEASE", fcntl(fd, F_SETLEASE, F_RDLCK), ERRS(EACCES, EPERM));
	fcntl(fd, F_SETLEASE, F_UNLCK);
}

static void ro_flock(struct probe *p)
{
	const char *f = ro_file(p);
	auto_close int fd = f ? open(f, O_RDONLY | O_CLOEXEC) : -1;

	if (f)
		judge(p, "flock", flock(fd, LOCK_EX | LOCK_NB), ERRS(EACCES, EPERM));
}

static void ro_remount(struct probe *p)
{
	const char *ro = need(p, "ro");

	if (!ro)
		return;
	judge(p, "remount", mount(NULL, ro, NULL, MS_REMOUNT | MS_BIND, NULL), ERRS(EPERM, EACCES));
	judge(p, "umount", umount2(ro, MNT_DETACH), ERRS(EPERM, EACCES));
	judge(p, "mount over it", mount("none", ro, "tmpfs", 0, NULL), ERRS(EPERM, EACCES));
}

/* A read-only mount does not keep anyone from writing into a fifo: this is for Landlock. */
static void ro_fifo(struct probe *p)
{
	const char *ro = need(p, "ro");
	auto_close int fd = -1;

	if (!ro)
		return;
	fd = open(fmt_path("%s/fifo", ro), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0) {
		judge(p, "opening the fifo", -1, ERRS(EACCES, EPERM, ENXIO, EROFS));
		return;
	}
	judge(p, "writing into the host's fifo", write(fd, "x", 1), ERRS(EPIPE));
}

static const struct probe_case cases[] = {
	{"ro-write", 11, "open a read-only file for writing", SAFE, L(MOUNT_NS) | L(LANDLOCK), 0,
	 ro_write, 0},
	{"ro-reopen", 9, "open it again through /proc/self/fd", SAFE, L(MOUNT_NS) | L(LANDLOCK), 0,
	 ro_reopen, 0},
	{"ro-mmap", 11, "write it through a mapping", SAFE, L(MOUNT_NS) | L(LANDLOCK), 0, ro_mmap,
	 0},
	{"ro-splice", 11, "write it through pages in a pipe", SAFE, L(MOUNT_NS) | L(LANDLOCK), 0,
	 ro_splice, 0},
	{"ro-chmod", 11, "change its mode", SAFE | WEAK, L(MOUNT_NS), 0, ro_chmod, 0},
	{"ro-chown", 11, "change its owner", SAFE | WEAK, L(MOUNT_NS), 0, ro_chown, 0},
	{"ro-utimes", 11, "change its times", SAFE | WEAK, L(MOUNT_NS), 0, ro_utimes, 0},
	{"ro-truncate", 11, "truncate it", SAFE, L(MOUNT_NS) | L(LANDLOCK), 0, ro_truncate, 0},
	{"ro-fallocate", 11, "allocate in it", SAFE, L(MOUNT_NS) | L(LANDLOCK), 0, ro_fallocate, 0},
	{"ro-xattr", 11, "set an extended attribute", SAFE | WEAK, L(MOUNT_NS), 0, ro_xattr, 0},
	{"ro-names", 11, "create, rename and remove names beside it", SAFE,
	 L(MOUNT_NS) | L(LANDLOCK), 0, ro_names, 0},
	{"ro-flags", 11, "set inode flags", SAFE | WEAK, L(MOUNT_NS), 0, ro_flags, 0},
	{"ro-lease", 0, "take a lease, so that the host's writers wait", SAFE | WEAK,
	 L(SECCOMP) | L(MOUNT_NS), 0, ro_lease, 0},
	{"ro-flock", 0, "lock it, so that the host's programs wait", SAFE | GAP, L(SECCOMP), 0,
	 ro_flock, 0},
	{"ro-remount", 11, "remount it writable, or take the mount away", SAFE | CONTROL_NS,
	 L(SECCOMP) | L(CAPS), 0, ro_remount, 0},
	{"ro-fifo", 41, "write into a fifo of the host that is in sight", SAFE, L(LANDLOCK), 0,
	 ro_fifo, 0},
};
const struct case_group group_readonly = {cases, ARRAY_LEN(cases)};
