/* Mounts disks by loop devices. Each device ends with its mount (autoclear), however the daemon ends. */
#include "disk/disk.h"

#include "kern/mount.h"
#include "kern/sys.h"
#include "kern/userns.h"

#include <endian.h>
#include <linux/loop.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/ioctl.h>

#define TRIES 200
#define STEP_MS 10

_Static_assert(DISK_OUTER_ID == USERNS_DISK_OUTER, "as it is mapped");

/*
 * The lock belongs to the open file, which the loop device keeps. After an unmount the kernel lets go of it a
 * moment later.
 */
static int lock_file(int file, bool read_only, struct err *e)
{
	int how = (read_only ? LOCK_SH : LOCK_EX) | LOCK_NB;

	for (int i = 0; flock(file, how) < 0; i++) {
		if (errno != EWOULDBLOCK)
			return err_sys(e, "cannot lock a disk");
		if (i == TRIES)
			return err_set(e, ERR_CONFLICT, "the disk is mounted already");
		poll(NULL, 0, STEP_MS);
	}
	return 0;
}

/* Others take loop devices at the same time: a number that was free may be taken. */
static int attach(const struct disk_use *u, char *path, size_t size, struct err *e)
{
	struct loop_config config = {.fd = (unsigned)u->file,
				     .block_size = 4096,
				     .info = {.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO |
							  (u->read_only ? LO_FLAGS_READ_ONLY : 0)}};
	auto_close int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

	for (int i = 0; control >= 0 && i < TRIES; i++) {
		int number = ioctl(control, LOOP_CTL_GET_FREE);
		auto_close int device = -1;

		if (number < 0)
			break;
		snprintf(path, size, "/dev/loop%d", number);
		device = open(path, (u->read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
		if (device < 0)
			break;
		if (ioctl(device, LOOP_CONFIGURE, &config) == 0)
			return take_fd(&device);
		if (errno != EBUSY)
			break;
	}
	return err_sys(e, "cannot get a loop device");
}

/* All that the disk has. */
static int mount_all(const struct disk_use *u, struct err *e)
{
	char path[32];
	const char *options[] = {"source",
				 path,
				 "errors",
				 "remount-ro",
				 "noinit_itable",
				 NULL,
				 u->read_only ? "ro" : NULL,
				 NULL,
				 NULL};
	auto_close int device = -1;

	if (lock_file(u->file, u->read_only, e) < 0)
		return -1;
	device = attach(u, path, sizeof(path), e);
	return device < 0 ? -1 : mount_new("ext4", u->read_only ? MOUNT_READ_ONLY : 0, options, e);
}

#define INCOMPATIBLE (1024 + 0x60) /* of the superblock: features that a reader has to know */
#define NEEDS_RECOVERY 4

/* Of a device that is only read no journal can be replayed. */
static int replay_journal(int file, struct err *e)
{
	const struct disk_use use = {.file = file};
	uint32_t features = 0;
	auto_close int fs = -1;

	if (pread(file, &features, sizeof(features), INCOMPATIBLE) != (ssize_t)sizeof(features))
		return err_sys(e, "cannot read a disk");
	if (!(le32toh(features) & NEEDS_RECOVERY))
		return 0;
	fs = mount_all(&use, e);
	return fs < 0 ? -1 : 0;
}

/* The first mount makes `d`. If nobody is to own it, nothing inside ever has its owner's id. */
static int open_top(int fs, const struct disk_use *u, struct err *e)
{
	bool is_new = !u->read_only && mkdirat(fs, "d", 0755) == 0;
	uint32_t owner = u->owner ? u->owner : DISK_OUTER_ID;
	auto_close int top = -1;

	if (!is_new && !u->read_only && errno != EEXIST)
		return err_sys(e, "cannot prepare a disk");
	top = openat(fs, "d", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (top < 0)
		return err_sys(e, "the disk has no files");
	if (is_new && (fchmod(top, 0755) < 0 || fchown(top, owner, owner) < 0))
		return err_sys(e, "cannot prepare a disk");
	return disk_unlock(top, u->key, is_new, e);
}

static int map_ids(int tree, uint32_t base, struct err *e)
{
	struct id_map ids;
	struct userns u;
	int rc;

	if (!base)
		return 0;
	id_map_disk(&ids, base);
	if (userns_create(&ids, &ids, &u, e) < 0)
		return -1;
	rc = mount_idmap(tree, u.fd);
	if (rc < 0)
		err_sys(e, "cannot map the ids of a disk");
	close(u.fd);
	userns_release(&u);
	return rc;
}

int disk_mount(const struct disk_use *u, struct err *e)
{
	auto_close int fs = -1;
	auto_close int tree = -1;

	if (u->read_only && replay_journal(u->file, e) < 0)
		return -1;
	fs = mount_all(u, e);
	if (fs < 0 || open_top(fs, u, e) < 0)
		return -1;
	tree = mount_clone(fs, "d", u->read_only ? MOUNT_READ_ONLY : 0, e);
	if (tree < 0 || map_ids(tree, u->id_base, e) < 0)
		return -1;
	return take_fd(&tree);
}
