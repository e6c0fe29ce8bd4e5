#include "sandbox/procfs.h"

#include "base/auto.h"
#include "kern/mount.h"
#include "sandbox/skeleton.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* May the user inside read it, as far as its mode goes? */
static bool is_readable(int root, const char *path, bool caller_is_root)
{
	struct stat st;

	if (fstatat(root, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	/* The host's root is nobody in here, unless it is the caller itself, without privileges. */
	return (st.st_mode & 0006) || caller_is_root;
}

static int mask(int root, bool caller_is_root, struct err *e)
{
	/* What tells about the host or its kernel. */
	static const char *const masked[] = {
		"proc/kallsyms",    "proc/keys",    "proc/key-users",	  "proc/interrupts",
		"proc/cmdline",	    "proc/modules", "proc/kcore",	  "proc/timer_list",
		"proc/sched_debug", "proc/kmsg",    "proc/latency_stats", "proc/sysrq-trigger",
	};
	static const char *const masked_dirs[] = {"proc/acpi", "proc/scsi"};
	struct err ignored;

	/* Owned by the host's root anyway; this makes it read-only even for a bug in that. */
	if (mount_bind(root, "proc/sys", root, "proc/sys", MOUNT_READ_ONLY, e) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(masked); i++) {
		if (!is_readable(root, masked[i], caller_is_root))
			continue;
		if (mount_bind(AT_FDCWD, "blank", root, masked[i], MOUNT_READ_ONLY, e) < 0)
			return -1;
	}
	for (size_t i = 0; i < ARRAY_LEN(masked_dirs); i++) {
		if (faccessat(root, masked_dirs[i], F_OK, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (mkdir("nothing", 0555) < 0 && errno != EEXIST)
			return err_sys(e, "cannot create a directory");
		if (mount_bind(AT_FDCWD, "nothing", root, masked_dirs[i], MOUNT_READ_ONLY, e) < 0)
			return -1;
	}
	/* The host's boot id is a fingerprint; the sandbox has its own. */
	(void)mount_bind(AT_FDCWD, "bootid", root, "proc/sys/kernel/random/boot_id",
			 MOUNT_READ_ONLY, &ignored);
	return 0;
}

/* A random UUID of the sandbox's own, made from its id. */
static void make_uuid(const char *id, char *ret, size_t size)
{
	uint64_t a = 0xcbf29ce484222325, b = 0x84222325cbf29ce4;

	for (; *id; id++) {
		a = (a ^ (unsigned char)*id) * 0x100000001b3;
		b = (b + a) * 0x9e3779b97f4a7c15;
	}
	snprintf(ret, size, "%08x-%04x-4%03x-a%03x-%012llx\n", (unsigned)(a >> 32),
		 (unsigned)(a & 0xffff), (unsigned)(a >> 16 & 0xfff), (unsigned)(b >> 52),
		 (unsigned long long)(b & 0xffffffffffff));
}

int procfs_show(int root, const char *id, bool caller_is_root, struct err *e)
{
	char uuid[40];
	int fd = mount_new("proc", MOUNT_NO_EXEC, NULL, e);

	if (fd < 0)
		return err_wrap(e, "the host's own /proc must be fully visible here");
	if (mount_attach(fd, root, "proc", e) < 0)
		return -1;
	make_uuid(id, uuid, sizeof(uuid));
	if (skeleton_file(AT_FDCWD, "bootid", uuid, strlen(uuid), 0444, e) < 0)
		return -1;
	return mask(root, caller_is_root, e);
}
