/* Mounts a /proc of the sandbox's own and covers the files that reveal the host. */
#include "sandbox/inside/procfs.h"

#include "base/id.h"
#include "kern/mount.h"
#include "kern/sys.h"
#include "sandbox/inside/skeleton.h"

#include <linux/magic.h>
#include <linux/stat.h>
#include <sys/vfs.h>

/* Files that reveal the host or its kernel. */
static const struct {
	const char *name;
	bool is_dir;
} masked[] = {
	{"kallsyms", false},   {"keys", false},		 {"key-users", false},
	{"interrupts", false}, {"cmdline", false},	 {"modules", false},
	{"kcore", false},      {"timer_list", false},	 {"sched_debug", false},
	{"kmsg", false},       {"latency_stats", false}, {"sysrq-trigger", false},
	{"bootconfig", false}, {"acpi", true},		 {"scsi", true},
};

/* Is something else mounted there, be it another file of /proc? If unknown: yes. */
static bool is_covered(int proc, const char *name)
{
	struct statx sx = {.stx_attributes_mask = 0};

	return syscall(SYS_statx, proc, name, AT_SYMLINK_NOFOLLOW, 0, &sx) < 0 ||
	       !(sx.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) ||
	       (sx.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

unsigned procfs_look(int proc, bool caller_is_root)
{
	unsigned found = 0;

	for (size_t i = 0; i < ARRAY_LEN(masked); i++) {
		struct stat st;

		if (masked[i].is_dir || fstatat(proc, masked[i].name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		/*
		 * May the user inside read it? The host's root is not mapped inside, unless the
		 * caller is root without privileges. The mode of a covered file says nothing.
		 */
		if ((st.st_mode & 0006) || caller_is_root || is_covered(proc, masked[i].name))
			found |= 1u << i;
	}
	return found;
}

bool procfs_look_at_host(bool caller_is_root, unsigned *ret)
{
	auto_close int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct statfs fs;

	if (proc < 0 || fstatfs(proc, &fs) < 0 || fs.f_type != PROC_SUPER_MAGIC)
		return false;
	/* A /proc that shows only processes (subset=pid) has none of these files. */
	*ret = procfs_look(proc, caller_is_root);
	return faccessat(proc, "cmdline", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Kernel modules add and remove directories, so these are looked for each time. */
static unsigned look_for_dirs(int proc)
{
	unsigned found = 0;

	for (size_t i = 0; i < ARRAY_LEN(masked); i++)
		if (masked[i].is_dir && faccessat(proc, masked[i].name, F_OK, 0) == 0)
			found |= 1u << i;
	return found;
}

int procfs_make_covers(int dir, struct err *e)
{
	if (mkdirat(dir, "nothing", 0555) < 0)
		return err_sys(e, "cannot create a directory");
	return skeleton_file(dir, "blank", "", 0, 0444, e);
}

static int put_on(const struct procfs_covers *c, const char *from, const char *to, struct err *e)
{
	return c->by_fd ? mount_bind(AT_FDCWD, from, AT_FDCWD, to, MOUNT_READ_ONLY, e)
			: mount_bind_bare(from, to, 0, e);
}

/* The working directory is /proc. */
static int cover(const struct procfs_covers *c, unsigned masks, struct err *e)
{
	/* The host's root owns it anyway; this keeps it read-only even if that check has a bug. */
	if (put_on(c, "sys", "sys", e) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(masked); i++) {
		char path[64];

		if (!(masks & 1u << i))
			continue;
		snprintf(path, sizeof(path), "%s/%s", c->dir,
			 masked[i].is_dir ? "nothing" : "blank");
		if (put_on(c, path, masked[i].name, e) < 0)
			return -1;
	}
	return 0;
}

static int mask(int proc, const struct procfs_covers *c, unsigned masks, struct err *e)
{
	auto_close int here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int boot_id = mount_clone(AT_FDCWD, "bootid", MOUNT_READ_ONLY, e);
	struct err ignored;
	int rc;

	if (here < 0 || boot_id < 0 || fchdir(proc) < 0)
		return err_sys(e, "cannot enter /proc");
	rc = cover(c, masks | look_for_dirs(proc), e);
	/* The host's boot id is a fingerprint; the sandbox has its own. */
	(void)mount_attach(boot_id, AT_FDCWD, "sys/kernel/random/boot_id", &ignored);
	if (fchdir(here) < 0)
		return err_sys(e, "cannot leave /proc");
	return rc < 0 || c->by_fd ? rc : mount_seal_below(proc, 0, e);
}

/* A random UUID: another one at each start, as after a boot. */
static int make_uuid(char *ret, size_t size, struct err *e)
{
	char hex[33];

	if (id_hex(hex, 16) < 0)
		return err_sys(e, "cannot get random bytes");
	snprintf(ret, size, "%.8s-%.4s-4%.3s-a%.3s-%.12s\n", hex, hex + 8, hex + 13, hex + 17,
		 hex + 20);
	return 0;
}

static int mount_proc(int root, int *ret_proc, struct err *e)
{
	char uuid[40];
	int fd = mount_new("proc", MOUNT_NO_EXEC, NULL, e);

	if (fd < 0)
		return err_wrap(e, "the host's own /proc must be fully visible here");
	if (mount_attach(fd, root, "proc", e) < 0)
		return -1;
	if (make_uuid(uuid, sizeof(uuid), e) < 0 ||
	    skeleton_file(AT_FDCWD, "bootid", uuid, strlen(uuid), 0444, e) < 0)
		return -1;
	*ret_proc = openat(root, "proc", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return *ret_proc < 0 ? err_sys(e, "cannot open /proc") : 0;
}

int procfs_show(int root, const struct procfs_covers *c, const struct procfs_masks *m,
		struct err *e)
{
	auto_close int proc = -1;

	if (mount_proc(root, &proc, e) < 0)
		return -1;
	return mask(proc, c,
		    m->state == PROCFS_KNOWN ? m->files : procfs_look(proc, m->caller_is_root), e);
}
