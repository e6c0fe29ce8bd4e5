/*
 * Set-id bits on files that may end up on the host: a set-uid file of the workspace's owner is a
 * way back in. A case passes only if no file has the bit afterwards.
 */
#include "probe.h"

#include "base/auto.h"
#include "numbers.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define NO ERRS(EPERM, EACCES)

static void look(struct probe *p, const char *path, const char *how)
{
	struct stat st;

	if (lstat(path, &st) == 0 && (st.st_mode & (S_ISUID | S_ISGID)))
		got_through(p, "%s left mode %o", how, st.st_mode & 07777);
}

/* A directory in the workspace, else a scratch one. */
static const char *place(struct probe *p)
{
	static char dir[4096];
	const char *ws = given("ws");

	snprintf(dir, sizeof(dir), "%s/cloche-setid-XXXXXX", ws ? ws : ".");
	return mkdtemp(dir) ? dir : scratch_dir(p);
}

static void setid_chmod(struct probe *p)
{
	const char *dir = place(p);
	auto_close int fd = -1;
	char f[4096];

	if (!dir)
		return;
	snprintf(f, sizeof(f), "%s/f", dir);
	fd = open(f, O_RDWR | O_CREAT | O_CLOEXEC, 0755);
	if (fd < 0)
		cannot_tell(p, "create: %s", errno_name(errno));
	for (int i = 0; fd >= 0 && i < 3; i++) {
		static const mode_t modes[] = {04755, 02755, 06777};

#ifdef SYS_chmod
		judge(p, "chmod", syscall(SYS_chmod, f, modes[i]), NO);
		look(p, f, "chmod");
#endif
		judge(p, "fchmod", syscall(SYS_fchmod, fd, modes[i]), NO);
		judge(p, "fchmodat", syscall(SYS_fchmodat, AT_FDCWD, f, modes[i]), NO);
		judge(p, "fchmodat2", syscall(SYS_fchmodat2, AT_FDCWD, f, modes[i], 0),
		      ERRS(EPERM, EACCES, ENOSYS));
		look(p, f, "chmod");
	}
	remove_tree(dir);
}

/* The kernel looks at the low 16 bits only; a filter that compares all 64 would be fooled. */
static void setid_high_bits(struct probe *p)
{
	const char *dir = place(p);
	char f[4096];

	if (!dir)
		return;
	snprintf(f, sizeof(f), "%s/f", dir);
	if (write_text(f, "x") < 0)
		cannot_tell(p, "create: %s", errno_name(errno));
	for (int bit = 16; bit < 64; bit += 8) {
		unsigned long mode = 04755ul | 1ul << bit;

		judge(p, "fchmodat with high bits", syscall(SYS_fchmodat, AT_FDCWD, f, mode), NO);
		look(p, f, "fchmodat with high bits");
	}
	remove_tree(dir);
}

static void setid_open(struct probe *p)
{
	const char *dir = place(p);
	char f[4096];
	int n = 0;

	if (!dir)
		return;
	for (int i = 0; i < 2; i++) {
		static const mode_t modes[] = {04755, 02755};
		static const int flags[] = {O_CREAT | O_WRONLY, O_CREAT | O_EXCL | O_RDWR};

		for (int j = 0; j < 2; j++) {
			auto_close int fd = -1;

			snprintf(f, sizeof(f), "%s/o%d", dir, n++);
			fd = (int)syscall(SYS_openat, AT_FDCWD, f, flags[j], modes[i]);
			judge(p, "openat with a set-id mode", fd, NO);
			look(p, f, "openat");
#ifdef SYS_open
			auto_close int fd2 = -1, fd3 = -1;

			snprintf(f, sizeof(f), "%s/o%d", dir, n++);
			fd2 = (int)syscall(SYS_open, f, flags[j], modes[i]);
			judge(p, "open with a set-id mode", fd2, NO);
			look(p, f, "open");
			snprintf(f, sizeof(f), "%s/o%d", dir, n++);
			fd3 = (int)syscall(SYS_creat, f, modes[i]);
			judge(p, "creat with a set-id mode", fd3, NO);
			look(p, f, "creat");
#endif
		}
	}
	remove_tree(dir);
}

/* No O_CREAT in the flags, but a mode all the same; then it gets a name. */
static void setid_tmpfile(struct probe *p)
{
	const char *dir = place(p);
	auto_close int fd = -1;
	char f[4096];

	if (!dir)
		return;
	fd = (int)syscall(SYS_openat, AT_FDCWD, dir, O_TMPFILE | O_RDWR, 04755);
	judge(p, "O_TMPFILE with a set-id mode", fd, ERRS(EPERM, EACCES));
	snprintf(f, sizeof(f), "%s/t", dir);
	if (fd >= 0 &&
	    linkat(AT_FDCWD, fmt_path("/proc/self/fd/%d", fd), AT_FDCWD, f, AT_SYMLINK_FOLLOW) == 0)
		look(p, f, "O_TMPFILE and linkat");
	remove_tree(dir);
}

static void setid_openat2(struct probe *p)
{
	struct {
		unsigned long long flags, mode, resolve;
	} how = {O_CREAT | O_WRONLY, 04755, 0};
	const char *dir = place(p);
	long sizes[] = {24, 32, 4096, 1l << 40};
	char f[4096];

	if (!dir)
		return;
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		long fd;

		if (p->control && i > 0)
			break;
		snprintf(f, sizeof(f), "%s/o%zu", dir, i);
		fd = syscall(SYS_openat2, AT_FDCWD, f, &how, sizes[i]);
		judge(p, "openat2", fd, ERRS(ENOSYS));
		look(p, f, "openat2");
		if (fd >= 0)
			close((int)fd);
	}
	remove_tree(dir);
}

static void setid_mkdir(struct probe *p)
{
	const char *dir = place(p);
	char f[4096];

	if (!dir)
		return;
	snprintf(f, sizeof(f), "%s/d", dir);
	/* mkdir keeps the sticky bit only; chmod is what would set the others. */
	judge(p, "mkdirat with a set-id mode", syscall(SYS_mkdirat, AT_FDCWD, f, 02755), NO);
	look(p, f, "mkdirat");
	mkdir(f, 0755);
	judge(p, "fchmodat of a directory", syscall(SYS_fchmodat, AT_FDCWD, f, 02755), NO);
	look(p, f, "fchmodat");
	remove_tree(dir);
}

static void setid_mknod(struct probe *p)
{
	const char *dir = place(p);
	char f[4096];

	if (!dir)
		return;
	snprintf(f, sizeof(f), "%s/n", dir);
	judge(p, "mknodat with a set-id mode",
	      syscall(SYS_mknodat, AT_FDCWD, f, S_IFREG | 04755, 0), NO);
	look(p, f, "mknodat");
	snprintf(f, sizeof(f), "%s/fifo", dir);
	judge(p, "mknodat of a fifo with a set-id mode",
	      syscall(SYS_mknodat, AT_FDCWD, f, S_IFIFO | 02755, 0), NO);
	look(p, f, "mknodat");
	remove_tree(dir);
}

static const struct probe_case cases[] = {
	{"setid-chmod", 4, "give a file of the workspace set-id bits by chmod", SAFE, L(SECCOMP), 0,
	 setid_chmod, 0},
	{"setid-high-bits", 4, "the same with bits above the mode set", SAFE, L(SECCOMP), 0,
	 setid_high_bits, 0},
	{"setid-open", 4, "make a set-id file by open and creat", SAFE, L(SECCOMP), 0, setid_open,
	 0},
	{"setid-tmpfile", 4, "make a set-id file by O_TMPFILE and linkat", SAFE, L(SECCOMP), 0,
	 setid_tmpfile, 0},
	{"setid-openat2", 4, "make one by openat2, whose mode a filter cannot see", SAFE,
	 L(SECCOMP), 0, setid_openat2, 0},
	{"setid-mkdir", 4, "make a set-gid directory", SAFE, L(SECCOMP), 0, setid_mkdir, 0},
	{"setid-mknod", 4, "make one by mknod", SAFE, L(SECCOMP), 0, setid_mknod, 0},
};
const struct case_group group_setid = {cases, ARRAY_LEN(cases)};
